"""Events in a segment's bytes: framing, walking, and finding where one begins.

An event is an 8-byte header (int32 type = 0, int32 payload length, big-endian) and its payload. Read as one big-endian
int64, a header is valid if it is from 0 to `MAX_EVENT_BYTES`: one comparison an event. A segment holds nothing but
events, and its bytes do not say where one begins: that has to be known, or guessed (`guess_boundary`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from problems import Problem
from streamstore.boundary import guess_boundary
from streamstore.errors import StreamStoreError
from streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES

__all__ = [
    "MAX_BLOCK_BYTES",
    "EventSplitter",
    "NotAnEvent",
    "filler",
    "frame",
    "frame_into",
    "frame_many",
    "guess_boundary",
]

MAX_BLOCK_BYTES = 4 * 1024 * 1024
"""The largest block (bytes) that is appended at once."""

Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct(">q")


class NotAnEvent(StreamStoreError):
    """No event begins, or ends, where one should: the segment holds foreign data, or the offset is wrong.

    Attributes:
        offset: where in the segment (bytes).
    """

    def __init__(self, what: str, *, where: str = "", todo: str = "", offset: int = -1) -> None:
        super().__init__(what, where=where, todo=todo)
        self.offset = offset

    def __reduce__(self) -> tuple[object, ...]:
        return _not_an_event, (self.what, self.where, self.todo, self.offset)


def _not_an_event(what: str, where: str, todo: str, offset: int) -> Problem:
    return NotAnEvent(what, where=where, todo=todo, offset=offset)


def frame(payload: Buffer) -> bytes:
    """One event: header and payload.

    Raises:
        NotAnEvent: the payload is larger than 8 MiB.
    """
    return _header(len(payload)) + bytes(payload)


def frame_into(block: bytearray, payload: Buffer) -> None:
    """Add one event at the end of a block.

    Raises:
        NotAnEvent: the payload is larger than 8 MiB; the block is unchanged.
    """
    block += _header(len(payload))
    block += payload


def frame_many(payloads: Iterable[Buffer], block_bytes: int = MAX_BLOCK_BYTES) -> Iterator[bytearray | memoryview]:
    """Events as blocks to append, each at most ``block_bytes``; the caller may keep them.

    Blocks hold whole events, but an event that does not fit into one block comes alone, in several.

    Raises:
        NotAnEvent: a payload is larger than 8 MiB.
    """
    block = bytearray()
    for payload in payloads:
        size = HEADER_BYTES + len(payload)
        if block and len(block) + size > block_bytes:
            yield block
            block = bytearray()
        frame_into(block, payload)
        if size > block_bytes:
            whole = memoryview(block)
            yield from (whole[start : start + block_bytes] for start in range(0, size, block_bytes))
            block = bytearray()
    if block:
        yield block


def _header(length: int) -> bytes:
    if length > MAX_EVENT_BYTES:
        raise NotAnEvent(f"a payload of {length} bytes is larger than an event may be ({MAX_EVENT_BYTES})")
    return _HEADER.pack(length)


def filler(length: int) -> Iterator[bytes]:
    """Blocks of whole events that fill exactly ``length`` bytes; each block is one event of zeros.

    A run that was stopped between two blocks goes on with a filler of what is left.

    Raises:
        ValueError: the length is from 1 to 7, or negative: no events are that long.
    """
    if length < 0 or 0 < length < HEADER_BYTES:
        raise ValueError(f"no events fill {length} bytes")
    while length:
        size = min(length, MAX_BLOCK_BYTES)
        if 0 < length - size < HEADER_BYTES:
            size -= HEADER_BYTES
        yield frame(bytes(size - HEADER_BYTES))
        length -= size


class EventSplitter:
    """Walks the events of a segment whose bytes arrive as a sequence of blocks, cut anywhere.

    Memory: the events of one block are views into it; only an event that is cut by a block's end is copied.

    Args:
        offset: where in the segment the first block begins (bytes); an event has to begin there.
        where: names the segment in messages.
    """

    __slots__ = ("_offset", "_tail", "_where")

    def __init__(self, offset: int, where: str = "") -> None:
        self._offset = offset
        self._tail = bytearray()
        self._where = where

    @property
    def offset(self) -> int:
        """Where the next event begins: behind all that were yielded (exact once a `feed` is used up)."""
        return self._offset

    @property
    def pending(self) -> int:
        """How many bytes behind `offset` have been fed already."""
        return len(self._tail)

    @property
    def next_length(self) -> int:
        """How long the event at `offset` is with its header (bytes); 8 as long as its header is not whole.

        Raises:
            NotAnEvent: no event begins there.
        """
        return self._length() if len(self._tail) >= HEADER_BYTES else HEADER_BYTES

    def feed(self, block: Buffer) -> Iterator[tuple[int, memoryview]]:
        """Each event that ends in this block: offset of its header, payload.

        The iterator has to be used up before the next block is fed; a payload is valid as long as the block is.

        Raises:
            NotAnEvent: no event begins where one should.
        """
        view = memoryview(block)
        position = 0
        if self._tail:
            position = self._complete(view)
            if not self._whole():
                return
            event, self._tail = self._tail, bytearray()
            yield self._offset, memoryview(event)[HEADER_BYTES:]
            self._offset += len(event)
        base = self._offset - position
        size, unpack = len(view), _HEADER.unpack_from
        last = size - HEADER_BYTES
        while position <= last:
            (length,) = unpack(view, position)
            if not 0 <= length <= MAX_EVENT_BYTES:
                raise self._not_an_event(base + position)
            begin = position + HEADER_BYTES
            end = begin + length
            if end > size:
                break
            yield base + position, view[begin:end]
            position = end
        self._offset = base + position
        self._tail += view[position:]

    def finish(self) -> int:
        """Say that no block follows; returns `offset`, now the end.

        Raises:
            NotAnEvent: the last event is cut.
        """
        if self._tail:
            raise NotAnEvent(
                f"an event at offset {self._offset} is cut after {len(self._tail)} bytes",
                where=self._where,
                offset=self._offset,
            )
        return self._offset

    def _complete(self, view: memoryview) -> int:
        """Add to the cut event what the block has of it; returns how much that is."""
        taken = self._fill_up(view, 0, HEADER_BYTES)
        return taken if len(self._tail) < HEADER_BYTES else self._fill_up(view, taken, self._length())

    def _fill_up(self, view: memoryview, position: int, wanted: int) -> int:
        """Add bytes from ``position`` on until the cut event has ``wanted`` of them; returns where that stopped."""
        missing = max(wanted - len(self._tail), 0)
        self._tail += view[position : position + missing]
        return min(position + missing, len(view))

    def _length(self) -> int:
        """The cut event's length with its header, which is complete."""
        length: int = _HEADER.unpack_from(self._tail)[0]
        if not 0 <= length <= MAX_EVENT_BYTES:
            raise self._not_an_event(self._offset)
        return HEADER_BYTES + length

    def _whole(self) -> bool:
        return len(self._tail) >= HEADER_BYTES and len(self._tail) == self._length()

    def _not_an_event(self, offset: int) -> NotAnEvent:
        return NotAnEvent(f"no event begins at offset {offset}", where=self._where, offset=offset)
