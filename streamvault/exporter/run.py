"""The run of one generation: tasks, proof, commit, sweep, and what is cleaned up after it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

from streamvault.common.errors import Problem
from streamvault.common.progress import Progress
from streamvault.common.version import TOOL
from streamvault.exporter.plan import record_end
from streamvault.layouts.archived_range import ArchivedRange, segment_digest
from streamvault.layouts.keys import GenerationSpan, Place, PlaceAddress
from streamvault.layouts.layout import Compression, Layout, LayoutName, open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.deleting import SweepTask, prove, remove_strays, tasks_of
from streamvault.manifests.history import Generation, by_segment
from streamvault.manifests.listing import Listing, work_spans
from streamvault.manifests.manifest import GapEntry, Manifest, PlannedSegment, SegmentEntry
from streamvault.manifests.options import ArchivingOptions
from streamvault.manifests.plan import (
    FinishedSpan,
    Plan,
    RangeEntry,
    current_plan,
    ended_plans,
    find_plan,
    find_rows,
    leave_row,
    remove_work,
)
from streamvault.manifests.spans import SegmentSpan, Span
from streamvault.objectstore.store import AccessDenied, ObjectStoreUnavailable
from streamvault.runner.opening import open_runner
from streamvault.runner.runner import Runner
from streamvault.sources.archive_comparison import StillHeld, check_gaps, held_below
from streamvault.sources.identity import check_same_stream, check_witness
from streamvault.sources.proof import SegmentChain, spans_to_run
from streamvault.sources.reader import LargeEventReader, NotEvents, RunReader, read_range
from streamvault.streamstore.errors import InvalidCut, NoSuchStream
from streamvault.streamstore.model import Range, SegmentId
from streamvault.streamstore.uri import StoreAddress


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the tasks of a plan write ranges, and how.

    Attributes:
        archive: address of the archive.
        span: the plan's generation.
        attempt: number of the plan, see `layouts.keys.work_folder`.
        layout: the plan's layout.
        compression: the plan's compression.
        window: maximum data buffered in memory (bytes).
    """

    archive: PlaceAddress
    span: GenerationSpan
    attempt: int
    layout: LayoutName
    compression: Compression
    window: int

    @classmethod
    def of(cls, archive: Archive, plan: Plan, attempt: int, window: int) -> Self:
        """Return the destination of a plan's ranges."""
        return cls(archive.address, plan.span, attempt, plan.layout, plan.compression, window)

    def probe(self, size: int) -> Self:
        """Return the same for tasks that write so many bytes, see `PlaceAddress.probe`."""
        return replace(self, archive=self.archive.probe(size))

    def open_layout(self) -> Layout:
        """Return the layout."""
        return open_layout(self.layout, self.compression)

    def leave_row(self, segment: SegmentId, row: FinishedSpan) -> FinishedSpan:
        """Write a row, create-only; return the one that is there, see `manifests.plan.leave_row`."""
        return leave_row(self.archive.open(), self.span, segment, row, attempt=self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTask(SegmentSpan):
    """Arguments of a task that moves one range: its span, and where it is written."""

    to: Destination


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of a task.

    Attributes:
        segment: the range's segment.
        row: the finished range; None if no event begins in the span, or the guess was wrong.
        read: what the task itself has read of the source. The row may be another one's, which was first.
    """

    segment: SegmentId
    row: FinishedSpan | None
    read: tuple[RangeEntry, ...] = ()


def export_range(task: ExportTask) -> Exported:
    """Move one range. Repeated and concurrent calls write the same objects.

    Raises:
        NotEvents: a range that begins at a known boundary does not consist of events.
        InvalidCut: the segment's end in this generation is inside an event.
    """
    place = task.to.archive.open_data()
    with task.source.lend() as source:
        row = read_range(source, task, lambda run: _write(place, task, run))
    if row is None:
        return Exported(task.segment, None)
    left = task.to.leave_row(task.segment, row)
    return Exported(task.segment, left, row.ranges)


def _write(place: Place, task: ExportTask, run: RunReader | LargeEventReader) -> RangeEntry:
    layout, window = task.to.open_layout(), task.to.window
    if isinstance(run, LargeEventReader):
        event = Range(task.segment, run.start, run.start + run.length)
        written = layout.write_large(place, event, run.data(), window)
    else:
        written = layout.write_run(place, task.segment, run.blocks(), window)
    return RangeEntry(start=run.start, end=run.end, events=run.count, digest=run.digest, **written._asdict())


def clean_up(archive: Archive, span: GenerationSpan, progress: Progress, *, strays: bool) -> None:
    """Delete the strays of a published generation, if there may be any, and the work files of its runs.

    Any later run may repeat it.
    """
    if strays:
        try:
            _sweep(archive, span)
        except AccessDenied:
            progress.warn(
                "deletion is not allowed; stray objects remain, which readers skip, until a login that may delete runs"
                f" 'streamvault check {archive.uri} --repair'"
            )
        except ObjectStoreUnavailable as error:
            progress.warn(f"stray objects could not be deleted; they are harmless: {error}")
    remove_work_files(archive, span, progress)


def clean_up_again(archive: Archive, span: GenerationSpan, progress: Progress) -> None:
    """Like `clean_up`, for a generation that an earlier run published: its plan remains if that run was interrupted."""
    if find_plan(archive.place, span) is not None:
        clean_up(archive, span, progress, strays=True)


def _sweep(archive: Archive, span: GenerationSpan) -> None:
    def sweep(listing: Listing) -> None:
        if span not in listing.spans:
            return  # merged or expired meanwhile, so the objects no longer follow its index
        archive.check_contiguous(listing)  # the bytes between its cuts are no other generation's
        published = archive.load_span(span)
        tasks = list(tasks_of([published], archive.address, lambda _: ()))
        tasks += _in_other_layouts(archive, published)
        with open_runner("inline[4]") as runner:
            for _ in runner.run(remove_strays, tasks):
                pass

    archive.stable(sweep)


def _in_other_layouts(archive: Archive, published: Generation) -> Iterator[SweepTask]:
    """Yield the tasks that sweep what plans that were given up have left in another layout.

    What begins between the generation's cuts is in its layout; no other generation is in force there, now or later,
    unless a conversion of several generations has been begun there.
    """
    manifest = published.manifest
    if overlapping_plans(archive, manifest.span):
        return
    _, attempt = current_plan(archive.place, manifest.span)
    plans = ended_plans(archive.place, manifest.span, attempt)
    for layout in {plan.layout for plan in plans} - {manifest.layout}:
        for entry in manifest.segments:
            if entry.start < entry.end:
                yield SweepTask(archive.address, layout, entry.id, entry.start, entry.end, ranges=())


def overlapping_plans(archive: Archive, span: GenerationSpan) -> list[GenerationSpan]:
    """Return the generations that overlap a published one and have a plan: one of the two is merged.

    Two conversions may have read the old archive before and after a compaction. The run of such a plan may yet publish
    objects between the same cuts, in any layout. A plan that is made after this look is dropped, because its run finds
    the generation published (`exporter.plan.settle`).
    """
    return [one for one in work_spans(archive.place) if one != span and one.overlaps(span)]


def remove_work_files(archive: Archive, span: GenerationSpan, progress: Progress) -> None:
    """Delete a published generation's plan and rows.

    If deletion is not allowed, or the server becomes unavailable, they remain, which is harmless: the generation is
    published, and a later run may delete them.
    """
    try:
        remove_work(archive.place, span)
    except AccessDenied:
        progress.warn(f"deletion is not allowed; the work files of generation {span.last} remain under _work/")
    except ObjectStoreUnavailable as error:
        progress.warn(f"the work files of generation {span.last} remain under _work/ for now: {error}")


BEGIN_ANEW = "Another run's plan or row says so, and is now abandoned. Run the same command again to start over."


@dataclass(frozen=True, slots=True)
class Published:
    """A published generation.

    Attributes:
        generation: the generation, or the one it has been merged into.
        moved_bytes: the bytes moved by this run.
        committed: time of the commit, before the cleanup, on the monotonic clock (seconds).
    """

    generation: Generation
    moved_bytes: int
    committed: float


class ExportRun:
    """Executes a plan until its generation is published.

    Args:
        archive: the archive.
        source: address of the stream's store, for tasks.
        plan: the generation's plan.
        attempt: number of the plan, see `layouts.keys.work_folder`.
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
            self._gaps.setdefault(gap.id, []).append(gap)
        self._segments = {segment.id: segment for segment in plan.segments}
        self._chains = {key: self._chain(key, segment) for key, segment in self._segments.items()}
        self._earlier: set[tuple[SegmentId, int]] = set()
        self._to = Destination.of(archive, plan, attempt, options.window)

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
        return Published(generation or self._archive.load(self._plan.generation), self._moved(), committed)

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
        self._to = self._to.probe(total - done)
        place, generation = self._archive.place, self._plan.span

        def decide(segment: SegmentId, row: FinishedSpan) -> FinishedSpan:
            return leave_row(place, generation, segment, row, attempt=self._attempt)

        for spans in spans_to_run(self._chains, decide):
            tasks = [self._task(segment, span) for segment, span in spans]
            for _, result in runner.run(export_range, tasks, progress):
                self._seen.update(one.of_segment(result.segment) for one in result.read)
                if result.row is not None:
                    progress.advance(result.row.events, result.row.bytes)
                    self._chains[result.segment].add(result.row)

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
            span=span,
            largest=self._options.largest_event,
            content=self._plan.content,
            to=self._to,
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
