"""A chunk's bytes as a row of zstd frames of a mebibyte each, so that a part of it can be read alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import zstandard

from objectstore.layouts.extent import Extent
from problems import Damaged

__all__ = ["FRAME_BYTES", "FrameWriter", "decompressed", "frame_span", "sizes_of_same"]

FRAME_BYTES = 1024 * 1024
"""Raw bytes of a compressed frame."""

LEVEL = 3


class FrameWriter:
    """Compresses bytes as they come; holds what is compressed, and less than a frame that is not."""

    def __init__(self) -> None:
        # with checksums: who reads a single event cannot compare a range's digest
        self._squeeze = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress
        self._left = bytearray()
        self._done = bytearray()
        self._sizes: list[int] = []

    def extend(self, data: memoryview) -> None:
        """Take more bytes."""
        self._left += data
        while len(self._left) >= FRAME_BYTES:
            self._add(FRAME_BYTES)

    def finish(self) -> tuple[memoryview, tuple[int, ...]]:
        """The whole object, and how many bytes each of its frames has."""
        if self._left:
            self._add(len(self._left))
        return memoryview(self._done), tuple(self._sizes)

    def _add(self, size: int) -> None:
        with memoryview(self._left)[:size] as raw:
            frame = self._squeeze(raw)
        del self._left[:size]
        self._done += frame
        self._sizes.append(len(frame))


def frame_span(extent: Extent, low: int, high: int) -> tuple[int, int, int]:
    """Where in the object the frames of the raw bytes ``[low, high)`` begin and end, and the first raw byte of them."""
    first, last = low // FRAME_BYTES, (high - 1) // FRAME_BYTES
    edges = [0, *accumulate(extent.frames)]
    if last + 1 >= len(edges):
        raise Damaged("the index of ranges has too few frames for a range", where=f"offset {extent.start + high}")
    return edges[first], edges[last + 1], first * FRAME_BYTES


def decompressed(data: memoryview, extent: Extent, span: tuple[int, int], where: str) -> bytes:
    """The raw bytes of the whole frames that hold the raw bytes ``span`` of the range."""
    low, high = span
    edge = min(-(-high // FRAME_BYTES) * FRAME_BYTES, extent.end - extent.start)
    size = edge - low // FRAME_BYTES * FRAME_BYTES
    sizes = extent.frames[low // FRAME_BYTES : -(-high // FRAME_BYTES)]
    wrong = "its frames are not those of the index"
    try:
        frames = list(_frames(data))
    except (zstandard.ZstdError, ValueError) as error:
        frames, wrong = [], str(error)
    raw = b"".join(frame for frame, _ in frames)
    if len(raw) != size or tuple(stored for _, stored in frames) != sizes:
        where = f"{where}, of the bytes {extent.start} to {extent.end}"
        raise Damaged(f"the object cannot be decompressed ({wrong})", where=where)
    return raw


def _frames(data: bytes | memoryview) -> Iterator[tuple[bytes, int]]:
    """Each frame's raw bytes, and how many compressed bytes it has."""
    left = data
    while left:
        if not 0 < zstandard.get_frame_parameters(left).content_size <= FRAME_BYTES:
            raise ValueError(f"a frame does not say that it holds {FRAME_BYTES} bytes at most")
        squeezed = zstandard.ZstdDecompressor().decompressobj()
        raw = squeezed.decompress(left)
        if not squeezed.eof:
            raise ValueError("a frame is cut short")
        rest = squeezed.unused_data
        yield raw, len(left) - len(rest)
        left = rest


def sizes_of_same(found: bytes, wanted: memoryview) -> tuple[int, ...] | None:
    """The sizes of an object's frames if it holds the same as another; None if it does not.

    Another release of zstd may have made other frames of the same bytes.
    """
    sizes: list[int] = []
    try:
        for (theirs, size), (ours, _) in zip(_frames(found), _frames(wanted), strict=True):
            if theirs != ours:
                return None
            sizes.append(size)
    except (zstandard.ZstdError, ValueError):
        return None
    return tuple(sizes)
