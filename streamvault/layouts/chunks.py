"""The layout ``chunks``: one object per range, the segment's raw bytes, compressed as frames of zstd.

A compressed object is a sequence of zstd frames of 1 MiB of the segment each: an event is read with one request for a
frame or two, and ``zstd -d`` restores the raw bytes. The frames' sizes are in the index of ranges.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING, Any, Self

import zstandard

from streamvault.common.errors import Damaged, Problem, shortage
from streamvault.common.progress import task_progress
from streamvault.layouts.archived_range import BLOCK_BYTES, ArchivedRange, BlockChecksums
from streamvault.layouts.chain import ChainedObject, Finding, RangeCheck, check
from streamvault.layouts.keys import CHUNK_KEYS, Place
from streamvault.layouts.layout import Compression, Layout, WrittenRange
from streamvault.objectstore.bulk import (
    HELD_TWICE,
    WINDOW_BYTES,
    create_large,
    different_object,
    get_parts,
    parts_of,
    put_same,
    put_same_large,
    read_ahead,
)
from streamvault.objectstore.store import (
    AlreadyExists,
    NoSuchObject,
    ObjectInfo,
    ObjectStore,
    RunningChecksum,
    WrongSize,
    crc64nvme,
)
from streamvault.streamstore.model import HEADER_BYTES, Range, SegmentId

if TYPE_CHECKING:
    from streamvault.streamstore.events import EventBlock  # imports numpy, which read-only commands do not need


KEPT = 2
"""Buffers that a process keeps for its next ranges, as many as it usually fills at once."""

LARGEST_KEPT = 80 * 1024 * 1024
"""Larger buffers (bytes) are not kept; a range of the default size fits."""

_spare: deque[bytearray] = deque(maxlen=KEPT)


class RangeBuffer:
    """Bytes to be put as one object. New pages for each range would take a tenth of an export's processor time."""

    def __init__(self) -> None:
        try:
            self._held = _spare.pop()
        except IndexError:
            self._held = bytearray()
        self._size = 0

    def extend(self, data: memoryview) -> None:
        """Append bytes."""
        fitting = data[: len(self._held) - self._size]
        with memoryview(self._held) as there:
            there[self._size : self._size + len(fitting)] = fitting
        self._held.extend(data[len(fitting) :])
        self._size += len(data)

    @property
    def data(self) -> memoryview:
        """The bytes, until they are given back."""
        return memoryview(self._held)[: self._size]

    def give_back(self) -> None:
        """Let the next range have the memory, unless somebody still has a view of it.

        A request that timed out may still be sending, and a store in memory keeps what it was given.
        """
        if len(self._held) <= LARGEST_KEPT:
            with suppress(BufferError):
                self._held.pop()  # not possible while there is a view
                _spare.append(self._held)


FRAME_BYTES = BLOCK_BYTES
"""Raw bytes of a compressed frame."""

MAX_FRAME_BYTES = FRAME_BYTES + FRAME_BYTES // 128
"""Maximum size (bytes) of a frame: zstd stores incompressible data as is, with a few bytes of overhead."""

LEVEL = 3
_REPEATED_BYTE = 1  # the type of a block that is one byte, repeated


class FrameWriter:
    """Compressor that buffers its output, and less than a frame of its input."""

    def __init__(self) -> None:
        # with checksums: a reader of a single event cannot check the range's digest
        self._squeeze = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress
        self._left = bytearray()
        self._done = bytearray()
        self._sizes: list[int] = []
        self._object = RunningChecksum()
        self._blocks = BlockChecksums()

    def extend(self, data: memoryview) -> None:
        """Append raw bytes."""
        self._left += data
        while len(self._left) >= FRAME_BYTES:
            self._add(FRAME_BYTES)

    def drain(self) -> bytearray:
        """Remove and return the complete frames; `finish` returns only those that follow."""
        done, self._done = self._done, bytearray()
        return done

    def finish(self) -> tuple[memoryview, WrittenRange]:
        """Return the object, except for what was drained, and what is to be recorded of it."""
        if self._left:
            self._add(len(self._left))
        written = WrittenRange(tuple(self._sizes), self._object.text, self._blocks.finish()[1])
        return memoryview(self._done), written

    def _add(self, size: int) -> None:
        with memoryview(self._left)[:size] as raw:
            frame = self._squeeze(raw)
            self._blocks.update(raw)  # now, as it is still in the processor's cache
        self._object.update(frame)
        del self._left[:size]
        self._done += frame
        self._sizes.append(len(frame))


