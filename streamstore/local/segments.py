"""Lock-free reads of a stream's segments, and freeing of their disk space."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from streamstore.local.files import punch_hole
from streamstore.local.folder import StreamFolder, check_live
from streamstore.local.paths import segment_of
from streamstore.local.record import StreamRecord
from streamstore.local.state import read_state
from streamstore.model import SegmentId, SegmentInfo, StreamCut

__all__ = ["free_bytes", "free_segments", "info_of", "settled", "tail_of"]

_Seen = TypeVar("_Seen")


def settled(folder: StreamFolder, read: Callable[[StreamRecord], _Seen]) -> _Seen:
    """Read a stream's files without its lock; retry if the stream was changed or deleted in the meantime."""
    while True:
        record = folder.record()
        seen = read(record)
        if folder.revision() == record.revision:
            return seen


def info_of(folder: StreamFolder, record: StreamRecord, segment: SegmentId) -> SegmentInfo:
    """Return a segment's current state.

    Raises:
        NoSuchSegment: it never was, or the head has passed it.
    """
    check_live(record, segment)
    state = read_state(folder.state(segment))
    start = max(state.start, record.head.offsets.get(segment, 0))
    return SegmentInfo(segment, start, state.write, sealed=not record.is_open(segment))


def tail_of(folder: StreamFolder, record: StreamRecord) -> StreamCut:
    """The ends of the current epoch's segments."""
    return StreamCut(record.stream, {s: read_state(folder.state(s)).write for s in record.current.segments})


def free_segments(folder: StreamFolder, record: StreamRecord) -> None:
    """Remove what the head has passed, and drafts that a kill left."""
    for path in folder.path.iterdir():
        segment = segment_of(path)
        if path.name.startswith(".") or (segment is not None and segment not in record.live):
            path.unlink()
    for segment, offset in record.head.offsets.items():
        free_bytes(folder, segment, offset)


def free_bytes(folder: StreamFolder, segment: SegmentId, length: int) -> None:
    """Give the room of a segment's first bytes back to the disk."""
    path = folder.data(segment)
    if length > 0 and path.exists():
        with path.open("r+b", buffering=0) as file:
            punch_hole(file.fileno(), length)
