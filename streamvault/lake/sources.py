"""Sources of a table's bytes, for tasks: the objects of an archive, or the stream itself.

An origin (`lake.origin`) decides which ranges a table gets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from streamvault.lake.batches import event_blocks
from streamvault.manifests.archive.range_bytes import RangeBytes, damaged_range, read_verified
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.reading.reader import SegmentReader
from streamvault.reading.spans import SegmentSpan, Span
from streamvault.streamstore.arithmetic.framing import NotAnEvent
from streamvault.streamstore.arithmetic.splitting import EventBlock
from streamvault.streamstore.model import LARGEST_EVENT_BYTES, SegmentId, StreamName
from streamvault.streamstore.uri import StoreAddress


@dataclass(frozen=True, slots=True)
class TableRange:
    """A range of the table.

    Attributes:
        segment: the segment.
        start: its first offset (bytes), an event boundary.
        end: the offset after its last byte, an event boundary.
        parts: the archive's ranges that contain it, in order and without a hole; none if it is read from a stream.
    """

    segment: SegmentId
    start: int
    end: int
    parts: tuple[RangeBytes, ...] = ()

    @property
    def known(self) -> ArchivedRange | None:
        """Its row in the index; None if it is not a range of the archive, so that its digest is not known yet."""
        if len(self.parts) != 1 or (self.parts[0].start, self.parts[0].end) != (self.start, self.end):
            return None
        return replace(self.parts[0].row, frames=(), crc64nvme="")  # these belong to the archive's objects


class EventRun(Protocol):
    """Consecutive events of a segment, to be read once.

    The other properties are valid only after all blocks were read.
    """

    @property
    def start(self) -> int:
        """Offset of the first event (bytes)."""

    @property
    def end(self) -> int:
        """Offset after the last event (bytes)."""

    @property
    def count(self) -> int:
        """Number of events."""

    @property
    def digest(self) -> str:
        """SHA-256 of the events' bytes, headers included, hexadecimal."""

    def blocks(self) -> Iterator[EventBlock]:
        """Yield the events in blocks of complete events; a block is valid until the next one is requested.

        Raises:
            Damaged: the bytes differ from the archived ones; the yielded events must not be used.
            NotAnEvent: no event begins where one should.
        """


class EventSource(Protocol):
    """Reads the bytes of a task's ranges; small, to be sent to tasks."""

    is_whole: ClassVar[bool]
    """Whether it has every byte of every range. If not, missing bytes are a gap."""

    def runs(self, planned: TableRange) -> Iterator[EventRun]:
        """Yield the range's events, in order, usually as one run; read each run completely before the next.

        Bytes before, between and after the runs are gone at the source.
        """


@dataclass(frozen=True, slots=True)
class ArchivedEvents:
    """A `EventSource` that reads an archive and checks every range's digest, before the last block's iteration ends.

    Attributes:
        window: maximum data buffered in memory (bytes).
    """

    window: int
    is_whole: ClassVar[bool] = True

    def runs(self, planned: TableRange) -> Iterator[EventRun]:
        """See `EventSource.runs`."""
        yield _ArchivedRun(planned, self.window)


class _ArchivedRun:
    """An `EventRun` of an archive."""

    def __init__(self, planned: TableRange, window: int) -> None:
        self._range = planned
        self._window = window
        self._digest = hashlib.sha256()
        self.start = self.end = planned.start
        self.count = 0

    @property
    def digest(self) -> str:
        known = self._range.known
        return known.digest if known else self._digest.hexdigest()

    def blocks(self) -> Iterator[EventBlock]:
        planned, known, first = self._range, self._range.known, self._range.parts[0]
        try:
            for events in event_blocks(planned.start, str(planned.segment), self._bytes()):
                self.count += events.count
                self.end = events.end
                yield events
        except NotAnEvent:
            raise damaged_range(first.place, first.row) from None
        if known and (self.end, self.count) != (planned.end, known.events):
            raise damaged_range(first.place, first.row)

    def _bytes(self) -> Iterator[bytes | memoryview]:
        """Yield the range's bytes. A partly used archived range is read completely, to check its digest."""
        planned, known = self._range, self._range.known
        for part in planned.parts:
            at = part.start
            for block in read_verified(part.place, part.layout, part.row, self._window):  # a file is published whole
                low, high = max(planned.start - at, 0), min(planned.end - at, len(block))
                if low < high:
                    inside = memoryview(block)[low:high]
                    if not known:  # a whole archived range's digest is compared while it is read
                        self._digest.update(inside)
                    yield inside
                at += len(block)


@dataclass(frozen=True, slots=True)
class LiveEvents:
    """A `EventSource` that reads the stream itself.

    Attributes:
        address: address of the stream's store.
        stream: the stream.
        largest: the largest payload to accept (bytes).
    """

    address: StoreAddress
    stream: StreamName
    largest: int = LARGEST_EVENT_BYTES
    is_whole: ClassVar[bool] = False

    def runs(self, planned: TableRange) -> Iterator[EventRun]:
        """See `EventSource.runs`."""
        with self.address.lend() as store:
            span = Span(planned.start, planned.end, known=True)
            of_segment = SegmentSpan(self.address, self.stream, planned.segment, planned.end, span, self.largest)
            yield from SegmentReader(store, of_segment, planned.start).runs()
