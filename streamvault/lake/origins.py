"""The origins of a table's events: an archive's generations, or a stream to which each run returns.

Stream as the origin of a table: each run adds the events that are new since the one before.

If a segment is longer than a file, its files begin at event boundaries that are guessed and then proved, as in an
export (`sources.reader`). They are proved before anything is planned or written, by reading such segments once more:
queries of the table's folder would see a file that begins at a wrong guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property

from streamvault.common.errors import Conflict, Damaged, Overtaken
from streamvault.common.progress import Progress
from streamvault.common.version import TOOL
from streamvault.exporter.compact import choose_runs
from streamvault.exporter.plan import make_plan
from streamvault.exporter.reports import ExportOptions
from streamvault.lake.inference import SAMPLE_BYTES, SAMPLE_PLACES, sample
from streamvault.lake.plan import Origin, TablePlan
from streamvault.lake.table import OriginKind, TableOptions, removed
from streamvault.lake.task import ArchivedEvents, LiveEvents, TableRange
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.layout import open_layout, open_reader
from streamvault.manifests.archive import Archive
from streamvault.manifests.damage import ArchivedPart
from streamvault.manifests.files import segment_key
from streamvault.manifests.history import Generation, by_segment
from streamvault.manifests.manifest import GapEntry, Manifest, SchemaGroup, SegmentEntry
from streamvault.manifests.merging import UNKNOWN, Merger, remainder_of
from streamvault.manifests.plan import Plan
from streamvault.manifests.spans import SegmentSpan, Span, spans_of
from streamvault.runner.runner import Runner
from streamvault.sources.identity import check_same_stream
from streamvault.sources.proof import SegmentChain, spans_to_run
from streamvault.sources.reader import estimate_events, find_range
from streamvault.sources.sources import ArchiveState
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.model import ANY_EVENT_BYTES, SegmentId, StreamCut, StreamDescription
from streamvault.streamstore.own import describe_source
from streamvault.streamstore.uri import OpenStream
from streamvault.streamstore.walking import find_start


class ArchiveOrigin(Origin):
    """An archive as the origin of a table. A generation without events counts, but no table begins with one alone.

    Args:
        source: the archive, with its generations in force.
        window: maximum data a task buffers in memory (bytes).
        since: the table's generation from which on they were read; 0 for all.
    """

    kind: OriginKind = "archive"

    def __init__(self, source: ArchiveState, window: int, since: int) -> None:
        super().__init__(source.history.stream, source.archive.uri, ArchivedEvents(window))
        self._source = source
        self._archive = source.archive
        self._history = source.history
        self._since = since

    @property
    def has_nothing_yet(self) -> bool:
        """See `Origin.has_nothing_yet`. True if no generation has events."""
        return not any(one.manifest.events for one in self._history.generations)

    @property
    def raw_segments(self) -> Sequence[SegmentId]:
        """See `Origin.raw_segments`."""
        return sorted(
            {
                segment
                for generation in self._history.generations
                if open_layout(generation.manifest.layout).one_object_per_event
                for segment in generation.rows
            }
        )

    @property
    def noted_schemas(self) -> Sequence[SchemaGroup | None]:
        """See `Origin.noted_schemas`."""
        return [one.manifest.schemas for one in self._history.generations]

    def unless_archive_changed(self, first: int = 0) -> AbstractContextManager[None]:
        """See `Origin.unless_archive_changed`."""
        return self._source.reading("handed off", first=first)

    def draft(self, last: Manifest | None, options: TableOptions, where: str) -> TablePlan | None:
        """See `Origin.draft`. Draft the first generation that the table does not have, or not completely.

        Generations behind it that fit into the same file are merged with it, as a compaction would.
        """
        after = 0 if last is None else last.generation
        if after < self._since:  # what was not read must not be taken to have expired
            raise removed(where)
        if last is not None:
            self._check_same(last, where)
        missing = [one for one in self._history.generations if one.manifest.generation > after]
        if not missing or (last is None and self.has_nothing_yet):
            return None
        if last is not None:
            self._check_not_expired(after + 1, where)
        run = next(
            iter(choose_runs([one.manifest for one in missing], set(), target=options.target_size, at_least=2)), ()
        )
        generation = missing[0]
        if run and run[0] is generation.manifest and generation.manifest.first > after:
            generation = _merged(missing[: len(run)], where)
        return _draft(generation, last, where)

    def check(self, plan: TablePlan, where: str) -> None:
        """See `Origin.check`. Planned generations may have expired, or be newer than this run knows."""
        self._check_not_expired(plan.first, where)
        self._check_same(plan.manifest, where)
        if plan.generation > self._history.generation:
            what = f"another run is handing off generation {plan.generation}, which was published after this run began"
            raise Overtaken(what, where=where)

    def _check_same(self, known: Manifest, where: str) -> None:
        """Reject a manifest of another archive, which has another generation with this number."""
        number = known.generation
        held = next((one.manifest for one in self._history.generations if one.manifest.generation >= number), None)
        if held is None and self._archive.listing().newest < number:
            todo = "Give the new table another name (--table), unless the archive has lost generations."
            raise Conflict(
                f"the archive no longer has generation {number}, which the table has", where=where, todo=todo
            )
        if held is None:
            return  # published after this run began
        if number < held.first:
            decision = self._archive.listing().decision
            if decision.dropped != number or decision.dropped_created in {None, known.created}:
                return  # expired, as the table's; `_draft` compares the cuts
            ours_created = decision.dropped_created
        else:
            if held.ends.get(number) == (known.created, known.to):
                return
            ours_created = held.created
        made_of, ours = (
            f"{source or 'a store'}, {created:%Y-%m-%d %H:%M:%S} UTC"
            for source, created in ((known.source, known.created), (held.source, ours_created))
        )
        raise Conflict(
            f"generation {number} of the table is not from this archive: it was made from {made_of}, "
            f"the archive's from {ours}",
            where=where,
            todo="Give the new table another name (--table).",
        )

    def _check_not_expired(self, number: int, where: str) -> None:
        first = self._history.first
        if number < first:
            gone = f"generation {number}" if number == first - 1 else f"generations {number} to {first - 1}"
            raise Conflict(
                f"{gone} expired before being written to the table completely",
                where=where,
                todo="Create another table (--table NAME); it begins where the archive begins now.",
            )

    def ranges(self, plan: TablePlan) -> Iterator[TableRange]:
        """See `Origin.ranges`.

        Raises:
            Damaged: the archive lacks some of them.
        """
        held = [
            generation
            for generation in self._history.generations
            if plan.first <= generation.manifest.generation and generation.manifest.first <= plan.generation
        ]
        for name in sorted(plan.ranges, key=segment_key):
            yield from _located(self._archive, segment_key(name), plan.ranges[name], held)

    def sample(self, plan: TablePlan | None = None) -> Iterator[bytes]:
        """See `Origin.sample`."""
        ranges = [found for segment in self._history.segments() for found in self._history.ranges(segment)]
        if plan is not None:
            spans = {segment_key(name): some for name, some in plan.ranges.items()}
            ranges = [
                one for one in ranges if any(low <= one[1].start < high for low, high in spans.get(one[1].segment, ()))
            ]
        return sample(ranges, self._read)

    def _read(self, archived: tuple[str, ArchivedRange]) -> tuple[EventSplitter, Iterable[bytes | memoryview]]:
        layout, row = archived
        blocks = open_reader(layout).read_range(self._archive.place, row, row.start, row.end, SAMPLE_BYTES)
        return EventSplitter(row.start, str(row.segment), largest=ANY_EVENT_BYTES), blocks


def _merged(generations: Sequence[Generation], where: str) -> Generation:
    """Return neighbouring generations as one, with the ranges of each."""
    rows = [row for generation in generations for some in generation.rows.values() for row in some]
    held = by_segment(sorted(rows, key=lambda row: (row.segment, row.start)))
    return Generation(Merger(generations, where).manifest(held, tool=TOOL), held)


def _draft(generation: Generation, last: Manifest | None, where: str) -> TablePlan:
    """Plan a generation of the archive as the table's next one; of a merged one, only the part that the table lacks.

    Raises:
        Conflict: the table does not end where an original generation of this archive does.
    """
    manifest = generation.manifest
    after = 0 if last is None else last.generation
    if last is not None:
        start = next((one.to for one in manifest.replaces if one.generation == after), manifest.from_)
        if start != last.to or not manifest.epochs.starts_with(last.epochs):
            todo = "Give the new table another name (--table)."
            raise Conflict(f"generation {after} of the table is not from this archive", where=where, todo=todo)
        if manifest.first <= after:
            remainder = remainder_of(generation, after)
            return _plan(after, remainder.manifest, remainder.parts, remainder.events)
    parts = ((row, row.start) for rows in generation.rows.values() for row in rows)
    return _plan(after, manifest, parts, manifest.events)


def _plan(after: int, manifest: Manifest, parts: Iterable[tuple[ArchivedRange, int]], events: int) -> TablePlan:
    ranges: dict[str, list[tuple[int, int]]] = {}
    for row, start in parts:
        ranges.setdefault(row.segment.in_stream(manifest.name), []).append((start, row.end))
    return TablePlan(
        after=after, manifest=manifest, ranges={name: tuple(some) for name, some in ranges.items()}, events=events
    )


def _located(
    archive: Archive, segment: SegmentId, bounds: tuple[tuple[int, int], ...], held: list[Generation]
) -> Iterator[TableRange]:
    parts = [
        ArchivedPart.all_of(archive.address, generation.layout, row)
        for generation in held
        for row in generation.rows.get(segment, ())
    ]
    at = 0
    for start, end in bounds:
        while at < len(parts) and parts[at].end <= start:
            at += 1
        found: list[ArchivedPart] = []
        reached, next_one = start, at
        while reached < end and next_one < len(parts) and parts[next_one].start <= reached:
            found.append(parts[next_one])
            reached = parts[next_one].end
            next_one += 1
        if reached < end:
            raise Damaged(f"the archive lacks a part of segment {segment} from {start} to {end}")
        yield TableRange(segment, start, end, tuple(found))


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

        progress.begin("finding file boundaries", sum(chain.end - chain.start for chain in chains.values()))
        for spans in spans_to_run(chains):
            tasks = [
                SegmentSpan(self._address, self.stream, segment, chains[segment].end, span, self._largest)
                for segment, span in spans
            ]
            for index, row in runner.run(find_range, tasks, progress=progress):
                if row is not None:
                    progress.advance(row.events, row.bytes)
                    chains[spans[index][0]].add(row)
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

    def sample(self, plan: TablePlan | None = None) -> Iterator[bytes]:
        """See `Origin.sample`."""
        segments = self._segments
        if plan is not None:
            segments = [(segment_key(name), *span) for name, spans in plan.ranges.items() for span in spans]
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
