"""Reading one range of a segment: its events, its digest, and what was truncated away meanwhile."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator

from exporter.identity import check_gone
from manifests.rows import Gap
from streamstore.errors import NoSuchSegment, SegmentTruncated
from streamstore.framing import NotAnEvent
from streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES, SegmentId, StreamName
from streamstore.splitting import EventBlock
from streamstore.store import StreamStore
from streamstore.walking import EventWalk

__all__ = ["TRUNCATED", "LargeEventReader", "PieceReader", "RangeReader"]

TRUNCATED = "truncated at the source while the run went on"

_HEADER = struct.Struct(">q")


class RangeReader:
    """Walks the events of one range, once.

    Use up the blocks of each of `pieces`, then ask for `end` and `gaps`. Memory: a few blocks, and one event of 8 MiB
    at most that is cut by a block's end; a larger one is a piece of its own, which need not be held.

    Args:
        start: an event boundary (known or guessed) in the span. high: the span's high end: events that begin below
            it belong to the range.
        segment_end: where the segment ends for this generation; no event may reach beyond.
        largest: the largest payload to accept (bytes). More than `MAX_EVENT_BYTES` only where ``start`` is known.

    Attributes:
        end: where the next range begins. gaps: what was truncated away meanwhile, in order.
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
    ) -> None:
        self._store = store
        self._stream = stream
        self._segment = segment
        self._high = high
        self._segment_end = segment_end
        self._largest = largest
        self.end = start
        self.gaps: list[Gap] = []

    def pieces(self) -> Iterator[PieceReader | LargeEventReader]:
        """The runs of events that the source still has: one, unless it is truncated meanwhile or has large events.

        Raises:
            NotAnEvent: no event begins or ends where one should; as `PieceReader.blocks`.
        """
        large = 0
        while self.end < self._high:
            piece = self._large(large) if large else self._small()
            yield piece
            gone_until = min(piece.gone_until, self._segment_end)
            if gone_until > piece.end:
                self.gaps.append(Gap(start=piece.end, end=gone_until, reason=TRUNCATED))
            self.end = max(piece.end, gone_until)
            # Large events often follow each other: a look at the next header saves reading ahead for nothing.
            large = self._next_length() if large else piece.large

    def _small(self) -> PieceReader:
        return PieceReader(
            self._store,
            self._stream,
            self._segment,
            start=self.end,
            high=self._high,
            end=self._segment_end,
            largest=self._largest,
        )

    def _large(self, length: int) -> LargeEventReader:
        if self.end + length > self._segment_end:
            raise NotAnEvent(
                f"an event at offset {self.end} is cut after {self._segment_end - self.end} bytes",
                where=self._segment.in_stream(self._stream),
                offset=self.end,
            )
        return LargeEventReader(self._store, self._stream, self._segment, start=self.end, length=length)

    def _next_length(self) -> int:
        """The length of the event at `end` if it is a large one that is accepted; else 0, and `PieceReader` looks."""
        if self.end + HEADER_BYTES > min(self._high, self._segment_end):
            return 0
        try:
            blocks = self._store.read(self._stream, self._segment, self.end, self.end + HEADER_BYTES)
            size: int = _HEADER.unpack(b"".join(blocks))[0]
        except (SegmentTruncated, NoSuchSegment):
            return 0
        return HEADER_BYTES + size if MAX_EVENT_BYTES < size <= self._largest else 0


class PieceReader:
    """The events of a stretch, as long as the source has it, and up to the first large one.

    Attributes:
        start: offset of the first event.
        count: how many events there were so far.
        gone_until: what lies between `end` and here is gone at the source.
        large: the length with its header of the large event at `end` that ended the piece; 0 if there is none.
    """

    def __init__(
        self,
        store: StreamStore,
        stream: StreamName,
        segment: SegmentId,
        *,
        start: int,
        high: int,
        end: int,
        largest: int = MAX_EVENT_BYTES,
    ) -> None:
        self.start = self.gone_until = start
        self.count = self.large = 0
        self._store, self._stream, self._segment = store, stream, segment
        self._segment_end = end
        self._largest = largest
        self._walk = EventWalk(store, stream, segment, start=start, high=high, segment_end=end)
        self._digest = hashlib.sha256()

    @property
    def end(self) -> int:
        """Behind the last whole event so far."""
        return self._walk.end

    @property
    def digest(self) -> str:
        """Of the whole events so far."""
        return self._digest.hexdigest()

    def blocks(self) -> Iterator[EventBlock]:
        """The events, in blocks of whole ones that are valid until the next is asked for.

        Raises:
            NotAnEvent: no event begins where one should: `start` was wrong, or the segment holds other data, or an
                event that is larger than is accepted.
        """
        try:
            for whole in self._walk.blocks():
                self.count += whole.count
                self._digest.update(whole.data)
                yield whole
        except SegmentTruncated as truncated:
            self.gone_until = truncated.start_offset
        except NoSuchSegment:
            check_gone(self._store, self._stream, self._segment)
            self.gone_until = self._segment_end
        except NotAnEvent as error:
            if not 0 < error.length <= HEADER_BYTES + self._largest:
                raise
            self.large = error.length


class LargeEventReader:
    """One event of more than 8 MiB, as long as the source has it.

    Attributes:
        start: offset of its header. length: of the event with its header (bytes).
        gone_until: what lies between `end` and here is gone at the source.
    """

    large = 0

    def __init__(self, store: StreamStore, stream: StreamName, segment: SegmentId, *, start: int, length: int) -> None:
        self._store = store
        self._stream = stream
        self._segment = segment
        self._digest = hashlib.sha256()
        self.start = self.end = self.gone_until = start
        self.length = length

    @property
    def count(self) -> int:
        """1 once the event has been read to its end; else 0."""
        return int(self.end > self.start)

    @property
    def digest(self) -> str:
        """Of the event with its header, once it has been read."""
        return self._digest.hexdigest()

    def data(self) -> Iterator[memoryview]:
        """The event's bytes with its header, in blocks that are valid until the next is asked for.

        Raises:
            SegmentTruncated, NoSuchSegment: the source lost it meanwhile; `gone_until` says how much is gone. What was
                read of it is of no use.
        """
        try:
            for block in self._store.read(self._stream, self._segment, self.start, self.start + self.length):
                self._digest.update(block)
                yield block
        except SegmentTruncated as truncated:
            # It may have been truncated in its middle, by whoever knows no events: the rest of it is no event.
            self.gone_until = max(truncated.start_offset, self.start + self.length)
            raise
        except NoSuchSegment:
            check_gone(self._store, self._stream, self._segment)
            self.gone_until = self.start + self.length
            raise
        self.end = self.start + self.length

    def blocks(self) -> Iterator[EventBlock]:
        """The event as a block, for who needs it whole; nothing if the source lost it meanwhile. Holds all of it."""
        held = bytearray()
        try:
            for block in self.data():
                held += block
        except (SegmentTruncated, NoSuchSegment):
            return
        yield EventBlock(self.start, memoryview(held), 1)
