"""Splits a segment's bytes into events by walking their headers, a buffer at a time.

Code that moves bytes needs no individual events, only their count and the end of the last whole one. Each header gives
the position of the next, so the walk is sequential; but most streams have runs of events of equal size, which are
checked at once.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamvault.streamstore.framing import MAX_BLOCK_BYTES, NotAnEvent, pieces
from streamvault.streamstore.model import ANY_EVENT_BYTES, HEADER_BYTES, MAX_EVENT_BYTES, ContentKind

Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct(">q")

_RUN = 16
"""Number of equal-sized events in a row after which the next ones are checked at once."""

_RARE = 4096
"""Where runs turn out short, the threshold doubles up to this many events."""


@dataclass(frozen=True, slots=True)
class EventBlock:
    """Consecutive whole events of a segment, or any bytes of a byte stream.

    Attributes:
        offset: segment offset of the first header (bytes).
        data: their bytes including headers; valid as long as the block that was fed.
        count: number of events; 0 for bytes.
        starts: where in `data` each event begins; None if the splitter was not asked for it, or if there is one event.
    """

    offset: int
    data: memoryview
    count: int
    starts: npt.NDArray[np.int64] | None = field(default=None, compare=False)

    @property
    def end(self) -> int:
        """The offset after the last event."""
        return self.offset + len(self.data)

    def events(self) -> Iterator[tuple[int, memoryview]]:
        """Yield (header offset, payload) of each event."""
        data, base, unpack = self.data, self.offset, _HEADER.unpack_from
        position, size = 0, len(data)
        while position < size:
            begin = position + HEADER_BYTES
            end: int = begin + unpack(data, position)[0]
            yield base + position, data[begin:end]
            position = end


class EventSplitter:
    """Walks the events of a segment whose bytes arrive in blocks cut anywhere.

    Whole events are views into their block; only events split across blocks are copied.

    Args:
        offset: segment offset of the first block (bytes), where an event must begin.
        where: the segment's name, for messages.
        largest: the largest accepted payload (bytes).
        starts: whether blocks tell where their events begin.

    Attributes:
        offset: the offset after all yielded events (exact once a `feed` is exhausted).
    """

    __slots__ = ("_largest", "_starts", "_tail", "_where", "offset")

    def __init__(self, offset: int, where: str = "", *, largest: int = MAX_EVENT_BYTES, starts: bool = False) -> None:
        self.offset = offset
        self._starts = starts
        self._tail = bytearray()
        self._where = where
        self._largest = largest

    @property
    def pending(self) -> int:
        """Number of bytes already fed beyond `offset`."""
        return len(self._tail)

    @property
    def next_length(self) -> int:
        """Length of the event at `offset` including its header (bytes); 8 until the header is complete.

        Raises:
            NotAnEvent: no event begins there.
        """
        if len(self._tail) < HEADER_BYTES:
            return HEADER_BYTES
        length: int = _HEADER.unpack_from(self._tail)[0]
        if not 0 <= length <= self._largest:
            raise self._not_an_event(self._tail)
        return HEADER_BYTES + length

    def feed(self, block: Buffer) -> Iterator[EventBlock]:
        """Yield the whole events that end in this block, beginning with the one split by the previous block's end.

        Exhaust the iterator before feeding the next block.

        Raises:
            NotAnEvent: no event begins where one should; all events before it were yielded.
        """
        view, position = memoryview(block), 0
        while self._tail and position < len(view) and (missing := self.next_length - len(self._tail)):
            # first the rest of the header, which says how much more there is
            self._tail += view[position : position + missing]
            position += missing
        if self._tail:
            if len(self._tail) < self.next_length:
                return
            event, self._tail = self._tail, bytearray()
            yield EventBlock(self.offset, memoryview(event), 1)
            self.offset += len(event)
        starts = array("q") if self._starts else None
        end, count, good = _walk(view, position, self._largest, starts)
        if count:
            found = None if starts is None else np.frombuffer(starts, np.int64) - position
            yield EventBlock(self.offset, view[position:end], count, found)
            self.offset += end - position
        if not good:
            raise self._not_an_event(view[end:])
        self._tail += view[end:]

    def events(self, block: Buffer) -> Iterator[tuple[int, memoryview]]:
        """Yield (header offset, payload) of each event that ends in this block, like `feed`."""
        for whole in self.feed(block):
            yield from whole.events()

    def finish(self) -> int:
        """End the walk; return `offset`, which is now the end.

        Raises:
            NotAnEvent: the last event is incomplete.
        """
        if self._tail:
            raise NotAnEvent(
                f"the event at offset {self.offset} is cut off after {len(self._tail)} bytes",
                where=self._where,
                offset=self.offset,
            )
        return self.offset

    def _not_an_event(self, header: Buffer) -> NotAnEvent:
        """Build the error for an invalid header at `offset`."""
        size: int = _HEADER.unpack_from(header)[0]
        return no_event(self._where, self.offset, size, self._largest)


def whole_event_blocks(blocks: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Cut bytes into blocks of whole events, of at most `MAX_APPEND_BYTES`; the caller may keep them.

    Events of more than 8 MiB, and bytes from where no event begins, come in pieces.

    Args:
        blocks: consecutive bytes of a segment from an event boundary on; they stay valid.
    """
    rest, large = b"", 0.0
    for block in blocks:
        view = memoryview(rest + block if rest else block)
        rest = b""
        while view:
            if large:
                size = int(min(large, len(view)))
                yield from pieces(view[:size])
                large -= size
            else:
                size, _, _ = _walk(view[:MAX_BLOCK_BYTES], 0, MAX_EVENT_BYTES)
                length = 0 if len(view) < HEADER_BYTES else int(_HEADER.unpack_from(view)[0])
                if not size and not 0 <= length <= MAX_EVENT_BYTES:
                    large = HEADER_BYTES + length if 0 < length <= ANY_EVENT_BYTES else math.inf
                    continue
                size = size or HEADER_BYTES + length
                if size > len(view):
                    rest = bytes(view)
                    break
                yield view[:size]
            view = view[size:]
    yield from pieces(memoryview(rest))


