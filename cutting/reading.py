"""Reading one range of a segment: its events, its digest, and what was truncated away meanwhile."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from cutting.identity import check_gone
from manifests.rows import Gap
from streamstore.errors import NoSuchSegment, SegmentTruncated
from streamstore.model import SegmentId, StreamName
from streamstore.splitting import EventBlock
from streamstore.store import StreamStore
from streamstore.walking import EventWalk

__all__ = ["TRUNCATED", "PieceReader", "RangeReader"]

TRUNCATED = "truncated at the source while the run went on"


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
        start: offset of the first event.
        count: how many events there were so far.
        gone_until: what lies between `end` and here is gone at the source.
    """

    def __init__(
        self, store: StreamStore, stream: StreamName, segment: SegmentId, *, start: int, high: int, end: int
    ) -> None:
        self.start = self.gone_until = start
        self.count = 0
        self._store, self._stream, self._segment = store, stream, segment
        self._segment_end = end
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
            NotAnEvent: no event begins where one should: `start` was wrong, or the segment holds other data.
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
