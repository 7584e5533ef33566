"""Reading a segment while others append to it and truncate it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from streamstore.errors import SegmentTruncated, StreamStoreError

__all__ = ["read_blocks"]

_BLOCK = 1024 * 1024


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
