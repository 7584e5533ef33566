"""Reads part of a segment as whole events, from a known or guessed event boundary.

A payload can look like a chain of events (especially zeros), so a guess must be proved by walking from a known offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from streamvault.streamstore.events import EventBlock, EventSplitter
from streamvault.streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES, SegmentId, StreamName
from streamvault.streamstore.store import StreamStore

_Positions = npt.NDArray[np.intp]

_HEADER = struct.Struct(">q")

_WINDOW = 32 * 1024
"""Positions that `guess_boundary` resolves at once, so that their arrays stay in the CPU cache."""

_GUESS_BYTES = (1024 * 1024, MAX_EVENT_BYTES + 2 * HEADER_BYTES + 1024 * 1024)
"""Bytes read to guess a boundary: a little first, then enough to contain the end of the largest event."""

_MANY_ZEROS = 32 * HEADER_BYTES
"""This many zeros (bytes) are more likely part of a payload than a run of empty events."""


def find_start(store: StreamStore, stream: StreamName, segment: SegmentId, low: int, segment_end: int) -> int | None:
    """Guess where the first event at or after an offset begins; None if nothing there looks like one.

    The same bytes give the same guess.

    Raises:
        SegmentTruncated, NoSuchSegment: as `StreamStore.read`.
    """
    for size in _GUESS_BYTES:
        end = min(low + size, segment_end)
        data = store.read_bytes(stream, segment, low, end)
        found = guess_boundary(data, low, at_end_of_segment=end == segment_end)
        if found is not None:
            zeros = _zeros(data[found - low :])
            if zeros > MAX_EVENT_BYTES:
                return None
            found += zeros
        if end == segment_end or (found is not None and found + HEADER_BYTES <= end):
            return found
    return found


def _zeros(data: bytes) -> int:
    """Return how many of the first bytes are zeros of a payload rather than empty events.

    Both parse. Taken for events, the zeros of one payload would become up to a million events; the events behind them
    lie on the same chain. More zeros than `MAX_EVENT_BYTES` are a large event's, or so many empty events that it takes
    a proved boundary to tell.
    """
    run = len(data) - len(data.lstrip(b"\0"))
    return run // HEADER_BYTES * HEADER_BYTES if run >= _MANY_ZEROS else 0


def guess_boundary(buffer: bytes | bytearray | memoryview, base: int, *, at_end_of_segment: bool) -> int | None:
    """Find the smallest offset from which a chain of valid headers leads to the buffer's end.

    The result is a guess: a payload can look like a chain of events. Longer buffers give better guesses: the first true
    boundary is certain to be among the candidates if the buffer has `MAX_EVENT_BYTES` + 16 bytes or reaches the
    segment's end; in a shorter one, a header read one byte too late can pass for a long event cut off by the end. Takes
    time linear in the buffer's length.

    Args:
        buffer: bytes of a segment.
        base: the segment offset (bytes) of the buffer's first byte.
        at_end_of_segment: whether the buffer ends at the segment's end or at another known event boundary. If so, the
            chain must end exactly there, and the end itself is the last candidate; otherwise the last event may be cut
            off by the buffer's end.

    Returns:
        A segment offset; None if there is no candidate.
    """
    data = np.frombuffer(buffer, dtype=np.uint8)
    size = len(data)
    # leads[p]: whether a chain from p leads to the end; the last entry stands for all positions beyond the end.
    leads = np.zeros(size + 2, dtype=np.bool_)
    leads[size:] = True, not at_end_of_segment
    last = size - HEADER_BYTES
    if not at_end_of_segment:
        for position in range(max(last + 1, 0), size):
            leads[position] = _may_begin_header(bytes(data[position:]))
    for low in range(last // _WINDOW * _WINDOW, -1, -_WINDOW):
        high = min(low + _WINDOW, last + 1)
        begins, lengths = _headers(data[low : high + HEADER_BYTES - 1])
        leads[low + begins] = _resolve(begins, np.minimum(low + begins + lengths, size + 1), low, high, leads)
    candidates = leads[: size + 1 if at_end_of_segment else max(last + 1, 0)]
    return base + int(candidates.argmax()) if candidates.any() else None


def _headers(window: npt.NDArray[np.uint8]) -> tuple[_Positions, _Positions]:
    """Return each position of a complete valid header in a window, and its event's length including the header."""
    zero = window == 0
    pairs = zero[:-1] & zero[1:]
    fits = pairs[:-6] & pairs[2:-4] & zero[4:-3]
    fits &= window[5:-2] <= MAX_EVENT_BYTES >> 16
    begins = np.flatnonzero(fits)
    lengths = window[begins + 5].astype(np.intp) << 16 | window[begins + 6].astype(np.intp) << 8 | window[begins + 7]
    allowed = lengths <= MAX_EVENT_BYTES
    return begins[allowed], HEADER_BYTES + lengths[allowed]


