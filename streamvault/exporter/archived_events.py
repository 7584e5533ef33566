"""Rewrites archived ranges as other ones, whose objects may be of another layout.

Tasks read the events, verify their digests, write them again, and leave rows, which no later run needs to rewrite.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from streamvault.common.neighbours import holes
from streamvault.common.progress import Progress
from streamvault.exporter.run import Destination
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import Place, PlaceAddress
from streamvault.layouts.layout import Layout, LayoutName
from streamvault.manifests.damage import ArchivedPart, damaged_range, read_verified
from streamvault.manifests.plan import FinishedSpan, RangeEntry
from streamvault.runner.runner import Runner
from streamvault.streamstore.events import EventBlock, open_splitter
from streamvault.streamstore.model import SegmentId


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Arguments of a task that writes archived ranges as one.

    Attributes:
        source: the archive that has them.
        stored: their layout.
        to: where the new range is written, which may be the same archive.
        rows: the ranges, which are contiguous.
        start: offset of the first byte to write.
        end: offset after the last byte to write.
    """

    source: PlaceAddress
    stored: LayoutName
    to: Destination
    rows: tuple[ArchivedRange, ...]
    start: int
    end: int

    @property
    def size(self) -> int:
        """Bytes to write."""
        return self.end - self.start

    @property
    def segment(self) -> SegmentId:
        """The segment's id."""
        return self.rows[0].segment


def rewrite_ranges(
    what: str,
    tasks: Iterable[RewriteTask],
    done: dict[SegmentId, list[RangeEntry]],
    runner_of: Callable[[], Runner],
    progress: Progress,
) -> int:
    """Write what earlier runs have not written; return how many segment bytes that was.

    Args:
        what: what is done, for the progress.
        tasks: the tasks of a run that has to write everything.
        done: what earlier runs have written of it, also with other bounds; what this one writes is added.
        runner_of: returns the runner; called only if something is missing.
        progress: receives the progress.

    Raises:
        Damaged: a range's bytes differ from the manifest.
    """
    whole = list(tasks)
    total = sum(task.size for task in whole)
    finished = sum(one.end - one.start for held in done.values() for one in held)
    progress.begin(what, total, finished)
    moved = 0
    if finished < total:
        to = whole[0].to.probe(total - finished)
        whole = [replace(task, to=to) for task in whole]
    while missing := list(_missing(whole, done)):
        for index, written in runner_of().run(rewrite_range, missing, progress=progress):
            done.setdefault(missing[index].segment, []).append(written)
            moved += written.end - written.start
            progress.advance(written.events, written.end - written.start)
    return moved


def _missing(tasks: Iterable[RewriteTask], done: dict[SegmentId, list[RangeEntry]]) -> Iterator[RewriteTask]:
    parts = {segment: sorted((one.start, one.end) for one in held) for segment, held in done.items()}
    for task in tasks:
        for start, end in holes(task.start, task.end, parts.get(task.segment, ())):
            yield replace(task, start=start, end=end)


def rewrite_range(task: RewriteTask) -> RangeEntry:
    """Write ranges as one. Repeated and concurrent calls write the same objects.

    Raises:
        Damaged: the bytes of a range differ from the manifest; of joined ones, nothing is written.
    """
    first, place, layout = task.rows[0], task.to.archive.open_data(), task.to.open_layout()
    if first.is_large:
        data = read_verified(ArchivedPart.all_of(task.source, task.stored, first), task.to.window)
        large = layout.write_large(place, first, data, task.to.window)
        written = RangeEntry(
            start=task.start, end=task.end, events=first.events, digest=first.digest, **large._asdict()
        )
    else:
        if layout.one_object_per_event:
            for _ in _events(task):
                pass  # verify before writing: objects with wrong bytes would block the right ones
        written = _write(task, place, layout)
    row = FinishedSpan(start=task.start, end=task.end, ranges=(written,))
    left = task.to.leave_row(task.segment, row).ranges[0]
    # another run may have written a part of an archive that was compacted since; joined ranges have bounds of their own
    return left if left.end == task.end or len(task.rows) == 1 else written


def _events(task: RewriteTask) -> Iterator[EventBlock]:
    for row in task.rows:
        part = ArchivedPart(task.source, task.stored, row, max(task.start, row.start), min(task.end, row.end))
        yield from verified_events(part, task.to.window)


def verified_events(part: ArchivedPart, window: int) -> Iterator[EventBlock]:
    """Yield a part's events, or its bytes.

    The whole range is read, since only it has a digest, which is verified after the last block.

    Args:
        part: the part.
        window: see `read_verified`.

    Raises:
        Damaged: as for `read_verified`, or the number of events differs from the manifest.
    """
    row = part.row
    bounds = [row.start, *sorted({part.start, part.end} - {row.start, row.end}), row.end]
    splitters = [open_splitter(row.content, offset, str(row.segment)) for offset in bounds[:-1]]
    count, at = 0, row.start
    for block in read_verified(part, window):
        view = memoryview(block)
        for splitter, low, high in zip(splitters, bounds, bounds[1:], strict=False):
            for events in splitter.feed(view[max(low - at, 0) : max(high - at, 0)]):
                count += events.count
                if part.start <= low < part.end:
                    yield events
        at += len(view)
    for splitter in splitters:
        splitter.finish()
    if count != row.events:
        raise damaged_range(part)


def _write(task: RewriteTask, place: Place, layout: Layout) -> RangeEntry:
    digest, count = hashlib.sha256(), 0

    def counted() -> Iterator[EventBlock]:
        nonlocal count
        for block in _events(task):
            digest.update(block.data)
            count += block.count
            yield block

    written = layout.write_run(place, task.segment, counted(), task.to.window)
    return RangeEntry(start=task.start, end=task.end, events=count, digest=digest.hexdigest(), **written._asdict())
