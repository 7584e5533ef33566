"""Lock-free reads of a stream's segments while others append to them, and freeing of their disk space."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from streamvault.streamstore.errors import InvalidName, SegmentTruncated, StreamStoreError
from streamvault.streamstore.local.files import punch_hole
from streamvault.streamstore.local.folder import StreamFolder, check_live
from streamvault.streamstore.local.record import StreamRecord
from streamvault.streamstore.local.state import read_state
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamCut

_BLOCK = 1024 * 1024

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


def read_blocks(
    path: Path, start: int, end: int, first_readable: Callable[[], int], where: str
) -> Iterator[memoryview]:
    """The bytes ``[start, end)`` of a file, in blocks that are valid until the next one is asked for.

    Args:
        path: the segment's bytes.
        start: first offset.
        end: end offset; what lies below is acknowledged.
        first_readable: asks for the segment's start offset now. Truncation moves it before it takes bytes away, so what
            was read is good if it lies above the start offset afterwards.
        where: names the segment in messages.

    Raises:
        SegmentTruncated: the start offset has moved beyond what comes next.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        buffer = memoryview(bytearray(min(_BLOCK, end - start)))
        while start < end:
            got = os.preadv(handle, [buffer[: end - start]], start)
            readable = first_readable()
            if start < readable:
                raise SegmentTruncated(
                    f"the segment was truncated to offset {readable}", where=where, start_offset=readable
                )
            if got == 0:
                raise StreamStoreError(f"the segment's file ends at {start} instead of {end}", where=str(path))
            yield buffer[:got]
            start += got
    finally:
        os.close(handle)


def free_segments(folder: StreamFolder, record: StreamRecord) -> None:
    """Remove what the head has passed, and drafts that a kill left."""
    for path in folder.path.iterdir():
        if path.name.startswith(".") or _is_passed(path, record):
            path.unlink()
    for segment, offset in record.head.offsets.items():
        free_bytes(folder, segment, offset)


def _is_passed(path: Path, record: StreamRecord) -> bool:
    """Return whether a file belongs to a segment that the head has passed."""
    try:
        return path.suffix in {".data", ".state"} and SegmentId.parse(path.stem) not in record.live
    except InvalidName:
        return False


def free_bytes(folder: StreamFolder, segment: SegmentId, length: int) -> None:
    """Give the room of a segment's first bytes back to the disk."""
    path = folder.data(segment)
    if length > 0 and path.exists():
        with path.open("r+b", buffering=0) as file:
            punch_hole(file.fileno(), length)
