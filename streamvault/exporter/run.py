"""The run of one generation: tasks, proof, commit, sweep. Ranges finished by earlier runs are not moved again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from streamvault.common.errors import Problem
from streamvault.common.progress import Progress
from streamvault.common.version import TOOL
from streamvault.exporter.cleanup import clean_up
from streamvault.exporter.plan import record_end
from streamvault.exporter.task import ExportTask, export_range
from streamvault.manifests.archive.agreement import by_segment
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.history import Generation
from streamvault.manifests.archive.plan import Plan
from streamvault.manifests.archive.rows import FinishedSpan, find_rows, leave_row
from streamvault.manifests.archive.sweeping import prove
from streamvault.manifests.format.archived_range import ArchivedRange, segment_digest
from streamvault.manifests.format.entries import GapEntry, PlannedSegment, SegmentEntry
from streamvault.manifests.format.field_types import segment_key
from streamvault.manifests.format.manifest import Manifest
from streamvault.manifests.options import ArchivingOptions
from streamvault.objectstore.errors import ObjectStoreUnavailable
from streamvault.reading.comparing import StillHeld, check_gaps, held_below
from streamvault.reading.identity import check_same_stream, check_witness
from streamvault.reading.proof import SegmentChain, prove_all
from streamvault.reading.ranges import NotEvents
from streamvault.reading.spans import Span
from streamvault.sparkrun.runner import Runner
from streamvault.streamstore.errors import InvalidCut, NoSuchStream
from streamvault.streamstore.model import SegmentId
from streamvault.streamstore.uri import StoreAddress

BEGIN_ANEW = "Another run's plan or row says so. It is given up: run the same command again, which begins it anew."


@dataclass(frozen=True, slots=True)
class Published:
    """A published generation.

    Attributes:
        generation: the generation, or the one it has been merged into.
        moved_bytes: the bytes moved by this run.
        first: whether this run published it, not another one.
        committed: time of the commit, before the cleanup, on the monotonic clock (seconds).
    """

    generation: Generation
    moved_bytes: int
    first: bool
    committed: float


class ExportRun:
    """Executes a plan until its generation is published.

    Args:
        archive: the archive.
        source: address of the stream's store, for tasks.
        plan: the generation's plan.
        attempt: number of the plan, see `layouts.object_keys.work_folder`.
        options: how tasks archive; what the plan has, they take from it.
        seen: gets the ranges that this run itself reads from the source, with the digests of what it has read.
    """

    def __init__(
        self,
        archive: Archive,
        source: StoreAddress,
        plan: Plan,
        attempt: int,
        options: ArchivingOptions,
        seen: set[ArchivedRange],
    ) -> None:
        self._archive = archive
        self._source = source
        self._plan = plan
        self._attempt = attempt
        self._options = options
        self._seen = seen
        self._gaps: dict[SegmentId, list[GapEntry]] = {}
        for gap in plan.gaps:
            self._gaps.setdefault(segment_key(gap.segment), []).append(gap)
        self._segments = {segment_key(segment.name): segment for segment in plan.segments}
        self._chains = {key: self._chain(key, segment) for key, segment in self._segments.items()}
        self._earlier: set[tuple[SegmentId, int]] = set()
        self._target = archive.address

    def _chain(self, key: SegmentId, segment: PlannedSegment) -> SegmentChain:
        first = max([segment.start, *(gap.end for gap in self._gaps.get(key, ()))])
        return SegmentChain(first, segment.end, self._plan.range_size)

    def run(self, runner: Runner, progress: Progress) -> Published:
        """Move what is missing, prove it, publish it, clean up.

        No data object is deleted before the generation is published, and then only by its index. If another run
        publishes the generation first, that one counts.

        Raises:
            NotEvents, InvalidCut, StillHeld: the plan can never be finished (its cuts are inside events, or a gap of
                it is none); it is ended.
            Conflict: the stream is a different one by now, or the generation of another plan was published.
        """
        try:
            self._move(runner, progress)
            manifest, rows = self._manifest()
            self._check_source()
            strays = self._prove(Generation(manifest, by_segment(rows)), runner, progress)
            record_end(self._archive, self._plan, self._attempt)
            generation = self._archive.commit(manifest, rows)
        except Problem as problem:
            if self._published() is None:
                if isinstance(problem, (NotEvents, InvalidCut, StillHeld)):
                    record_end(self._archive, self._plan, self._attempt, str(problem))
                raise
            generation, strays = None, 0
        committed = time.monotonic()
        clean_up(self._archive, self._plan.span, progress, strays=bool(strays) or self._attempt > 1)
        progress.end()
        first = generation is not None
        return Published(
            generation or self._archive.load(self._plan.generation), self._moved(), first=first, committed=committed
        )

    def _moved(self) -> int:
        """The generation's bytes that no earlier run left. What was moved twice, or from a wrong guess, counts once."""
        rows = ((segment, row) for segment, chain in self._chains.items() for row in chain.rows())
        return sum(row.bytes for segment, row in rows if (segment, row.start) not in self._earlier)

    def _published(self) -> Manifest | None:
        """Return the generation's manifest if another run has published it.

        Raises:
            Conflict: it has expired, or another plan's was published.
        """
        with suppress(ObjectStoreUnavailable):  # then the earlier error is reported
            return self._archive.published(self._plan)
        return None

    def _check_source(self) -> None:
        """Check, after everything was read, that the source is still the planned stream, so as not to mix streams.

        Raises:
            Conflict: it is a different stream.
            NoSuchStream: it was deleted, and a part could no longer be read.
            StillHeld: it has what the plan, or a row of another run, calls a gap.
        """
        gaps = [gap for segment in self._chains for gap in self._gaps_of(segment)]
        has_gaps = any(True for chain in self._chains.values() for _ in chain.gaps())
        with self._source.lend() as store:
            seen = check_witness(store, self._plan)
            if seen and len(seen) == len(self._plan.witness) and not gaps:
                return
            try:
                described = store.describe(self._archive.stream)
            except NoSuchStream:
                if has_gaps:
                    raise
                return
            check_same_stream(described, store, self._plan)
            if gaps:
                held = held_below(described, store, self._plan.to)
                try:
                    check_gaps(described, store, held, {self._plan.generation: gaps}, self._archive.uri)
                except StillHeld as held_gap:
                    raise StillHeld(held_gap.what, where=held_gap.where, todo=BEGIN_ANEW) from None

    def _gaps_of(self, segment: SegmentId) -> Iterator[GapEntry]:
        """Yield the gaps of a segment: the plan's, and those of its rows."""
        yield from self._gaps.get(segment, ())
        for gap in self._chains[segment].gaps():
            yield GapEntry(segment=self._segments[segment].name, start=gap.start, end=gap.end, reason=gap.reason)

    def _move(self, runner: Runner, progress: Progress) -> None:
        """Move ranges until they are proved to be contiguous from each segment's start to its end."""
        done = self._read_rows()
        total = sum(chain.end - chain.start for chain in self._chains.values())
        progress.begin("exporting", total, done)
        self._target = self._archive.address.probe(total - done)
        place, generation = self._archive.place, self._plan.span

        def run(spans: Sequence[tuple[SegmentId, Span]]) -> Iterator[tuple[SegmentId, FinishedSpan | None]]:
            tasks = [self._task(segment, span) for segment, span in spans]
            for _, result in runner.run(export_range, tasks, progress):
                self._seen.update(one.of_segment(result.segment) for one in result.read)
                if result.row is not None:
                    progress.advance(result.row.events, result.row.bytes)
                yield result.segment, result.row

        def decide(segment: SegmentId, row: FinishedSpan) -> FinishedSpan:
            return leave_row(place, generation, segment, row, attempt=self._attempt)

        prove_all(self._chains, run, decide)

    def _read_rows(self) -> int:
        """Read the rows of earlier runs; return the number of bytes they cover."""
        done = 0
        for segment, row in find_rows(self._archive.place, self._plan.span, attempt=self._attempt):
            if segment in self._chains:
                self._chains[segment].add(row)
                self._earlier.add((segment, row.start))
                done += row.bytes
        return done

    def _task(self, segment: SegmentId, span: Span) -> ExportTask:
        return ExportTask(
            source=self._source,
            stream=self._archive.stream,
            segment=segment,
            segment_end=self._segments[segment].end,
            archive=self._target,
            generation=self._plan.generation,
            attempt=self._attempt,
            layout=self._plan.layout,
            compression=self._plan.compression,
            window=self._options.window,
            span=span,
            largest=self._options.largest_event,
            content=self._plan.content,
        )

    def _prove(self, generation: Generation, runner: Runner, progress: Progress) -> int:
        return prove(generation, self._archive.address, lambda: runner, progress)

    def _manifest(self) -> tuple[Manifest, list[ArchivedRange]]:
        entries, rows, gaps = [], [], list[GapEntry]()
        for segment, chain in self._chains.items():
            planned = self._segments[segment]
            held = [one.of_segment(segment) for one in chain.ranges()]
            entries.append(_entry(planned, held))
            gaps += self._gaps_of(segment)
            rows += held
        return self._plan.manifest(entries, gaps, TOOL), rows


def _entry(planned: PlannedSegment, rows: Sequence[ArchivedRange]) -> SegmentEntry:
    return SegmentEntry(
        name=planned.name,
        start=planned.start,
        end=planned.end,
        sealed=planned.sealed,
        events=sum(row.events for row in rows),
        bytes=sum(row.end - row.start for row in rows),
        digest=segment_digest(row.digest for row in rows),
    )
