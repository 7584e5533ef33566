"""Reads one range of a segment: its events, its digest, and what is truncated meanwhile."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator

from streamvault.common.underway import task_progress
from streamvault.manifests.archive.rows import Gap
from streamvault.reading.identity import check_gone
from streamvault.reading.spans import SegmentSpan
from streamvault.streamstore.arithmetic.framing import NotAnEvent
from streamvault.streamstore.arithmetic.splitting import EventBlock, no_event, open_splitter
from streamvault.streamstore.arithmetic.walking import EventWalk
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES
from streamvault.streamstore.store import StreamStore

TRUNCATED = "truncated at the source during the run"

_HEADER = struct.Struct(">q")


class SegmentReader:
    """Reads the events of one range, once.

    Consume the blocks of each of `runs`, then read `end` and `gaps`. Memory: a few blocks, and one event of at most
    8 MiB that is split by a block's end; a larger event is a separate run, which need not be buffered.

    Args:
        store: the stream's store.
        planned: the span.
        start: an event boundary (known or guessed) in the span.

    Attributes:
        end: start of the next range.
        gaps: what was truncated meanwhile, in order.
    """

    def __init__(self, store: StreamStore, planned: SegmentSpan, start: int) -> None:
        self._store = store
        self._planned = planned
        # only where the start is known: a wrong guess would take a few zeros for the header of a large event
        self._largest = planned.largest if planned.span.known else MAX_EVENT_BYTES
        self.end = start
        self.gaps: list[Gap] = []

    def runs(self) -> Iterator[RunReader | LargeEventReader]:
        """Yield the runs of events: one, unless the source is truncated meanwhile or has large events.

        Raises:
            NotAnEvent: no event begins or ends where one must; as for `RunReader.blocks`.
        """
        large = 0
        while self.end < self._planned.span.high:
            run = self._large(large) if large else RunReader(self._store, self._planned, self.end, self._largest)
            yield run
            gone_until = min(run.gone_until, self._planned.segment_end)
            if gone_until > run.end:
                self.gaps.append(Gap(start=run.end, end=gone_until, reason=TRUNCATED))
            self.end = max(run.end, gone_until)
            # Large events often follow each other: reading the next header alone avoids useless read-ahead.
            large = self._next_length() if large else run.large

    def _large(self, length: int) -> LargeEventReader:
        left = self._planned.segment_end - self.end
        if length > left:
            raise NotAnEvent(
                f"an event at offset {self.end} is cut off after {left} bytes",
                where=self._planned.segment.in_stream(self._planned.stream),
                offset=self.end,
            )
        return LargeEventReader(self._store, self._planned, self.end, length)

    def _next_length(self) -> int:
        """Return the length of the event at `end` if it is large and acceptable; else 0: `RunReader` examines it."""
        planned, header_end = self._planned, self.end + HEADER_BYTES
        if header_end > min(planned.span.high, planned.segment_end):
            return 0
        try:
            blocks = self._store.read(planned.stream, planned.segment, self.end, header_end)
            size: int = _HEADER.unpack(b"".join(blocks))[0]
        except (SegmentTruncated, NoSuchSegment):
            return 0
        return HEADER_BYTES + size if MAX_EVENT_BYTES < size <= self._largest else 0


class RunReader:
    """Reads a run of events, up to the first large one or to what the source has truncated.

    Attributes:
        start: offset of the first event.
        count: number of events so far.
        gone_until: everything between `end` and this offset has been truncated at the source.
        large: length, header included, of the large event at `end` that ended the run; 0 if there is none.
    """

    def __init__(self, store: StreamStore, planned: SegmentSpan, start: int, largest: int) -> None:
        self.start = self.gone_until = start
        self.count = self.large = 0
        self._store = store
        self._planned = planned
        self._largest = largest
        splitter = open_splitter(planned.content, start, planned.segment.in_stream(planned.stream))
        self._walk = EventWalk(
            store,
            planned.stream,
            planned.segment,
            splitter,
            high=planned.span.high,
            segment_end=planned.segment_end,
        )
        self._digest = hashlib.sha256()

    @property
    def end(self) -> int:
        """Offset after the last complete event so far."""
        return self._walk.end

    @property
    def digest(self) -> str:
        """SHA-256 of the complete events so far, hexadecimal."""
        return self._digest.hexdigest()

    def blocks(self) -> Iterator[EventBlock]:
        """Yield blocks of complete events, each valid until the next one is requested.

        Raises:
            NotAnEvent: no event begins where one must: `start` is wrong, the segment holds other data, or an event is
                larger than the maximum.
        """
        done = task_progress()
        try:
            for whole in self._walk.blocks():
                self.count += whole.count
                self._digest.update(whole.data)
                done.read(len(whole.data))
                yield whole
        except SegmentTruncated as truncated:
            self.gone_until = truncated.start_offset
        except NoSuchSegment:
            check_gone(self._store, self._planned.stream, self._planned.segment)
            self.gone_until = self._planned.segment_end
        except NotAnEvent as error:
            if not error.length:
                raise
            if error.length > HEADER_BYTES + self._largest:  # the walk names its own limit, which is lower
                raise no_event(error.where, error.offset, error.length - HEADER_BYTES, self._largest) from None
            self.large = error.length


class LargeEventReader:
    """Reads one event of more than 8 MiB.

    Attributes:
        start: offset of its header.
        end: offset after the event once it has been read; until then `start`.
        length: length of the event, header included (bytes).
        gone_until: everything between `end` and this offset has been truncated at the source.
    """

    large = 0

    def __init__(self, store: StreamStore, planned: SegmentSpan, start: int, length: int) -> None:
        self._store = store
        self._planned = planned
        self._digest = hashlib.sha256()
        self.start = self.end = self.gone_until = start
        self.length = length

    @property
    def count(self) -> int:
        """1 if the event has been read completely; otherwise 0."""
        return int(self.end > self.start)

    @property
    def digest(self) -> str:
        """SHA-256 of the event with its header, hexadecimal, once it has been read."""
        return self._digest.hexdigest()

    def data(self) -> Iterator[memoryview]:
        """Yield the event's bytes, header included, in blocks that are valid until the next one is requested.

        Raises:
            SegmentTruncated, NoSuchSegment: the event was truncated meanwhile, up to `gone_until`. What has been read
                of it is useless.
        """
        try:
            stream, segment = self._planned.stream, self._planned.segment
            for block in self._store.read(stream, segment, self.start, self.start + self.length):
                self._digest.update(block)
                task_progress().read(len(block))
                yield block
        except SegmentTruncated as truncated:
            # A truncation that ignores event boundaries may have cut the event: its remaining bytes are not an event.
            self.gone_until = max(truncated.start_offset, self.start + self.length)
            raise
        except NoSuchSegment:
            check_gone(self._store, self._planned.stream, self._planned.segment)
            self.gone_until = self.start + self.length
            raise
        self.end = self.start + self.length

    def blocks(self) -> Iterator[EventBlock]:
        """Yield the event as one block, buffered whole; nothing if it was truncated meanwhile."""
        held = bytearray()
        try:
            for block in self.data():
                held += block
        except (SegmentTruncated, NoSuchSegment):
            return
        yield EventBlock(self.start, memoryview(held), 1)
