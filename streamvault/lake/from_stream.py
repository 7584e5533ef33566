"""Stream as the origin of a table: each run adds the events that are new since the one before.

If a segment is longer than a file, its files begin at event boundaries that are guessed and then proved, as in an
export (`reading.ranges`). They are proved before anything is planned or written, by reading such segments once more:
queries of the table's folder would see a file that begins at a wrong guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from streamvault.common.progress import Progress
from streamvault.common.version import TOOL
from streamvault.exporter.options import ExportOptions
from streamvault.exporter.plan import make_plan
from streamvault.lake.inference import SAMPLE_BYTES, SAMPLE_PLACES, sample
from streamvault.lake.origin import Origin
from streamvault.lake.plan import TablePlan
from streamvault.lake.recorded import OriginKind, TableOptions
from streamvault.lake.sources import LiveEvents
from streamvault.manifests.archive.plan import Plan
from streamvault.manifests.archive.remainder import UNKNOWN
from streamvault.manifests.archive.rows import FinishedSpan
from streamvault.manifests.format.entries import GapEntry, SegmentEntry
from streamvault.manifests.format.field_types import segment_key
from streamvault.manifests.format.manifest import Manifest
from streamvault.reading.estimate import estimate_events
from streamvault.reading.identity import check_same_stream
from streamvault.reading.proof import SegmentChain, prove_all
from streamvault.reading.ranges import find_range
from streamvault.reading.spans import SegmentSpan, Span, spans_of
from streamvault.sparkrun.runner import Runner
from streamvault.streamstore.arithmetic.splitting import EventSplitter
from streamvault.streamstore.arithmetic.walking import find_start
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import describe_source

Bounds = tuple[tuple[int, int], ...]


class StreamOrigin(Origin):
    """A stream as the origin of a table. Head and tail are fixed when they are first needed.

    Args:
        source: the stream.
        largest: the largest payload to accept (bytes).
    """

    kind: OriginKind = "stream"

    def __init__(self, source: OpenStream, largest: int) -> None:
        super().__init__(source.name, source.uri, LiveEvents(source.address, source.name, largest))
        self._address = source.address
        self._store = source.store
        self._largest = largest
        self._described: StreamDescription | None = None

    @property
    def has_nothing_yet(self) -> bool:
        """See `Origin.has_nothing_yet`. True if there are no events between head and tail."""
        return not any(start < end for _, start, end in self._segments)

    def draft(self, last: Manifest | None, options: TableOptions, where: str) -> TablePlan | None:  # noqa: ARG002
        """See `Origin.draft`. Draft all events up to the tail; a range is the part of a segment that fits into a file.

        There is no draft without new events or gaps, even if the stream was sealed or scaled.
        """
        chunks = ExportOptions(layout="chunks", range_size=options.target_size)
        plan = make_plan(self._description(last), self._store, last, chunks)
        if plan is None or not (plan.bytes or plan.gaps):
            return None
        return _table_plan(plan, 0 if last is None else last.generation)

    def prove(self, draft: TablePlan, runner: Runner, progress: Progress, *, all_of_it: bool = False) -> TablePlan:
        """See `Origin.prove`. A segment with one range begins and ends at cuts, and is read only with ``all_of_it``."""
        chains = {
            segment_key(name): SegmentChain(bounds[0][0], bounds[-1][1], draft.manifest.range_size)
            for name, bounds in draft.ranges.items()
            if all_of_it or len(bounds) > 1
        }
        if not chains:
            return draft

        def run(spans: Sequence[tuple[SegmentId, Span]]) -> Iterator[tuple[SegmentId, FinishedSpan | None]]:
            tasks = [
                SegmentSpan(self._address, self.stream, segment, chains[segment].end, span, self._largest)
                for segment, span in spans
            ]
            for index, row in runner.run(find_range, tasks, progress=progress):
                if row is not None:
                    progress.advance(row.events, row.bytes)
                yield spans[index][0], row

        progress.begin("finding file boundaries", sum(chain.end - chain.start for chain in chains.values()))
        prove_all(chains, run)
        ranges: dict[str, Bounds] = dict(draft.ranges)
        gaps = list(draft.manifest.gaps)
        for segment, chain in chains.items():
            name = segment.in_stream(self.stream)
            ranges[name] = tuple((one.start, one.end) for one in chain.ranges())
            gaps += [GapEntry(segment=name, start=gap.start, end=gap.end, reason=gap.reason) for gap in chain.gaps()]
        ranges = {name: bounds for name, bounds in ranges.items() if bounds}
        return draft.model_copy(update={"ranges": ranges, "manifest": _with(draft.manifest, ranges, gaps)})

    def check(self, plan: TablePlan, where: str) -> None:  # noqa: ARG002
        """See `Origin.check`. The plan must be of this stream."""
        check_same_stream(self._description(plan.manifest), self._store, plan.manifest)

    def sample(self) -> Iterator[bytes]:
        """See `Origin.sample`."""
        segments = self._segments
        step = max(SAMPLE_BYTES, -(-sum(end - start for _, start, end in segments) // SAMPLE_PLACES))
        places = [(segment, span, end) for segment, start, end in segments for span in spans_of(start, end, step)]
        return sample(places, self._read)

    def events(self, plan: TablePlan) -> int:
        """See `Origin.events`."""
        return estimate_events(self._store, plan.manifest, self._largest) if plan.events is None else plan.events

    @cached_property
    def _segments(self) -> list[tuple[SegmentId, int, int]]:
        """The segments' offsets between head and tail."""
        plan = make_plan(self._description(None), self._store, None, ExportOptions(layout="chunks"))
        return [] if plan is None else [(segment_key(one.name), one.start, one.end) for one in plan.segments]

    def _read(self, place: tuple[SegmentId, Span, int]) -> tuple[EventSplitter, Iterable[bytes | memoryview]]:
        segment, span, end = place
        start: int | None = span.low
        try:
            if not span.known:
                start = find_start(self._store, self.stream, segment, span.low, end)
        except (SegmentTruncated, NoSuchSegment):
            start = None
        first = end if start is None else start
        splitter = EventSplitter(first, segment.in_stream(self.stream), largest=self._largest)
        return splitter, self._blocks(segment, first, end)

    def _blocks(self, segment: SegmentId, start: int, end: int) -> Iterator[bytes | memoryview]:
        try:
            yield from self._store.read(self.stream, segment, start, min(end, start + SAMPLE_BYTES))
        except (SegmentTruncated, NoSuchSegment):
            return

    def _description(self, known: Manifest | None) -> StreamDescription:
        """Describe the stream once, and again if another run has got further since."""
        if self._described is None or (known is not None and _is_beyond(known.to, self._described)):
            self._described = describe_source(self._store, self.stream)
        return self._described