class _ByteSplitter(EventSplitter):
    """Passes on each block of a byte stream whole."""

    __slots__ = ()

    def feed(self, block: Buffer) -> Iterator[EventBlock]:
        view = memoryview(block)
        yield EventBlock(self.offset, view, 0)
        self.offset += len(view)


def open_splitter(content: ContentKind, offset: int, where: str) -> EventSplitter:
    """Return the splitter of a content: of bytes, every block is one `EventBlock`. Arguments as for `EventSplitter`."""
    return (_ByteSplitter if content == "bytes" else EventSplitter)(offset, where)


def no_event(where: str, offset: int, size: int, largest: int) -> NotAnEvent:
    """Return the error for a header that is not one, or is that of an event that is too large.

    Args:
        where: the segment.
        offset: where the header is (bytes).
        size: the payload's size that it names (bytes).
        largest: the largest payload that is accepted (bytes).
    """
    what, length = f"no event begins at offset {offset}", 0
    if largest < size <= ANY_EVENT_BYTES:
        length = HEADER_BYTES + size
        what += f", unless it has {size} bytes (at most {largest} are accepted)"
    return NotAnEvent(what, where=where, offset=offset, length=length)


def _walk(view: memoryview, position: int, largest: int, starts: array[int] | None = None) -> tuple[int, int, bool]:
    """Follow the headers; return the end of the last whole event, the number of events, and whether all were valid.

    Where each whole event begins is added to ``starts``.
    """
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
        if starts is not None:
            starts.append(position)
        position = end
        count += 1
        if length != previous:
            previous, alike = length, 0
            continue
        alike += 1
        if alike == patience:
            more = _run(view, position, length)
            after = position + more * (HEADER_BYTES + length)
            if starts is not None:
                starts.frombytes(np.arange(position, after, HEADER_BYTES + length, dtype=np.int64).tobytes())
            position = after
            count += more
            alike = 0
            patience = _RUN if more > _RUN else min(2 * patience, _RARE)
    return position, count, True


def _run(view: memoryview, position: int, length: int) -> int:
    """Count the consecutive whole events of one size."""
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
