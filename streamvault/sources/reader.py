"""Reads ranges of a segment: the events that begin in a span, their digests, and what is truncated meanwhile."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace

from streamvault.common.errors import Failed, Problem
from streamvault.common.progress import task_progress
from streamvault.manifests.manifest import Manifest
from streamvault.manifests.plan import FinishedSpan, Gap, Plan, RangeEntry
from streamvault.manifests.spans import SegmentSpan
from streamvault.manifests.verbs.costs import Part
from streamvault.sources.identity import check_gone
from streamvault.streamstore.errors import InvalidCut, NoSuchSegment, SegmentTruncated
from streamvault.streamstore.events import EventBlock, EventSplitter, no_event, open_splitter
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES, SegmentId
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.walking import EventWalk, find_start

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
            header = self._store.read_bytes(planned.stream, planned.segment, self.end, header_end)
            size: int = _HEADER.unpack(header)[0]
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


class NotEvents(Failed):
    """A segment's bytes are not events, or the range began inside an event."""


def read_range(
    store: StreamStore, planned: SegmentSpan, consume: Callable[[RunReader | LargeEventReader], RangeEntry]
) -> FinishedSpan | None:
    """Find where the range of a span begins, and process its runs.

    Args:
        store: the stream's store.
        planned: the span.
        consume: reads the blocks of a run, or the data of a large event, and returns its description.

    Returns:
        The finished range; None if no event begins in the span, or the guess was wrong.

    Raises:
        NotEvents: a range that begins at a known boundary does not consist of events.
        InvalidCut: the segment's end in this run is inside an event.
    """
    if planned.content == "bytes":
        planned = replace(planned, span=replace(planned.span, known=True), segment_end=planned.span.high)
    found = _start(store, planned)
    if found is None or found.start >= planned.span.high:
        return None
    reader = SegmentReader(store, planned, found.start)
    try:
        ranges = tuple(_ranges(reader, consume))
    except NotAnEvent as error:
        if not planned.span.known:
            return None  # a wrong guess; the driver tries again from a proved boundary
        raise not_events(error, planned.segment.in_stream(planned.stream)) from None
    return FinishedSpan(
        start=found.start,
        end=reader.end,
        ranges=tuple(one for one in ranges if one.start < one.end),
        gaps=(*found.gaps, *reader.gaps),
    )


def _ranges(
    reader: SegmentReader, consume: Callable[[RunReader | LargeEventReader], RangeEntry]
) -> Iterator[RangeEntry]:
    """Yield the result of each run, except for a large event that is truncated while it is read.

    Raises:
        NoSuchSegment: the store does not find the segment, although the stream should still have it.
    """
    for run in reader.runs():
        try:
            found = consume(run)
        except (SegmentTruncated, NoSuchSegment):
            if run.gone_until <= run.start:
                raise
        else:
            yield found


_BYTES = "For a byte stream, use `export --content bytes`."


def not_events(error: NotAnEvent, where: str) -> Problem:
    """Return the error to raise if no event begins where one must."""
    if "cut" in error.what:
        return InvalidCut(f"the stream cut lies inside an event ({error.what})", where=where)
    if error.length:
        todo = f"If the stream has such large events, increase --largest-event. {_BYTES}"
        return NotEvents(error.what, where=where, todo=todo)
    return NotEvents(error.what, where=where, todo=f"A cut must be between events. {_BYTES}")


def find_range(planned: SegmentSpan) -> FinishedSpan | None:
    """Read a range only to find where it begins and ends. See `read_range`."""
    task_progress().only_reads()
    with planned.source.lend() as store:
        return read_range(store, planned, _only_read)


def _only_read(run: RunReader | LargeEventReader) -> RangeEntry:
    for _ in run.data() if isinstance(run, LargeEventReader) else run.blocks():
        pass
    return RangeEntry(start=run.start, end=run.end, events=run.count, digest=run.digest)


def _start(store: StreamStore, planned: SegmentSpan) -> FinishedSpan | None:
    """Return a row without content at the range's start; None if the start is not found."""
    span = planned.span
    if span.known:
        return FinishedSpan(start=span.low, end=span.low, ranges=())
    try:
        start = find_start(store, planned.stream, planned.segment, span.low, planned.segment_end)
    except SegmentTruncated as truncated:
        start = truncated.start_offset
        gap = Gap(start=span.low, end=start, reason=TRUNCATED)
        return FinishedSpan(start=start, end=start, ranges=(), gaps=(gap,))
    except NoSuchSegment:
        return None  # the task that starts at the known boundary determines what is gone
    return None if start is None else FinishedSpan(start=start, end=start, ranges=())


SAMPLE_SEGMENTS = 8
SAMPLE_BYTES = 1024 * 1024


def estimate_parts(store: StreamStore, plan: Plan | Manifest, largest: int) -> tuple[dict[SegmentId, Part], bool]:
    """Estimate what a plan writes of each segment that has bytes between its cuts.

    Args:
        store: the stream's store.
        plan: the plan.
        largest: maximum payload of an event (bytes).

    Returns:
        The parts by segment, and whether the numbers of events are exact: the sample, of the longest segments,
        contained all events.
    """
    gone = {gap.segment: gap.end for gap in plan.gaps}
    bounds = [(segment, max(segment.start, gone.get(segment.name, 0)), segment.end) for segment in plan.segments]
    held = sorted((one for one in bounds if one[1] < one[2]), key=lambda one: one[1] - one[2])
    sampled: dict[str, tuple[int, int]] = {}
    for segment, start, end in held[:SAMPLE_SEGMENTS] if plan.content == "events" else ():
        splitter, events = EventSplitter(start, segment.name, largest=largest), 0
        for block in store.read(plan.name, segment.id, start, min(end, start + SAMPLE_BYTES)):
            events += sum(1 for _ in splitter.events(block))
        size = splitter.offset - start
        if splitter.pending:  # count the event at the sample's end as a whole: it may be much larger than the others
            events, size = events + 1, size + splitter.next_length
        sampled[segment.name] = events, size
    events, size = (sum(column) for column in zip((0, 0), *sampled.values(), strict=True))
    parts = {}
    for segment, start, end in held:
        of, among = sampled.get(segment.name, (events, size))
        count = max(round(of * (end - start) / among), 1) if among else 0
        parts[segment.id] = Part(start, end, count, plan.range_size)
    return parts, plan.content == "bytes" or size == sum(end - start for _, start, end in held)


def estimate_events(store: StreamStore, plan: Plan | Manifest, largest: int) -> int:
    """Estimate the number of events between a plan's cuts; arguments as for `estimate_parts`."""
    return sum(part.events for part in estimate_parts(store, plan, largest)[0].values())
