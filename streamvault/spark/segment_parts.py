"""Partitions of a stream: parts of its segments between two cuts, each read exactly, and what was lost of them.

A segment's bytes do not show where an event begins. So a part in the middle of a segment begins either at a known
boundary (the driver read up to it) or at a guessed one. In the latter case the part before it proves the guess: it
repeats the guess, and fails unless its own last event ends there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from streamvault.common.errors import Failed
from streamvault.lake.read import batch_of
from streamvault.sources.spans import spans_of
from streamvault.spark.options import Reading
from streamvault.streamstore.cuts import infos_if_there, is_before, segments_between
from streamvault.streamstore.errors import InvalidCut, NoSuchSegment, SegmentTruncated
from streamvault.streamstore.events import EventBlock, EventSplitter
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import (
    LARGEST_EVENT_BYTES,
    MAX_EVENT_BYTES,
    SegmentId,
    SegmentInfo,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.walking import EventWalk, find_start

BATCH_ROWS = 64 * 1024
"""Maximum events of a batch; its size is that of a block of the store, 2 MiB, or of one larger event."""


class DataLoss(Failed):
    """Events to be read were truncated."""


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """The events of a segment that begin in ``[start, high)``.

    Attributes:
        segment: the segment.
        start: where to begin (bytes).
        high: start of the next part.
        end: where the segment ends for this read.
        emit_from: skip events before this offset.
        range_size: 0 if `start` is an event boundary. Otherwise the boundary must be guessed, unless `is_first`, and
            the following parts have this size.
        is_first: whether the reading of the segment begins here.
    """

    segment: SegmentId
    start: int
    high: int
    end: int
    emit_from: int = 0
    range_size: int = 0
    is_first: bool = True

    def walk(self, store: StreamStore, stream: StreamName, largest: int = LARGEST_EVENT_BYTES) -> EventWalk:
        """Return a walk of the events, given that `start` is an event boundary."""
        splitter = EventSplitter(self.start, self.segment.in_stream(stream), largest=largest, starts=True)
        return EventWalk(store, stream, self.segment, splitter, high=self.high, segment_end=self.end)

    def boundaries(self, store: StreamStore, stream: StreamName, size: int) -> list[int]:
        """Return event boundaries about a size apart, from `start` to the end of the last event. Reads it all.

        Raises:
            NotAnEvent: the start or the end lies inside an event.
        """
        walk = self.walk(store, stream)
        found = [walk.end]
        for block in walk.blocks():
            if block.end - found[-1] >= size:
                found.append(block.end)
        return found if walk.end == found[-1] else [*found, walk.end]

    def guessed(self, range_size: int) -> list[SegmentPart]:
        """Split the part at multiples of the range size; each task guesses where its events begin."""
        return [
            replace(self, start=span.low, high=span.high, range_size=range_size, is_first=span.known)
            for span in spans_of(self.start, self.end, range_size)
        ]


def known_parts(segment: SegmentId, boundaries: list[int]) -> list[SegmentPart]:
    """Return the parts between known boundaries."""
    return [SegmentPart(segment, low, high, high) for low, high in pairwise(boundaries)]


def read_events(reading: Reading, part: SegmentPart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the events of a part, in order, as batches.

    Raises:
        DataLoss: events were truncated, and the query fails if so.
        Failed: a guess was wrong, so the query must be run again with other ``boundaries``.
        NotAnEvent: the segment contains other data, or a cut lies inside an event.
    """
    with reading.address.lend() as store:
        left: SegmentPart | None = part
        while left is not None:
            part, left = left, None
            try:
                yield from _read(store, reading.stream, part, schema)
            except SegmentTruncated as truncated:
                if reading.fail_on_data_loss or part.range_size:
                    raise _lost(reading.stream, part, truncated.start_offset) from None
                if truncated.start_offset < part.high:
                    # events read so far lie below the truncation
                    left = replace(part, start=truncated.start_offset)
            except NoSuchSegment:
                if reading.fail_on_data_loss:
                    raise _lost(reading.stream, part, part.end) from None


