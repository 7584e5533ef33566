"""Reading one range of a segment: where it begins, its events, its digest, and what was truncated away meanwhile."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from exporter.spans import Span
from manifests.rows import Gap
from streamstore.errors import NoSuchSegment, SegmentTruncated
from streamstore.framing import guess_boundary
from streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES, SegmentId, StreamName
from streamstore.splitting import EventBlock, EventSplitter
from streamstore.store import StreamStore

__all__ = ["TRUNCATED", "PieceReader", "RangeReader", "find_start"]

TRUNCATED = "truncated at the source while the export ran"

_GUESS_BYTES = (1024 * 1024, MAX_EVENT_BYTES + 2 * HEADER_BYTES + 1024 * 1024)
"""How much is read to guess a boundary: a little first; then enough for the largest event to end in it."""

_MANY_ZEROS = 32 * HEADER_BYTES
"""So many zeros (bytes) are likelier a payload's than as many empty events in a row."""


def find_start(store: StreamStore, stream: StreamName, segment: SegmentId, span: Span, segment_end: int) -> int | None:
    """Guess where the first event at or after the span's low end begins; None if nothing there looks like one."""
    for size in _GUESS_BYTES:
        end = min(span.low + size, segment_end)
        data = b"".join(bytes(block) for block in store.read(stream, segment, span.low, end))
        found = guess_boundary(data, span.low, at_end_of_segment=end == segment_end)
        if found is not None:
            found += _zeros(data[found - span.low :])
        if end == segment_end or (found is not None and found + HEADER_BYTES <= end):
            return found
    return found


def _zeros(data: bytes) -> int:
    """How many of the first bytes are zeros in the middle of a payload rather than empty events.

    Both parse. Taken for events, the zeros of one payload would become up to a million objects that are removed again;
    the events behind them lie on the same chain.
    """
    run = len(data) - len(data.lstrip(b"\0"))
    return run // HEADER_BYTES * HEADER_BYTES if _MANY_ZEROS <= run <= MAX_EVENT_BYTES else 0


class RangeReader:
    """Walks the events of one range, once.

    Use up the blocks of each of `pieces`, then ask for `end` and `gaps`. Memory: a few blocks, and one event that is
    cut by a block's end.

    Args:
        start: an event boundary (known or guessed) in the span. high: the span's high end: events that begin below
            it belong to the range.
        segment_end: where the segment ends for this generation; no event may reach beyond.

    Attributes:
        end: where the next range begins. gaps: what was truncated away meanwhile, in order.
    """

    def __init__(
        self, store: StreamStore, stream: StreamName, segment: SegmentId, *, start: int, high: int, segment_end: int
    ) -> None:
        self._store = store
        self._stream = stream
        self._segment = segment
        self._high = high
        self._segment_end = segment_end
        self.end = start
        self.gaps: list[Gap] = []

    def pieces(self) -> Iterator[PieceReader]:
        """The runs of events that the source still has: one, unless it is truncated meanwhile."""
        while self.end < self._high:
            piece = PieceReader(
                self._store, self._stream, self._segment, start=self.end, high=self._high, end=self._segment_end
            )
            yield piece
            gone_until = min(piece.gone_until, self._segment_end)
            if gone_until > piece.end:
                self.gaps.append(Gap(start=piece.end, end=gone_until, reason=TRUNCATED))
            self.end = max(piece.end, gone_until)


class PieceReader:
    """The events of a stretch, as long as the source has it.

    Attributes:
        start: offset of the first event. end: behind the last whole one so far.
        count: how many events there were so far.
        gone_until: what lies between `end` and here is gone at the source.
    """

    def __init__(
        self, store: StreamStore, stream: StreamName, segment: SegmentId, *, start: int, high: int, end: int
    ) -> None:
        self.start = self.end = self.gone_until = start
        self.count = 0
        self._store = store
        self._stream = stream
        self._segment = segment
        self._high = high
        self._segment_end = end
        self._splitter = EventSplitter(start, segment.in_stream(stream))
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Of the whole events so far."""
        return self._digest.hexdigest()

    def blocks(self) -> Iterator[EventBlock]:
        """The events, in blocks of whole ones that are valid until the next is asked for.

        Raises:
            NotAnEvent: no event begins where one should: `start` was wrong, or the segment holds other data.
        """
        try:
            yield from self._read(self.end, self._high)
            while self._splitter.pending and (wanted := self._rest_of_last_event()):
                yield from self._read(wanted[0], wanted[1])
            self._splitter.finish()
        except SegmentTruncated as truncated:
            self.gone_until = truncated.start_offset
        except NoSuchSegment:
            self.gone_until = self._segment_end

    def _read(self, start: int, end: int) -> Iterator[EventBlock]:
        for block in self._store.read(self._stream, self._segment, start, end):
            for whole in self._splitter.feed(block):
                self.count += whole.count
                self._digest.update(whole.data)
                self.end = whole.end
                yield whole

    def _rest_of_last_event(self) -> tuple[int, int] | None:
        """What is still to be read of the event that the last block cut."""
        at = self._splitter.offset + self._splitter.pending
        end = min(self._splitter.offset + self._splitter.next_length, self._segment_end)
        return (at, end) if at < end else None