def frame_span(stored: ArchivedRange, low: int, high: int) -> tuple[int, int, int]:
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


def decompressed(data: memoryview, stored: ArchivedRange, span: tuple[int, int], where: str) -> bytes:
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
            raw.append(_decompressed_frame(data[at : at + size]))
            at += size
            left -= len(raw[-1])
    except (zstandard.ZstdError, ValueError) as error:
        if short := shortage(error):
            raise short from None
        left, wrong = -1, str(error)
    if left or at != len(data):
        where = f"{where}, bytes {stored.start} to {stored.end} of the segment"
        what = f"the object cannot be decompressed ({wrong})"
        raise Damaged(what, where=where, todo="Run 'streamvault check' on the archive.")
    return b"".join(raw)


def _decompressed_frame(frame: memoryview) -> bytes:
    """Return the raw bytes of one frame; the buffer is as large as its header says, at most `FRAME_BYTES`."""
    if not 0 < zstandard.get_frame_parameters(frame).content_size <= FRAME_BYTES:
        raise ValueError(f"a frame does not declare 1 to {FRAME_BYTES} raw bytes")
    return zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)


def _frames(parts: Iterable[bytes | memoryview]) -> Iterator[tuple[bytes, int]]:
    """Yield the raw bytes of each frame of an object, and its compressed size (bytes). Memory: a part, and a frame."""
    held = bytearray()
    for part in parts:
        held += part
        while len(held) >= MAX_FRAME_BYTES:
            yield _take_frame(held)
    while held:
        yield _take_frame(held)


def _pieces(data: memoryview) -> Iterator[memoryview]:
    return (data[low : low + FRAME_BYTES] for low in range(0, len(data), FRAME_BYTES))


def _take_frame(held: bytearray) -> tuple[bytes, int]:
    data = memoryview(bytes(held[:MAX_FRAME_BYTES]))
    size = _frame_bytes(data)
    raw = _decompressed_frame(data[:size])
    del held[:size]
    return raw, size


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


def sizes_if(parts: Iterable[bytes | memoryview], digest: bytes) -> tuple[int, ...] | None:
    """Return the sizes of an object's frames if its raw bytes have the digest (SHA-256); None otherwise.

    Another release of zstd may have compressed the same bytes differently.
    """
    found, sizes, last = hashlib.sha256(), list[int](), FRAME_BYTES
    try:
        for raw, size in _frames(parts):
            if last < FRAME_BYTES or not raw:
                return None  # an event is found by its offset, so all frames but the last are whole
            found.update(raw)
            sizes.append(size)
            last = len(raw)
    except (zstandard.ZstdError, ValueError) as error:
        if short := shortage(error):
            raise short from None
        return None
    return tuple(sizes) if found.digest() == digest else None


FRAMED_PART_BYTES = 4 * 1024 * 1024
"""Raw bytes of the frames fetched by one request and decompressed together."""

SMALL_PART_BYTES = 2 * BLOCK_BYTES
"""Parts of an uncompressed object up to this size (bytes) are received whole; larger ones are used as they arrive."""

FIND_WINDOW = 8 * 1024 * 1024
"""Window (bytes) of a search for an event: small, since what was read ahead is wasted once the event is found."""

_HEADER = Struct(">q")


