"""Compression of chunks as sequences of zstd frames of 1 MiB each, so that parts can be read alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import accumulate

import zstandard

from streamvault.common.errors import Damaged, shortage
from streamvault.layouts.layout import StoredRange

FRAME_BYTES = 1024 * 1024
"""Raw bytes of a compressed frame."""

MAX_FRAME_BYTES = FRAME_BYTES + FRAME_BYTES // 128
"""Maximum size (bytes) of a frame: zstd stores incompressible data as is, with a few bytes of overhead."""

LEVEL = 3
_REPEATED_BYTE = 1  # the type of a block that is one byte, repeated

FED_BYTES = 1024
"""Compressed bytes of another run's object that are decompressed at once: to at most 32 MiB, whatever they are."""


class FrameWriter:
    """Compressor that buffers its output, and less than a frame of its input."""

    def __init__(self) -> None:
        # with checksums: a reader of a single event cannot check the range's digest
        self._squeeze = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress
        self._left = bytearray()
        self._done = bytearray()
        self._sizes: list[int] = []

    def extend(self, data: memoryview) -> None:
        """Append raw bytes."""
        self._left += data
        while len(self._left) >= FRAME_BYTES:
            self._add(FRAME_BYTES)

    def drain(self) -> bytearray:
        """Remove and return the complete frames; `finish` returns only those that follow."""
        done, self._done = self._done, bytearray()
        return done

    def finish(self) -> tuple[memoryview, tuple[int, ...]]:
        """Return the object, except for what was drained, and the size of each of its frames (bytes)."""
        if self._left:
            self._add(len(self._left))
        return memoryview(self._done), tuple(self._sizes)

    def _add(self, size: int) -> None:
        with memoryview(self._left)[:size] as raw:
            frame = self._squeeze(raw)
        del self._left[:size]
        self._done += frame
        self._sizes.append(len(frame))


def frame_span(stored: StoredRange, low: int, high: int) -> tuple[int, int, int]:
    """Return where the frames of the raw bytes ``[low, high)`` are.

    Returns:
        Their start and end in the object, and the raw offset of the first one.

    Raises:
        Damaged: the index has too few frames.
    """
    first, last = low // FRAME_BYTES, (high - 1) // FRAME_BYTES
    edges = [0, *accumulate(stored.frames)]
    if last + 1 >= len(edges):
        raise Damaged("the index of ranges has too few frames for a range", where=f"offset {stored.start + high}")
    return edges[first], edges[last + 1], first * FRAME_BYTES


def decompressed(data: memoryview, stored: StoredRange, span: tuple[int, int], where: str) -> bytes:
    """Decompress the frames that hold the raw bytes ``span`` of the range, and return all of their raw bytes.

    Raises:
        Damaged: they are not valid frames, or not those of the index.
    """
    low, high = span
    edge = min(-(-high // FRAME_BYTES) * FRAME_BYTES, stored.end - stored.start)
    left = edge - low // FRAME_BYTES * FRAME_BYTES
    raw: list[bytes] = []
    at, wrong = 0, "its frames differ from the index"
    try:
        for size in stored.frames[low // FRAME_BYTES : -(-high // FRAME_BYTES)]:
            raw.append(_decompressed(data[at : at + size]))
            at += size
            left -= len(raw[-1])
    except (zstandard.ZstdError, ValueError) as error:
        if short := shortage(error):
            raise short from None
        left, wrong = -1, str(error)
    if left or at != len(data):
        where = f"{where}, bytes {stored.start} to {stored.end} of the segment"
        raise Damaged(f"the object cannot be decompressed ({wrong})", where=where)
    return b"".join(raw)


def _decompressed(frame: memoryview) -> bytes:
    """Return the raw bytes of one frame; the buffer is as large as its header says, at most `FRAME_BYTES`."""
    if not 0 < zstandard.get_frame_parameters(frame).content_size <= FRAME_BYTES:
        raise ValueError(f"a frame does not declare 1 to {FRAME_BYTES} raw bytes")
    return zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)


def _frames(data: memoryview) -> Iterator[tuple[bytes, int]]:
    """Yield each frame's raw bytes and its compressed size (bytes)."""
    while data:
        size = _frame_bytes(data)
        yield _decompressed(data[:size]), size
        data = data[size:]


def _frame_bytes(data: memoryview) -> int:
    """Return the compressed size of the first frame: header, blocks and checksum (RFC 8878, 3.1.1)."""
    at, is_last = zstandard.frame_header_size(data), False
    while not is_last:
        head = int.from_bytes(data[at : at + 3], "little")
        is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == _REPEATED_BYTE else size)
        if at > len(data):
            raise ValueError("a frame is truncated")
    return at + (4 if zstandard.get_frame_parameters(data).has_checksum else 0)


def sizes_of_same(found: memoryview, wanted: memoryview) -> tuple[int, ...] | None:
    """Return the sizes of an object's frames if it has the same raw bytes as another; None otherwise.

    Another release of zstd may compress the same bytes differently.
    """
    sizes: list[int] = []
    try:
        for (theirs, size), (ours, _) in zip(_frames(found), _frames(wanted), strict=True):
            if theirs != ours:
                return None
            sizes.append(size)
    except (zstandard.ZstdError, ValueError) as error:
        if short := shortage(error):
            raise short from None
        return None
    return tuple(sizes)


def sizes_if(parts: Iterable[bytes | memoryview], digest: bytes) -> tuple[int, ...] | None:
    """Return the sizes of an object's frames if its raw bytes have the digest (SHA-256); None otherwise.

    Like `sizes_of_same`, for an object that is read in parts and not buffered.
    """
    found, sizes, size, raw, is_last = hashlib.sha256(), list[int](), 0, 0, False
    frame = zstandard.ZstdDecompressor().decompressobj()
    try:
        for fed in _fed(parts):
            left = fed
            while left:
                if is_last:
                    return None
                data = frame.decompress(left)
                found.update(data)
                raw += len(data)
                rest = frame.unused_data
                size += len(left) - len(rest)
                left = rest
                if raw > FRAME_BYTES:
                    return None
                if frame.eof:
                    sizes.append(size)
                    is_last = raw < FRAME_BYTES  # an event is found by its offset, so all others are whole
                    size = raw = 0
                    frame = zstandard.ZstdDecompressor().decompressobj()
    except zstandard.ZstdError as error:
        if short := shortage(error):
            raise short from None
        return None
    return tuple(sizes) if not size and found.digest() == digest else None


def _fed(parts: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Split the parts into small pieces, which bounds the size of what they decompress to."""
    for part in parts:
        for low in range(0, len(part), FED_BYTES):
            yield bytes(part[low : low + FED_BYTES])
