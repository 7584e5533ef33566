"""The layout ``chunks``: one object per range, the segment's raw bytes.

Compressed, an object is a row of zstd frames of 1 MiB of the segment each, so that one event is got out of it by one
read of a frame or two, and ``zstd -d`` makes the raw bytes of the whole. The frames' sizes are kept in the index of
ranges.
"""

# ruff: noqa: PLR0917  (a stretch of a segment is six plain values: store, prefix, epoch, number, start, end)
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from struct import Struct

import zstandard

from objectstore.bulk import WINDOW_BYTES, get_parts, put_same
from objectstore.errors import AlreadyExists, NoSuchObject, WrongSize
from objectstore.keys import CHUNKS, HEADER_BYTES, chunk_key, chunks_after, chunks_folder, parse_chunk
from objectstore.layouts.chain import Finding, RangeCheck, Stored, check
from objectstore.layouts.extent import EventRun, Extent, Written
from objectstore.layouts.folders import SegmentFolders, delete_all
from objectstore.store import ObjectStore
from problems import Conflict, Damaged, Problem

__all__ = ["FRAME_BYTES", "ChunksLayout"]

FRAME_BYTES = 1024 * 1024
"""Raw bytes of a compressed frame."""

PART_BYTES = 4 * 1024 * 1024
"""Raw bytes that are got by one request, and handed on as one block."""

LEVEL = 3

_HEADER = Struct(">q")


class ChunksLayout(SegmentFolders):
    """See `objectstore.layouts.Layout`. Memory: one range when writing, the window when reading.

    Args:
        compress: whether to compress what is written.
    """

    name = "chunks"
    root = CHUNKS
    folder = staticmethod(chunks_folder)
    after = staticmethod(chunks_after)
    parse = staticmethod(parse_chunk)

    def __init__(self, *, compress: bool = False) -> None:
        self._compress = compress

    def write_run(
        self,
        store: ObjectStore,
        prefix: str,
        epoch: int,
        number: int,
        blocks: Iterable[EventRun],
        window_bytes: int = WINDOW_BYTES,  # noqa: ARG002  (a run is one object, so it is held whole)
    ) -> Written:
        """See `Layout.write_run`."""
        start, raw = -1, bytearray()
        for block in blocks:
            if start < 0:
                start = block.offset
            raw += block.data
        if not raw:
            return Written(0)
        key = prefix + chunk_key(epoch, number, start, len(raw))
        if not self._compress:
            put_same(store, key, memoryview(raw))
            return Written(1)
        frames = _compressed(raw)
        try:
            store.put(key, b"".join(frames))
        except AlreadyExists:
            return Written(1, _frames_of_same(store, key, raw))
        return Written(1, tuple(map(len, frames)))

    def read_range(
        self, store: ObjectStore, prefix: str, extent: Extent, start: int, end: int, window_bytes: int = WINDOW_BYTES
    ) -> Iterator[bytes | memoryview]:
        """See `Layout.read_range`."""
        if start >= end:
            return
        key = _key(prefix, extent)
        parts = _framed_parts(extent, start, end) if extent.frames else _raw_parts(extent, start, end)
        at = extent.start + (start - extent.start) // FRAME_BYTES * FRAME_BYTES if extent.frames else start
        try:
            for data in get_parts(store, key, parts, window_bytes=window_bytes):
                if extent.frames:
                    span = at - extent.start, min(at + PART_BYTES, end) - extent.start
                    raw = memoryview(_decompressed(data, extent, span, f"{store.uri}/{key}"))
                else:
                    raw = memoryview(data)
                low, high = max(start - at, 0), min(end - at, len(raw))
                yield raw[low:high]
                at += len(raw)
        except (NoSuchObject, WrongSize) as error:
            raise _damaged(error) from None

    def read_event(self, store: ObjectStore, prefix: str, extent: Extent, offset: int, length: int) -> bytes:
        """See `Layout.read_event`."""
        key, low = _key(prefix, extent), offset - extent.start
        begin, end, first = _frame_span(extent, low, low + length) if extent.frames else (low, low + length, low)
        try:
            data = store.get(key, begin, end)
        except (NoSuchObject, WrongSize) as error:
            raise _damaged(error) from None
        if extent.frames:
            raw = _decompressed(data, extent, (low, low + length), f"{store.uri}/{key}")
            data = raw[low - first : low - first + length]
        if _HEADER.unpack_from(data)[0] != length - HEADER_BYTES:
            raise WrongSize(f"no event of {length} bytes begins at {offset}", where=f"{store.uri}/{key}")
        return data

    def find_event(self, store: ObjectStore, prefix: str, extent: Extent, offset: int) -> tuple[int, int]:
        """See `Layout.find_event`. Reads the range up to the event."""
        at, tail = extent.start, b""
        blocks = self.read_range(store, prefix, extent, extent.start, extent.end, window_bytes=2 * PART_BYTES)
        for block in blocks:
            data = memoryview(tail + block) if tail else memoryview(block)
            position = 0
            while position + HEADER_BYTES <= len(data):
                length = HEADER_BYTES + _HEADER.unpack_from(data, position)[0]
                if length < HEADER_BYTES:
                    break
                if at + position <= offset < at + position + length:
                    return at + position, length
                if position + length > len(data):
                    break
                position += length
            at += position
            tail = bytes(data[position:])
        raise Damaged("no chain of events leads there", where=f"{store.uri}/{_key(prefix, extent)}, offset {offset}")

    def check_range(self, store: ObjectStore, prefix: str, extent: Extent) -> RangeCheck:
        """See `Layout.check_range`."""
        return check(self._steps(store, prefix, extent), event_each=False)

    def remove_extra(
        self, store: ObjectStore, prefix: str, epoch: int, number: int, ranges: Sequence[tuple[int, int]]
    ) -> int:
        """See `Layout.remove_extra`."""
        return delete_all(store, self._extra_keys(store, prefix, epoch, number, ranges))

    def _extra_keys(
        self, store: ObjectStore, prefix: str, epoch: int, number: int, ranges: Sequence[tuple[int, int]]
    ) -> Iterator[str]:
        wanted = {prefix + chunk_key(epoch, number, start, end - start) for start, end in ranges}
        if not wanted:
            return
        for entry in self.between(store, prefix, epoch, number, ranges[0][0], ranges[-1][1]):
            if entry.key in wanted:
                wanted.discard(entry.key)
            else:
                yield entry.key
        if wanted:
            raise Damaged("the range's object is missing", where=f"{store.uri}/{min(wanted)}")

    def _steps(self, store: ObjectStore, prefix: str, extent: Extent) -> Iterator[Stored | Finding]:
        key, length, found = _key(prefix, extent), extent.end - extent.start, False
        size = sum(extent.frames) or length
        for entry in self.between(store, prefix, extent.epoch, extent.number, extent.start, extent.end):
            if entry.key != key:
                what = "an object that is no range of the archive"
                yield Finding("extra", entry.key, extent.start, extent.end, what)
                continue
            found = True
            if entry.size == size:
                yield Stored(key, extent.start, length, size)
            else:
                what = f"the object has {entry.size} bytes instead of {size}"
                yield Finding("changed", key, extent.start, extent.end, what)
        if not found:
            what = f"no object holds the bytes {extent.start} to {extent.end} of the segment"
            yield Finding("missing", key, extent.start, extent.end, what)


