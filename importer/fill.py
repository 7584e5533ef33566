"""Filling one segment of the target from the archive: one task, one appender, blocks at known offsets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from common.errors import Conflict, Damaged
from layouts.layout import open_reader
from layouts.place import Place
from manifests.range_row import RangeRow
from objectstore.uri import RootAddress
from streamstore.errors import OffsetConflict, SegmentSealed
from streamstore.framing import MAX_BLOCK_BYTES, filler
from streamstore.model import SegmentId, StreamName
from streamstore.store import SegmentAppender, StreamStore
from streamstore.uri import StoreAddress

__all__ = ["FillTask", "Filled", "Stretch", "damaged_range", "fill_segment"]

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
        origin: (a part of) this archived range; None for filler: zeros framed as events, dropped or standing for a gap.
        source: offset in the archived segment that `start` corresponds to (ranges only).
        layout: of the archived range.
    """

    start: int
    end: int
    origin: RangeRow | None = None
    source: int = 0
    layout: str = ""

    @property
    def is_whole_range(self) -> bool:
        """Whether it is all of an archived range, so that its digest is known."""
        return self.origin is not None and self.end - self.start == self.origin.end - self.origin.start


@dataclass(frozen=True, slots=True)
class FillTask:
    """All that a task needs to fill one segment.

    Attributes:
        target, stream: where to. segment: which segment; the same id in archive and target.
        root, prefix: the archive.
        window: bytes to hold in memory at most, of what is on its way.
        head: the segment's start offset in the target; what lies below is filler and is dropped at once.
        stretches: from offset 0 to the segment's end, without holes.
    """

    target: StoreAddress
    stream: StreamName
    segment: SegmentId
    root: RootAddress
    prefix: str
    window: int
    head: int
    stretches: tuple[Stretch, ...]

    @property
    def end(self) -> int:
        """The offset the segment has to reach (bytes)."""
        return self.stretches[-1].end if self.stretches else 0


@dataclass(frozen=True, slots=True)
class Filled:
    """A segment that holds all its bytes.

    Attributes:
        segment: which. appended: how many archived bytes this run appended; filler is not counted.
        proved_from: of the archived ranges that begin at or after this offset of the target, this run has appended
            every byte, and the bytes that went in had the ranges' digests.
    """

    segment: SegmentId
    appended: int
    archived: int
    proved_from: int


def fill_segment(task: FillTask) -> Filled:
    """Append what the segment does not hold yet; what it holds is not looked at here (`importer.verify` does).

    Raises:
        Conflict: the segment holds more than the archive, or somebody else appends to it.
        Damaged: an object is missing or has the wrong size.
    """
    with task.target.lend() as store:
        for _ in range(FOREIGN_APPENDS):
            try:
                return _append_rest(store, task)
            except (OffsetConflict, SegmentSealed):
                continue
    raise Conflict("somebody else appends to the segment", where=task.segment.in_stream(task.stream))


def _append_rest(store: StreamStore, task: FillTask) -> Filled:
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
            digest = hashlib.sha256() if stretch.is_whole_range and start == stretch.start else None
            for block in _blocks(task, stretch, start):
                appender.append(block)
                if digest is not None:
                    digest.update(block)
                if appender.offset <= task.head and appender.offset - dropped >= TRUNCATE_EVERY:
                    dropped = _drop(store, task, appender)
            if digest is not None and stretch.origin is not None and digest.hexdigest() != stretch.origin.digest:
                raise damaged_range(task.prefix, stretch.origin, task.stream)
            if stretch.end == task.head > dropped:
                dropped = _drop(store, task, appender)
        archived = (s.end - max(s.start, begun) for s in task.stretches if s.origin is not None and s.end > begun)
        return Filled(task.segment, appender.flush() - begun, sum(archived), begun)


def _drop(store: StreamStore, task: FillTask, appender: SegmentAppender) -> int:
    offset = appender.flush()
    store.truncate_segment(task.stream, task.segment, offset)
    return offset


def _blocks(task: FillTask, stretch: Stretch, start: int) -> Iterator[bytes | memoryview]:
    """The stretch's bytes from ``start`` on, as blocks that can be appended."""
    if start >= stretch.end:
        return
    if stretch.origin is None:
        yield from filler(stretch.end - start)
        return
    shift = stretch.source - stretch.start
    blocks = open_reader(stretch.layout).read_range(
        Place(task.root.open(), task.prefix), stretch.origin.extent, start + shift, stretch.end + shift, task.window
    )
    for block in blocks:
        view = memoryview(block)
        for piece in range(0, len(view), MAX_BLOCK_BYTES):
            yield view[piece : piece + MAX_BLOCK_BYTES]


def damaged_range(prefix: str, row: RangeRow, target: StreamName) -> Damaged:
    """What to say of a range whose bytes are not what its manifest says."""
    return Damaged(
        "the archive's bytes are not what its manifest says",
        where=f"{prefix}{row.segment} bytes {row.start} to {row.end}",
        todo=f"Restore the archive from a copy, delete {target} and import again.",
    )