class ChunksLayout(Layout):
    """See the base class. Memory: one range to write it; the window to read, or to write a large event.

    Args:
        compress: whether to compress what is written.
    """

    name = "chunks"
    keys = CHUNK_KEYS
    one_object_per_event = False
    joinable = True
    compressions = ("", "zstd")

    def __init__(self, *, compress: bool = False) -> None:
        self._compress = compress

    def compressing(self, compression: Compression) -> Self:
        """See `Layout.compressing`."""
        return type(self)(compress=bool(compression))

    def min_window(self, range_size: int) -> int:
        """See `Layout.min_window`. A range is buffered whole."""
        return range_size

    def write_run(
        self,
        place: Place,
        segment: SegmentId,
        blocks: Iterable[EventBlock],
        window_bytes: int = WINDOW_BYTES,  # noqa: ARG002  (a run is one object, buffered whole)
    ) -> WrittenRange:
        """See `Layout.write_run`."""
        start, length, checksums = -1, 0, BlockChecksums()
        held = FrameWriter() if self._compress else RangeBuffer()
        for block in blocks:
            if start < 0:
                start = block.offset
            length += len(block.data)
            if not self._compress:
                checksums.update(block.data)  # now, as it is still in the processor's cache
            held.extend(memoryview(block.data))
        if not length:
            return WrittenRange()
        store = place.store
        key = place.prefix + self.keys.key(segment, start, length)
        if isinstance(held, FrameWriter):
            written = _put_frames(store, key, held)
            task_progress().acknowledge(length)
            return written
        put_same(store, key, held.data)
        task_progress().acknowledge(length)
        held.give_back()
        return WrittenRange((), *checksums.finish())

    def write_large(
        self,
        place: Place,
        event: Range,
        blocks: Iterable[bytes | bytearray | memoryview],
        window_bytes: int = WINDOW_BYTES,
    ) -> WrittenRange:
        """See `Layout.write_large`."""
        (store, prefix), length = place, event.end - event.start
        key = self._key(place, event)
        if not self._compress:
            checksums = BlockChecksums()
            put_same_large(store, prefix, key, length, checksums.of(blocks), window_bytes=window_bytes)
            return WrittenRange((), *checksums.finish())
        held, proof = FrameWriter(), hashlib.sha256()
        if length <= window_bytes:
            for block in blocks:
                held.extend(memoryview(block))
            return _put_frames(store, key, held)
        if create_large(store, prefix, key, length, _framed(blocks, held, proof)):
            return held.finish()[1]
        checksum = RunningChecksum()  # of the object that is there, which another release of zstd may have made
        parts = get_parts(store, key, parts_of(store.size(key)), window_bytes=min(window_bytes, WINDOW_BYTES))
        found = sizes_if(checksum.of(parts), proof.digest())
        if found is None:
            raise different_object(store, key)
        return held.finish()[1]._replace(frames=found, crc64nvme=checksum.text)

    def read_range(
        self, place: Place, stored: ArchivedRange, start: int, end: int, window_bytes: int = WINDOW_BYTES
    ) -> Iterator[bytes | memoryview]:
        """See `Layout.read_range`."""
        if start >= end:
            return
        store, key = place.store, self._key(place, stored)
        low, high, window_bytes = start - stored.start, end - stored.start, window_bytes // HELD_TWICE
        try:
            if stored.frames:
                yield from _decompressed(store, key, stored, (low, high), window_bytes)
            elif end - start <= SMALL_PART_BYTES:
                yield store.get_range(key, low, high)
            else:
                yield from read_ahead(store, key, low, high, window_bytes=window_bytes)
        except (NoSuchObject, WrongSize) as error:
            raise _damaged(error) from None

    def read_event(self, place: Place, stored: ArchivedRange, offset: int, length: int) -> bytes:
        """See `Layout.read_event`."""
        store, key, low = place.store, self._key(place, stored), offset - stored.start
        begin, end, first = frame_span(stored, low, low + length) if stored.frames else (low, low + length, low)
        try:
            data = store.get_range(key, begin, end)
        except (NoSuchObject, WrongSize) as error:
            raise _damaged(error) from None
        if stored.frames:
            raw = memoryview(decompressed(data, stored, (low, low + length), f"{store.uri}/{key}"))
            data = raw[low - first : low - first + length]
        if _HEADER.unpack_from(data)[0] != length - HEADER_BYTES:
            raise WrongSize(f"no event of {length} bytes begins at {offset}", where=f"{store.uri}/{key}")
        return bytes(data)

    def find_event(self, place: Place, stored: ArchivedRange, offset: int) -> tuple[int, int]:
        """See `Layout.find_event`. Reads the range up to the event."""
        at, tail = stored.start, b""
        blocks = self.read_range(place, stored, stored.start, stored.end, window_bytes=FIND_WINDOW)
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
        raise Damaged("no event begins at the offset", where=f"{place.at(self._key(place, stored))}, offset {offset}")

    def check_range(self, place: Place, stored: ArchivedRange, known: Container[str] = ()) -> RangeCheck:
        """See `Layout.check_range`."""
        entries = self.between(place, stored.segment, stored.start, stored.end)
        return check(self._steps(place, stored, known, entries), event_each=False)

    def check_ranges(
        self, place: Place, stored: Sequence[ArchivedRange], known: Container[str] = ()
    ) -> Iterator[RangeCheck]:
        """See `Layout.check_ranges`. One listing for all of them."""
        entries = self.between(place, stored[0].segment, stored[0].start, stored[-1].end) if stored else iter(())
        entry = next(entries, None)

        def take(after: str, stop: str) -> Iterator[ObjectInfo]:
            nonlocal entry
            while entry is not None and entry.key < stop:
                if entry.key > after:
                    yield entry
                entry = next(entries, None)

        for one in stored:
            _, after, stop = self.span(place.prefix, one.segment, one.start, one.end)
            yield check(self._steps(place, one, known, take(after, stop)), event_each=False)

    def off_chain(
        self,
        place: Place,
        segment: SegmentId,
        start: int,
        end: int,
        ranges: Sequence[tuple[int, int]],
    ) -> Iterator[str]:
        """See `Layout.off_chain`.

        Neighbouring generations may be merged at any time, and a joined chunk begins and ends where ranges do. So a
        chunk that begins at a range's start and ends at a range's end, or after all of them, is never yielded.
        """
        store, prefix = place
        wanted = {prefix + self.keys.key(segment, low, high - low) for low, high in ranges}
        starts, ends = {low for low, _ in ranges}, {high for _, high in ranges}
        for entry in self.between(place, segment, start, end):
            key = self.keys.parse(entry.key.removeprefix(prefix))
            if entry.key in wanted:
                wanted.discard(entry.key)
            elif key is not None and not (key.offset in starts and (key.end in ends or key.end > max(ends))):
                yield entry.key
        if wanted:
            raise Damaged("the range's object is missing", where=f"{store.uri}/{min(wanted)}")

    def _key(self, place: Place, stored: Range) -> str:
        return place.prefix + self.keys.key(stored.segment, stored.start, stored.end - stored.start)

    def _steps(
        self, place: Place, stored: ArchivedRange, known: Container[str], entries: Iterable[ObjectInfo]
    ) -> Iterator[ChainedObject | Finding]:
        key, length, found = self._key(place, stored), stored.end - stored.start, False
        size = sum(stored.frames) or length
        for entry in entries:
            if entry.key != key and entry.key.removeprefix(place.prefix) in known:
                continue
            if entry.key != key:
                what = "the object is not a range of the archive"
                yield Finding("foreign", entry.key, stored.start, stored.end, what)
                continue
            found = True
            if entry.size == size:
                yield ChainedObject(key, stored.start, length, size)
            else:
                what = f"the object has {entry.size} bytes instead of {size}"
                yield Finding("changed", key, stored.start, stored.end, what)
        if not found:
            what = f"no object holds the bytes {stored.start} to {stored.end} of the segment"
            yield Finding("missing", key, stored.start, stored.end, what)


