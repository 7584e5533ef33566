"""Filling one segment of the target from the archive: one task, one appender, blocks at known offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from objectstore.layouts import open_layout
from objectstore.uri import RootAddress
from problems import Conflict
from streamstore.errors import OffsetConflict, SegmentSealed
from streamstore.framing import MAX_BLOCK_BYTES, filler
from streamstore.model import SegmentId, StreamName
from streamstore.store import SegmentAppender, StreamStore
from streamstore.uri import StoreAddress

__all__ = ["FillTask", "Filled", "Stretch", "fill_segment"]

TRUNCATE_EVERY = 64 * 1024 * 1024
"""Filler below a start offset is dropped after this many bytes, so that it never piles up."""

FOREIGN_APPENDS = 5
"""How often an append may find the segment longer than expected before the import gives up.

A block of a killed run can still arrive while the next run starts; it holds the same bytes, so the task goes on behind
it.
"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a target segment and where its bytes come from.

    Attributes:
        start, end: offsets in the target (bytes), both event boundaries.
        origin: "range": (part of) an archived range. "filler": zeros framed as events, dropped or standing for a gap.
        source: offset in the archived segment that `start` corresponds to (ranges only).
        layout: of the archived range.
    """

    start: int
    end: int
    origin: Literal["range", "filler"]
    source: int = 0
    layout: str = ""


@dataclass(frozen=True, slots=True)
class FillTask:
    """All that a task needs to fill one segment.

    Attributes:
        target, stream: where to. segment: which segment; the same id in archive and target.
        root, prefix: the archive.
        head: the segment's start offset in the target; what lies below is filler and is dropped at once.
        stretches: from offset 0 to the segment's end, without holes.
    """

    target: StoreAddress
    stream: StreamName
    segment: SegmentId
    root: RootAddress
    prefix: str
    head: int
    stretches: tuple[Stretch, ...]

    @property
    def end(self) -> int:
        """The offset the segment has to reach (bytes)."""
        return self.stretches[-1].end if self.stretches else 0


@dataclass(frozen=True, slots=True)
class Filled:
    """A segment that holds all its bytes: which, and how many bytes this run appended."""

    segment: SegmentId
    appended: int


def fill_segment(task: FillTask) -> Filled:
    """Append what the segment does not hold yet; what it holds is not looked at here (`importer.verify` does).

    Raises:
        Conflict: the segment holds more than the archive, or somebody else appends to it.
        Damaged: an object is missing or has the wrong size.
    """
    with task.target.open() as store:
        for _ in range(FOREIGN_APPENDS):
            try:
                return Filled(task.segment, _append_rest(store, task))
            except (OffsetConflict, SegmentSealed):
                continue
    raise Conflict("somebody else appends to the segment", where=task.segment.in_stream(task.stream))


def _append_rest(store: StreamStore, task: FillTask) -> int:
    with store.appender(task.stream, task.segment) as appender:
        begun = appender.offset
        if begun > task.end:
            raise Conflict(
                f"the segment holds {begun} bytes, the archive only {task.end}",
                where=task.segment.in_stream(task.stream),
            )
        dropped = begun
        for stretch in task.stretches:
            start = max(stretch.start, appender.offset)
            for block in _blocks(task, stretch, start):
                appender.append(block)
                if appender.offset <= task.head and appender.offset - dropped >= TRUNCATE_EVERY:
                    dropped = _drop(store, task, appender)
            if stretch.end == task.head > dropped:
                dropped = _drop(store, task, appender)
        return appender.flush() - begun


def _drop(store: StreamStore, task: FillTask, appender: SegmentAppender) -> int:
    offset = appender.flush()
    store.truncate_segment(task.stream, task.segment, offset)
    return offset


def _blocks(task: FillTask, stretch: Stretch, start: int) -> Iterator[bytes | memoryview]:
    """The stretch's bytes from ``start`` on, as blocks that can be appended."""
    if start >= stretch.end:
        return
    if stretch.origin == "filler":
        yield from filler(stretch.end - start)
        return
    shift = stretch.source - stretch.start
    at, end = start + shift, stretch.end + shift
    layout, objects = open_layout(stretch.layout), task.root.open()
    place = (objects, task.prefix, task.segment.epoch, task.segment.number)
    first = at
    if start > stretch.start:
        # An earlier run may have been stopped between two blocks of one large event.
        listed = layout.list_range(*place, stretch.source, end)
        first = next((stored.offset for stored in listed if stored.offset + stored.length > at), at)
    for block in layout.read_range(*place, first, end):
        view = memoryview(block)[max(at - first, 0) :]
        first += len(block)
        for piece in range(0, len(view), MAX_BLOCK_BYTES):
            yield view[piece : piece + MAX_BLOCK_BYTES]