def _read(store: StreamStore, stream: StreamName, part: SegmentPart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    start: int | None = part.start
    if not part.is_first:
        start = find_start(store, stream, part.segment, part.start, part.end)
    if start is None or start >= part.high:
        return
    largest = LARGEST_EVENT_BYTES if part.is_first else MAX_EVENT_BYTES
    walk = replace(part, start=start).walk(store, stream, largest)
    try:
        for block in walk.blocks():
            if block.end > part.emit_from:
                yield from _batches(stream, part.segment, block, schema)
    except NotAnEvent as error:
        if part.is_first:
            raise
        raise _wrong_guess(stream, part, error.offset if error.length else start) from None
    if part.range_size:
        _prove_next(store, stream, part, walk.end)


def _batches(stream: StreamName, segment: SegmentId, block: EventBlock, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    batch = batch_of(stream, segment, block, schema)
    for low in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(low, BATCH_ROWS)


def _prove_next(store: StreamStore, stream: StreamName, part: SegmentPart, ended: int) -> None:
    """Repeat the guesses of the following parts, up to the end of this part's last event, and check them.

    By induction from the first part, whose start is known, the segment is read exactly if no task fails.
    """
    for span in spans_of(part.high, part.end, part.range_size):
        guess = find_start(store, stream, part.segment, span.low, part.end)
        if ended >= span.high:
            # one event covers the whole span, so no event begins there
            if guess is not None and guess < span.high:
                raise _wrong_guess(stream, part, guess)
            continue
        if guess != ended:
            raise _wrong_guess(stream, part, span.low if guess is None else guess)
        return


def _wrong_guess(stream: StreamName, part: SegmentPart, offset: int) -> Failed:
    return Failed(
        "a guessed event boundary is wrong: a payload looks like events, or is larger than 8 MiB",
        where=f"offset {offset} of {part.segment.in_stream(stream)}",
        todo="Discard the rows read so far, and set the option boundaries to segment or walked.",
    )


def _lost(stream: StreamName, part: SegmentPart, start: int) -> DataLoss:
    return DataLoss(
        f"the segment was truncated and now begins at {start}",
        where=f"{part.segment.in_stream(stream)}, to be read from {part.start} to {part.high}",
        todo="Set failOnDataLoss to false to read the remaining events.",
    )


def as_cut(described: StreamDescription, requested: StreamCut | str) -> StreamCut:
    """Return a validated cut; for ``earliest`` and ``latest``, the current head and tail.

    Raises:
        InvalidCut: the cut is not of this stream, or lies beyond its tail.
    """
    if isinstance(requested, StreamCut):
        if not is_before(described, requested, described.tail):
            raise InvalidCut("the stream cut lies beyond the stream's tail", where=str(requested.to_json()))
        return requested
    return described.head if requested == "earliest" else described.tail


def readable_parts(
    reading: Reading, store: StreamStore, described: StreamDescription, start: StreamCut, end: StreamCut
) -> list[SegmentPart]:
    """Return what can be read of each segment between two cuts, in the stream's order.

    Raises:
        DataLoss: events were truncated, and the query fails if so.
        InvalidCut: ``start`` does not lie before ``end``, or a cut names an offset beyond a segment's end.
    """
    requested = segments_between(described, start, end)
    infos = infos_if_there(store, described.name, list(requested))
    found = []
    for segment, (low, high) in requested.items():
        info = infos[segment]
        first = _first(described, info, segment, low)
        if first is None or info is None:
            if reading.fail_on_data_loss and high != low:
                raise _gone(described.name, segment, "the segment was deleted")
            continue
        stop = info.write_offset if high is None else high
        if max(low, stop) > info.write_offset:
            where = f"offset {max(low, stop)} of {segment.in_stream(described.name)}"
            raise InvalidCut(f"the stream cut lies beyond the segment's end ({info.write_offset})", where=where)
        if reading.fail_on_data_loss and first > low and stop > low:
            raise _gone(described.name, segment, f"the segment now begins at {first}, not at {low}")
        if first < stop:
            found.append(SegmentPart(segment, first, stop, stop))
    return found


def _first(described: StreamDescription, info: SegmentInfo | None, segment: SegmentId, low: int) -> int | None:
    """Return the first offset from ``low`` on that still exists; None if the segment lies before the stream's head."""
    if info is None:
        return None
    if segment in described.head.offsets:
        return max(low, info.start_offset, described.head.offsets[segment])
    ranges = described.ranges()
    held = ranges[segment]
    if any(other.epoch > segment.epoch and held.overlaps(ranges[other]) for other in described.head.offsets):
        return None
    return max(low, info.start_offset)


def _gone(stream: StreamName, segment: SegmentId, what: str) -> DataLoss:
    return DataLoss(
        f"events to be read were truncated: {what}",
        where=segment.in_stream(stream),
        todo="Set failOnDataLoss to false to read the remaining events, or start at 'earliest'. A query that has a "
        "checkpoint ignores startingOffsets: it also needs a new checkpoint.",
    )