def _resolve(
    begins: _Positions, ends: _Positions, low: int, high: int, leads: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return, for each header in ``[low, high)``, whether its chain leads to the end; later positions are resolved.

    ``begins`` is relative to ``low``; ``ends``, where their events end, is relative to the buffer.
    """
    count = len(begins)
    yes, no = count, count + 1
    which = np.full(high - low, no)  # position → its header's index
    which[begins] = np.arange(count)
    inside = ends < high
    follow = np.empty(count + 2, dtype=np.intp)  # header → the next one's index, or how the chain ends
    follow[yes:] = yes, no
    follow[:count] = np.where(inside, which[np.where(inside, ends - low, 0)], np.where(leads[ends], yes, no))
    # Pointer doubling: each round jumps twice as far, until all chains have left the window.
    while (follow[:count] < count).any():
        follow = follow.take(follow)
    resolved: npt.NDArray[np.bool_] = follow[:count] == yes
    return resolved


def _may_begin_header(piece: bytes) -> bool:
    """Return whether fewer than eight bytes can be the start of a valid header."""
    smallest: int = _HEADER.unpack(piece.ljust(HEADER_BYTES, b"\0"))[0]
    return 0 <= smallest <= MAX_EVENT_BYTES


class EventWalk:
    """The events of a segment that begin in ``[start, high)``, walked once. Memory: a few blocks and one event.

    Args:
        store: the stream's store.
        stream: the stream.
        segment: the segment.
        splitter: begins at an event boundary. It accepts more than `MAX_EVENT_BYTES` only where that is proved: a wrong
            guess would take any few zeros for the header of an event of many mebibytes.
        high: events that begin at or after this offset are not read. Of bytes, exactly those below it are read.
        segment_end: no event may extend beyond it; the last one that begins below ``high`` is read to its end.

    Attributes:
        end: the offset after the last whole event so far.
    """

    def __init__(
        self,
        store: StreamStore,
        stream: StreamName,
        segment: SegmentId,
        splitter: EventSplitter,
        *,
        high: int,
        segment_end: int,
    ) -> None:
        self._store = store
        self._stream = stream
        self._segment = segment
        self._splitter = splitter
        self._high = high
        self._segment_end = segment_end
        self.end = splitter.offset

    def blocks(self) -> Iterator[EventBlock]:
        """The events, in blocks of whole ones that are valid until the next is asked for.

        Raises:
            NotAnEvent: no event begins or ends where one should: the start or ``segment_end`` is wrong, or the segment
                holds other data.
            SegmentTruncated, NoSuchSegment: as `StreamStore.read`; what was yielded before is good.
        """
        yield from self._read(self.end, self._high)
        while self._splitter.pending:  # the last event goes on behind what was read
            at = self._splitter.offset + self._splitter.pending
            end = min(self._splitter.offset + self._splitter.next_length, self._segment_end)
            if at >= end:
                break
            yield from self._read(at, end)
        self._splitter.finish()

    def _read(self, start: int, end: int) -> Iterator[EventBlock]:
        for block in self._store.read(self._stream, self._segment, start, end):
            for whole in self._splitter.feed(block):
                self.end = whole.end
                yield whole
