"""The layout ``chunks``: one object per range, the segment's raw bytes.

A compressed object is a sequence of zstd frames of 1 MiB of the segment each: an event is read with one request for a
frame or two, and ``zstd -d`` restores the raw bytes. The frames' sizes are in the index of ranges.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Self

from streamvault.common.errors import Damaged, Problem
from streamvault.common.underway import task_progress
from streamvault.layouts.chain import ChainedObject, Finding, RangeCheck, check
from streamvault.layouts.frames import FRAME_BYTES, FrameWriter, decompressed, frame_span, sizes_if, sizes_of_same
from streamvault.layouts.layout import Compression, Layout, StoredRange, WrittenRange
from streamvault.layouts.object_keys import CHUNK_KEYS
from streamvault.layouts.place import Place
from streamvault.layouts.range_buffer import RangeBuffer
from streamvault.objectstore.bulk import (
    HELD_TWICE,
    WINDOW_BYTES,
    different_object,
    get_parts,
    parts_of,
    put_same,
    read_ahead,
)
from streamvault.objectstore.checksums import RunningChecksum, crc64nvme
from streamvault.objectstore.errors import AlreadyExists, NoSuchObject, WrongSize
from streamvault.objectstore.large import create_large, put_same_large
from streamvault.objectstore.store import ObjectInfo, ObjectStore
from streamvault.streamstore.model import HEADER_BYTES, SegmentId

if TYPE_CHECKING:
    from streamvault.streamstore.arithmetic.splitting import (
        EventBlock,  # imports numpy, which read-only commands do not need
    )


FRAMED_PART_BYTES = 4 * 1024 * 1024
"""Raw bytes of the frames fetched by one request and decompressed together."""

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
        start, length, checksum = -1, 0, RunningChecksum()
        held = FrameWriter() if self._compress else RangeBuffer()
        for block in blocks:
            if start < 0:
                start = block.offset
            length += len(block.data)
            if not self._compress:
                checksum.update(block.data)  # now, as it is still in the processor's cache
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
        return WrittenRange(crc64nvme=checksum.text)

    def write_large(
        self,
        place: Place,
        event: StoredRange,
        blocks: Iterable[bytes | bytearray | memoryview],
        window_bytes: int = WINDOW_BYTES,
    ) -> WrittenRange:
        """See `Layout.write_large`."""
        (store, prefix), length = place, event.end - event.start
        key, checksum = self._key(place, event), RunningChecksum()
        if not self._compress:
            put_same_large(store, prefix, key, length, checksum.of(blocks), window_bytes=window_bytes)
            return WrittenRange(crc64nvme=checksum.text)
        held, proof = FrameWriter(), hashlib.sha256()
        if length <= window_bytes:
            for block in blocks:
                held.extend(memoryview(block))
            return _put_frames(store, key, held)
        if create_large(store, prefix, key, length, checksum.of(_framed(blocks, held, proof))):
            return WrittenRange(held.finish()[1], checksum.text)
        checksum = RunningChecksum()  # of the object that is there, which another release of zstd may have made
        parts = get_parts(store, key, parts_of(store.size(key)), window_bytes=min(window_bytes, WINDOW_BYTES))
        found = sizes_if(checksum.of(parts), proof.digest())
        if found is None:
            raise different_object(store, key)
        return WrittenRange(found, checksum.text)

    def read_range(
        self, place: Place, stored: StoredRange, start: int, end: int, window_bytes: int = WINDOW_BYTES
    ) -> Iterator[bytes | memoryview]:
        """See `Layout.read_range`."""
        if start >= end:
            return
        store, key = place.store, self._key(place, stored)
        low, high, window_bytes = start - stored.start, end - stored.start, window_bytes // HELD_TWICE
        try:
            if stored.frames:
                yield from _decompressed(store, key, stored, (low, high), window_bytes)
            else:
                yield from read_ahead(store, key, low, high, window_bytes=window_bytes)
        except (NoSuchObject, WrongSize) as error:
            raise _damaged(error) from None

    def read_event(self, place: Place, stored: StoredRange, offset: int, length: int) -> bytes:
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

    def find_event(self, place: Place, stored: StoredRange, offset: int) -> tuple[int, int]:
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

    def check_range(self, place: Place, stored: StoredRange, known: Container[str] = ()) -> RangeCheck:
        """See `Layout.check_range`."""
        entries = self.between(place, stored.segment, stored.start, stored.end)
        return check(self._steps(place, stored, known, entries), event_each=False)

    def check_ranges(
        self, place: Place, stored: Sequence[StoredRange], known: Container[str] = ()
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

    def _key(self, place: Place, stored: StoredRange) -> str:
        return place.prefix + self.keys.key(stored.segment, stored.start, stored.end - stored.start)

    def _steps(
        self, place: Place, stored: StoredRange, known: Container[str], entries: Iterable[ObjectInfo]
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


def requests_to_read(stored: StoredRange, size: int) -> int:
    """Return how many requests read so many raw bytes of a chunk."""
    return -(-size // FRAMED_PART_BYTES) if stored.frames else 1


def _decompressed(
    store: ObjectStore, key: str, stored: StoredRange, span: tuple[int, int], window_bytes: int
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
    data, sizes = held.finish()
    try:
        store.put(key, data)
    except AlreadyExists:
        there = memoryview(store.get(key, 2 * len(data) + FRAME_BYTES))
        found = sizes_of_same(there, data)
        if found is None:
            raise different_object(store, key) from None
        return WrittenRange(found, crc64nvme(there))
    return WrittenRange(sizes, crc64nvme(data))


def _damaged(error: Problem) -> Damaged:
    """Return the error for an object of the index that is missing or too short."""
    return Damaged(error.what, where=error.where, todo="Run 'streamvault check' on the archive.")


LAYOUT = ChunksLayout()