def _is_beyond(cut: StreamCut, described: StreamDescription) -> bool:
    known, tail = described.ranges(), described.tail.offsets
    return any(segment not in known or offset > tail.get(segment, offset) for segment, offset in cut.offsets.items())


def _table_plan(plan: Plan, after: int) -> TablePlan:
    """Convert a plan to a table's, with ranges that begin at multiples of the range size, not yet at events."""
    gone: dict[str, int] = {}
    for gap in plan.gaps:
        gone[gap.segment] = max(gap.end, gone.get(gap.segment, 0))
    ranges = {
        one.name: _spans(max(one.start, gone.get(one.name, 0)), one.end, plan.range_size) for one in plan.segments
    }
    ranges = {name: bounds for name, bounds in ranges.items() if bounds}
    entries = (
        SegmentEntry(name=one.name, start=one.start, end=one.end, sealed=one.sealed, events=0, bytes=0, digest=UNKNOWN)
        for one in plan.segments
    )
    manifest = plan.manifest(entries, plan.gaps, TOOL)
    return TablePlan(after=after, manifest=_with(manifest, ranges, plan.gaps), ranges=ranges, events=None)


def _spans(start: int, end: int, size: int) -> Bounds:
    """Split at the multiples of a size, unless everything fits into one range."""
    if end - start <= size:
        return ((start, end),) if start < end else ()
    return tuple((span.low, span.high) for span in spans_of(start, end, size))


def _with(manifest: Manifest, ranges: Mapping[str, Bounds], gaps: Sequence[GapEntry]) -> Manifest:
    """Return the manifest with these ranges, of which only the sizes are known yet."""
    sizes = {name: sum(end - start for start, end in bounds) for name, bounds in ranges.items()}
    segments = tuple(one.model_copy(update={"bytes": sizes.get(one.name, 0)}) for one in manifest.segments)
    return manifest.model_copy(update={"segments": segments, "gaps": tuple(gaps), "bytes": sum(sizes.values())})
