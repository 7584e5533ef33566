"""A segment's bytes as events again: walking the headers, whole buffers at a time.

What moves bytes needs no event by itself, only how many there are and where the last whole one ends. Each header
says where the next one is, so the walk is sequential; but most streams have runs of events of one size, and a run is
compared in one go.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamstore.framing import NotAnEvent
from streamstore.model import ANY_EVENT_BYTES, HEADER_BYTES, MAX_EVENT_BYTES

__all__ = ["EventBlock", "EventSplitter"]

Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct(">q")

_RUN = 16
"""After so many events of one size in a row, the next ones are looked at together."""

_RARE = 4096
"""Where runs turn out to be short, they are tried for after ever more events, up to this many."""


@dataclass(frozen=True, slots=True)
class EventBlock:
    """Whole events that follow each other in a segment.

    Attributes:
        offset: of the first one's header in the segment (bytes).
        data: their bytes, headers included; valid as long as the block that was fed.
        count: how many they are.
    """

    offset: int
    data: memoryview
    count: int

    @property
    def end(self) -> int:
        """The offset behind the last one."""
        return self.offset + len(self.data)

    def events(self) -> Iterator[tuple[int, memoryview]]:
        """Each event: offset of its header, payload."""
        data, base, unpack = self.data, self.offset, _HEADER.unpack_from
        position, size = 0, len(data)
        while position < size:
            begin = position + HEADER_BYTES
            end: int = begin + unpack(data, position)[0]
            yield base + position, data[begin:end]
            position = end


class EventSplitter:
    """Walks the events of a segment whose bytes arrive as a sequence of blocks, cut anywhere.

    Memory: whole events are views into the block they came in; only an event that is cut by a block's end is copied.

    Args:
        offset: where in the segment the first block begins (bytes); an event has to begin there.
        where: names the segment in messages.
        largest: the largest payload to accept (bytes).
    """

    __slots__ = ("_largest", "_offset", "_tail", "_where")

    def __init__(self, offset: int, where: str = "", *, largest: int = MAX_EVENT_BYTES) -> None:
        self._offset = offset
        self._tail = bytearray()
        self._where = where
        self._largest = largest

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

    def feed(self, block: Buffer) -> Iterator[EventBlock]:
        """The whole events that end in this block: the one that the block before had cut, then the others.

        The iterator has to be used up before the next block is fed.

        Raises:
            NotAnEvent: no event begins where one should; what came before it has been yielded.
        """
        view = memoryview(block)
        position = 0
        if self._tail:
            position = self._complete(view)
            if not self._whole():
                return
            event, self._tail = self._tail, bytearray()
            yield EventBlock(self._offset, memoryview(event), 1)
            self._offset += len(event)
        end, count, good = _walk(view, position, self._largest)
        if count:
            yield EventBlock(self._offset, view[position:end], count)
            self._offset += end - position
        if not good:
            raise self._not_an_event(view[end:])
        self._tail += view[end:]

    def events(self, block: Buffer) -> Iterator[tuple[int, memoryview]]:
        """Each event that ends in this block: offset of its header, payload; else as `feed`."""
        for whole in self.feed(block):
            yield from whole.events()

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
        if not 0 <= length <= self._largest:
            raise self._not_an_event(self._tail)
        return HEADER_BYTES + length

    def _whole(self) -> bool:
        return len(self._tail) >= HEADER_BYTES and len(self._tail) == self._length()

    def _not_an_event(self, header: Buffer) -> NotAnEvent:
        """What to say of a header at `offset` that is not accepted."""
        size, length = _HEADER.unpack_from(header)[0], 0
        what = f"no event begins at offset {self._offset}"
        if self._largest < size <= ANY_EVENT_BYTES:
            length = HEADER_BYTES + size
            what += f", unless it has {size} bytes (at most {self._largest} are accepted)"
        return NotAnEvent(what, where=self._where, offset=self._offset, length=length)


def _walk(view: memoryview, position: int, largest: int) -> tuple[int, int, bool]:
    """Follow the headers from ``position``: where the last whole event ends, how many, and whether all were headers."""
    size, unpack = len(view), _HEADER.unpack_from
    last = size - HEADER_BYTES
    count = alike = 0
    patience, previous = _RUN, -1
    while position <= last:
        (length,) = unpack(view, position)
        if not 0 <= length <= largest:
            return position, count, False
        end = position + HEADER_BYTES + length
        if end > size:
            break
        position = end
        count += 1
        if length != previous:
            previous, alike = length, 0
            continue
        alike += 1
        if alike == patience:
            more = _run(view, position, length)
            position += more * (HEADER_BYTES + length)
            count += more
            alike = 0
            patience = _RUN if more > _RUN else min(2 * patience, _RARE)
    return position, count, True


def _run(view: memoryview, position: int, length: int) -> int:
    """How many whole events of one size follow each other."""
    stride = HEADER_BYTES + length
    room = (len(view) - position) // stride
    found, batch = 0, 64
    while found < room:
        some = min(batch, room - found)
        headers = np.ndarray((some,), ">i8", view, position + found * stride, (stride,))
        same = headers == length
        if not same.all():
            return found + int(same.argmin())
        found += some
        batch *= 4
    return found