def requests_to_read(size: int, *, frames: bool) -> int:
    """Return how many requests read so many raw bytes of a chunk, which may consist of compressed frames."""
    return -(-size // FRAMED_PART_BYTES) if frames else 1


def _decompressed(
    store: ObjectStore, key: str, stored: ArchivedRange, span: tuple[int, int], window_bytes: int
) -> Iterator[memoryview]:
    """Yield the raw bytes of a span of the range, from requests for whole frames."""
    start, end = span
    first = start - start % FRAME_BYTES
    spans = [(at, min(at + FRAMED_PART_BYTES, end)) for at in range(first, end, FRAMED_PART_BYTES)]
    parts = (frame_span(stored, low, high)[:2] for low, high in spans)
    for (low, high), data in zip(spans, get_parts(store, key, parts, window_bytes=window_bytes), strict=True):
        raw = memoryview(decompressed(data, stored, (low, high), f"{store.uri}/{key}"))
        yield raw[max(start - low, 0) : high - low]


def _framed(
    blocks: Iterable[bytes | bytearray | memoryview], held: FrameWriter, proof: Any
) -> Iterator[bytes | bytearray | memoryview]:
    """Yield the blocks' bytes compressed; ``proof`` is updated with the raw bytes."""
    for block in blocks:
        proof.update(block)
        held.extend(memoryview(block))
        yield held.drain()
    yield held.finish()[0]


def _put_frames(store: ObjectStore, key: str, held: FrameWriter) -> WrittenRange:
    """Put a compressed object like `put_same`; return what is to be recorded of the object now in the store.

    Raises:
        Conflict: an object with different content exists.
    """
    data, written = held.finish()
    try:
        store.put(key, data)
    except AlreadyExists:
        there = memoryview(store.get(key, 2 * len(data) + FRAME_BYTES))
        ours = hashlib.sha256()
        for raw, _ in _frames(_pieces(data)):
            ours.update(raw)
        found = sizes_if(_pieces(there), ours.digest())
        if found is None:
            raise different_object(store, key) from None
        return written._replace(frames=found, crc64nvme=crc64nvme(there))
    return written


def _damaged(error: Problem) -> Damaged:
    """Return the error for an object of the index that is missing or too short."""
    return Damaged(error.what, where=error.where, todo="Run 'streamvault check' on the archive.")


LAYOUT = ChunksLayout()
