"""The run of one generation: tasks, proof, sweep, commit. What earlier runs finished is not moved again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cutting.chain import SegmentChain, prove_all
from cutting.ranges import NotEvents
from cutting.spans import Span
from exporter.sweep import SweepTask, sweep, sweep_tasks
from exporter.task import ExportTask, export_range
from exporter.tidy import tidy_up
from manifests.archive import Archive
from manifests.model import GapEntry, Manifest, SegmentEntry, segment_key
from manifests.plan import Plan, PlannedSegment, remove_work
from manifests.range_row import RangeRow, segment_digest
from manifests.rows import FinishedRange, Piece, find_rows
from objectstore.layouts import open_layout
from objectstore.uri import RootAddress
from sparkrun.opening import open_runner
from sparkrun.progress import Progress
from sparkrun.runner import Runner
from streamstore.errors import InvalidCut
from streamstore.model import SegmentId
from streamstore.uri import StoreAddress

__all__ = ["ExportRun", "Published"]

FEW_OBJECTS = 10_000
"""So many objects are listed sooner here than tasks for it are started elsewhere."""


@dataclass(frozen=True, slots=True)
class Published:
    """A generation that is there now.

    Attributes:
        manifest: its manifest. ranges: how many ranges it has.
        moved_bytes: what this run moved of it.
        first: False if another run published it before this one.
        committed: when that was, on the monotonic clock (seconds); what follows is tidying up.
    """

    manifest: Manifest
    ranges: int
    moved_bytes: int
    first: bool
    committed: float


class ExportRun:
    """Works on one plan until its generation is published.

    Args:
        archive: where to. root: the same root, for tasks. source: the stream's store, for tasks.
        plan: of the generation.
        tool: name and version to note in the manifest.
        window: bytes that a task may hold of what is on its way.
        storage_class: S3 storage class of the data's objects; empty for the bucket's own.
    """

    def __init__(
        self,
        archive: Archive,
        root: RootAddress,
        source: StoreAddress,
        plan: Plan,
        *,
        tool: str,
        window: int,
        storage_class: str = "",
    ) -> None:
        self._archive = archive
        self._root = root
        self._source = source
        self._plan = plan
        self._tool = tool
        self._window = window
        self._storage_class = storage_class
        self._gaps: dict[SegmentId, list[GapEntry]] = {}
        for gap in plan.gaps:
            self._gaps.setdefault(segment_key(gap.segment), []).append(gap)
        self._segments = {segment_key(segment.name): segment for segment in plan.segments}
        self._chains = {key: self._chain(key, segment) for key, segment in self._segments.items()}
        self._moved = 0

    def _chain(self, key: SegmentId, segment: PlannedSegment) -> SegmentChain:
        first = max([segment.start, *(gap.end for gap in self._gaps.get(key, ()))])
        return SegmentChain(first, segment.end, self._plan.range_size)

    def run(self, runner: Runner, progress: Progress) -> Published:
        """Move what is missing, prove it, publish it, tidy up.

        Raises:
            NotEvents, InvalidCut: this plan can never be finished (its cuts lie inside events); it is given up.
        """
        try:
            self._move(runner, progress)
        except (NotEvents, InvalidCut):
            self._give_up()
            raise
        self._sweep(runner, progress)
        manifest, rows = self._manifest()
        first = self._archive.commit(manifest, rows)
        committed = time.monotonic()
        tidy_up(self._archive, self._plan.generation, progress)
        progress.end()
        return Published(manifest, len(rows), self._moved, first, committed)

    def _give_up(self) -> None:
        """Remove what runs of this plan have written, the plan last: the next run makes another one."""
        store, prefix, layout = self._archive.store, self._archive.prefix, open_layout(self._plan.layout)
        for segment, planned in self._segments.items():
            layout.remove_all(store, prefix, segment.epoch, segment.number, planned.start, planned.end)
        remove_work(store, prefix, self._plan.generation)

    def _move(self, runner: Runner, progress: Progress) -> None:
        """Move ranges until they are proved to lead from each segment's start to its end."""
        done = self._take_up()
        total = sum(chain.end - chain.start for chain in self._chains.values())
        progress.begin("exporting", total, done)

        def run(spans: Sequence[tuple[SegmentId, Span]]) -> Iterator[tuple[SegmentId, FinishedRange | None]]:
            for _, result in runner.run(export_range, [self._task(segment, span) for segment, span in spans]):
                if result.row is not None:
                    self._moved += result.row.bytes
                    progress.advance(result.row.events, result.row.bytes)
                yield result.segment, result.row

        prove_all(self._chains, run)

    def _take_up(self) -> int:
        """Read the rows that earlier runs left; returns how many bytes they stand for."""
        done = 0
        for segment, row in find_rows(self._archive.store, self._archive.prefix, self._plan.generation):
            if segment in self._chains:
                self._chains[segment].add(row)
                done += row.bytes
        return done

    def _task(self, segment: SegmentId, span: Span) -> ExportTask:
        return ExportTask(
            source=self._source,
            stream=self._archive.stream,
            segment=segment,
            segment_end=self._segments[segment].end,
            root=self._root,
            prefix=self._archive.prefix,
            generation=self._plan.generation,
            layout=self._plan.layout,
            compression=self._plan.compression,
            window=self._window,
            span=span,
            storage_class=self._storage_class,
        )

    def _sweep(self, runner: Runner, progress: Progress) -> None:
        """Before anything is published: every key is there, and none that a wrong guess left."""
        tasks = [task for segment in self._chains for task in sweep_tasks(self._whole_sweep(segment))]
        progress.begin("proving", sum(task.end - task.start for task in tasks))
        pieces = (piece for task in tasks for piece in task.pieces)
        objects = sum(piece.events if self._plan.layout == "events" else 1 for piece in pieces)
        with open_runner("inline[4]") as here:
            for index, _ in (here if objects <= FEW_OBJECTS else runner).run(sweep, tasks):
                progress.advance(0, tasks[index].end - tasks[index].start)

    def _whole_sweep(self, segment: SegmentId) -> SweepTask:
        return SweepTask(
            root=self._root,
            prefix=self._archive.prefix,
            layout=self._plan.layout,
            segment=segment,
            start=self._segments[segment].start,
            end=self._segments[segment].end,
            pieces=tuple(self._chains[segment].pieces()),
        )

    def _manifest(self) -> tuple[Manifest, list[RangeRow]]:
        entries, gaps, rows = [], [], []
        for segment, chain in self._chains.items():
            planned = self._segments[segment]
            held = [_row(segment, piece) for piece in chain.pieces()]
            entries.append(_entry(planned, held))
            gaps += self._gaps.get(segment, [])
            gaps += [
                GapEntry(segment=planned.name, start=gap.start, end=gap.end, reason=gap.reason) for gap in chain.gaps()
            ]
            rows += held
        return self._plan.manifest(entries, gaps, self._tool), rows


def _row(segment: SegmentId, piece: Piece) -> RangeRow:
    return RangeRow(segment, piece.start, piece.end, piece.events, piece.digest, piece.frames)


def _entry(planned: PlannedSegment, held: Iterable[RangeRow]) -> SegmentEntry:
    rows = list(held)
    return SegmentEntry(
        name=planned.name,
        start=planned.start,
        end=planned.end,
        sealed=planned.sealed,
        events=sum(row.events for row in rows),
        bytes=sum(row.end - row.start for row in rows),
        digest=segment_digest(row.digest for row in rows),
    )