def _key(prefix: str, extent: Extent) -> str:
    return prefix + chunk_key(extent.epoch, extent.number, extent.start, extent.end - extent.start)


def _raw_parts(extent: Extent, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where in the object the bytes lie, a request each."""
    for low in range(start - extent.start, end - extent.start, PART_BYTES):
        yield low, min(low + PART_BYTES, end - extent.start)


def _framed_parts(extent: Extent, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where in the object the frames lie that hold the bytes, a request for every few of them."""
    low = (start - extent.start) // FRAME_BYTES * FRAME_BYTES
    while low < end - extent.start:
        high = min(low + PART_BYTES, end - extent.start)
        begin, finish, _ = _frame_span(extent, low, high)
        yield begin, finish
        low += PART_BYTES


def _frame_span(extent: Extent, low: int, high: int) -> tuple[int, int, int]:
    """Where in the object the frames of the raw bytes ``[low, high)`` begin and end, and the first raw byte of them."""
    first, last = low // FRAME_BYTES, (high - 1) // FRAME_BYTES
    edges = [0, *accumulate(extent.frames)]
    if last + 1 >= len(edges):
        raise Damaged("the index of ranges has too few frames for a range", where=f"offset {extent.start + high}")
    return edges[first], edges[last + 1], first * FRAME_BYTES


def _compressed(raw: bytearray) -> list[bytes]:
    # with checksums: who reads a single event cannot compare a range's digest
    view, squeeze = memoryview(raw), zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress
    return [squeeze(view[low : low + FRAME_BYTES]) for low in range(0, len(view), FRAME_BYTES)]


def _decompressed(data: bytes, extent: Extent, span: tuple[int, int], where: str) -> bytes:
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


def _damaged(error: Problem) -> Damaged:
    """That an object which the index names is not there, or not as large."""
    return Damaged(error.what, where=error.where, todo="Run 'streamvault check' on the archive.")


def _frames(data: bytes) -> Iterator[tuple[bytes, int]]:
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


def _frames_of_same(store: ObjectStore, key: str, raw: bytearray) -> tuple[int, ...]:
    """The frames of an object that is there already; another release of zstd may have made other frames of the same.

    Raises:
        Conflict: it holds other bytes.
    """
    data = store.get(key)
    sizes, at = [], 0
    try:
        for frame, size in _frames(data):
            if raw[at : at + FRAME_BYTES] != frame:
                at = -1
                break
            at += len(frame)
            sizes.append(size)
    except (zstandard.ZstdError, ValueError):
        at = -1
    if at != len(raw):
        raise Conflict(
            "another object is already there",
            where=f"{store.uri}/{key}",
            todo="It was not written by this stream's export; archive to another root or remove it.",
        )
    return tuple(sizes)
