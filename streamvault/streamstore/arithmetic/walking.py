"""Reads part of a segment as whole events, from a known or guessed event boundary."""

from __future__ import annotations

from collections.abc import Iterator

from streamvault.streamstore.arithmetic.boundary import guess_boundary
from streamvault.streamstore.arithmetic.splitting import EventBlock, open_splitter
from streamvault.streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES, ContentKind, SegmentId, StreamName
from streamvault.streamstore.store import StreamStore

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
        data = b"".join(bytes(block) for block in store.read(stream, segment, low, end))
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


class EventWalk:
    """The events of a segment that begin in ``[start, high)``, walked once. Memory: a few blocks and one event.

    Args:
        start: an event boundary (bytes).
        high: events that begin at or after this offset are not read.
        segment_end: no event may extend beyond it; the last one that begins below ``high`` is read to its end.
        largest: the largest payload to accept (bytes). More than `MAX_EVENT_BYTES` only where ``start`` is proved: a
            wrong guess would take any few zeros for the header of an event of many mebibytes.
        content: what the segment holds; bytes are read exactly from ``start`` to ``high``.

    Attributes:
        end: the offset after the last whole event so far.
    """

    def __init__(
        self,
        store: StreamStore,
        stream: StreamName,
        segment: SegmentId,
        *,
        start: int,
        high: int,
        segment_end: int,
        largest: int = MAX_EVENT_BYTES,
        content: ContentKind = "events",
    ) -> None:
        self._store = store
        self._stream = stream
        self._segment = segment
        self._high = high
        self._segment_end = segment_end
        self._splitter = open_splitter(content, start, segment.in_stream(stream), largest=largest)
        self.end = start

    def blocks(self) -> Iterator[EventBlock]:
        """The events, in blocks of whole ones that are valid until the next is asked for.

        Raises:
            NotAnEvent: no event begins or ends where one should: ``start`` or ``segment_end`` is wrong, or the segment
                holds other data.
            SegmentTruncated, NoSuchSegment: as `StreamStore.read`; what was yielded before is good.
        """
        yield from self._read(self.end, self._high)
        while self._splitter.pending and (wanted := self._rest_of_last_event()):
            yield from self._read(wanted[0], wanted[1])
        self._splitter.finish()

    def _read(self, start: int, end: int) -> Iterator[EventBlock]:
        for block in self._store.read(self._stream, self._segment, start, end):
            for whole in self._splitter.feed(block):
                self.end = whole.end
                yield whole

    def _rest_of_last_event(self) -> tuple[int, int] | None:
        """Return the missing range of the event split by the last block's end."""
        at = self._splitter.offset + self._splitter.pending
        end = min(self._splitter.offset + self._splitter.next_length, self._segment_end)
        return (at, end) if at < end else None
