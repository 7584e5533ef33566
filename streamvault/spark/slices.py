"""Partitions of a stream: stretches of its segments, and reading one exactly.

A segment's bytes do not say where an event begins. A stretch that begins in the middle of a segment therefore either
begins at a boundary that is known (the driver walked there), or guesses one; then the stretch before it ends with a
proof: it looks where the next one guessed, and fails unless that is where its own last event ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from common.errors import Failed
from exporter.spans import spans_of
from lake.batches import batch_of
from streamstore.errors import NoSuchSegment, SegmentTruncated
from streamstore.framing import NotAnEvent
from streamstore.model import LARGEST_EVENT_BYTES, MAX_EVENT_BYTES, SegmentId, StreamName
from streamstore.splitting import EventBlock
from streamstore.store import StreamStore
from streamstore.walking import EventWalk, find_start

__all__ = ["DataLoss", "Stretch", "StretchPartition", "between", "cut_walked", "guessed", "read_stretch"]

BATCH_ROWS = 64 * 1024
"""The most events of a batch; its bytes are those of a block of the store, 2 MiB, or of one larger event."""


class DataLoss(Failed):
    """Events that should be read are gone from the stream."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The events of a segment that begin in ``[start, high)``.

    Attributes:
        segment: which segment.
        start: where to begin (bytes). high: the first offset of the next stretch. end: where the segment ends for this
            read.
        emit_from: events before this offset are walked over and not read further.
        range_size: 0 if `start` is an event boundary; else it has to be guessed, unless `is_first`, and what follows is
            cut into ranges of this size.
        is_first: whether the segment's reading begins here.
    """

    segment: SegmentId
    start: int
    high: int
    end: int
    emit_from: int = 0
    range_size: int = 0
    is_first: bool = True


class StretchPartition(InputPartition):
    """What one task reads."""

    def __init__(self, stretch: Stretch) -> None:
        self.stretch = stretch


def guessed(segment: SegmentId, start: int, end: int, range_size: int, emit_from: int = 0) -> list[Stretch]:
    """A segment's part cut at multiples of the range size; each task guesses where its events begin."""
    return [
        Stretch(segment, span.low, span.high, end, emit_from, range_size, is_first=span.known)
        for span in spans_of(start, end, range_size)
    ]


def cut_walked(walk: EventWalk, range_size: int) -> list[int]:
    """Event boundaries about a range size apart, from a walk's start to where its last event ends. Reads all of it.

    Raises:
        NotAnEvent: the start or the end lies inside an event.
    """
    boundaries = [walk.end]
    for block in walk.blocks():
        if block.end - boundaries[-1] >= range_size:
            boundaries.append(block.end)
    return boundaries if walk.end == boundaries[-1] else [*boundaries, walk.end]


def between(segment: SegmentId, boundaries: list[int]) -> list[Stretch]:
    """The stretches between known boundaries."""
    return [Stretch(segment, low, high, high) for low, high in pairwise(boundaries)]


def read_stretch(
    store: StreamStore, stream: StreamName, stretch: Stretch, schema: pa.Schema, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The events of a stretch, in order, as batches.

    Raises:
        DataLoss: some of it is gone from the stream, and that matters.
        Failed: a guess was wrong, so that the query has to be run again in another way.
        NotAnEvent: the segment holds something else, or a cut lies inside an event.
    """
    try:
        yield from _read(store, stream, stretch, schema)
    except SegmentTruncated as truncated:
        if fail_on_data_loss or stretch.range_size:
            raise _lost(stream, stretch, truncated.start_offset) from None
        if truncated.start_offset < stretch.high:
            # what was read before lies below what was truncated away
            rest = Stretch(stretch.segment, truncated.start_offset, stretch.high, stretch.end, stretch.emit_from)
            yield from read_stretch(store, stream, rest, schema, fail_on_data_loss=False)
    except NoSuchSegment:
        if fail_on_data_loss:
            raise _lost(stream, stretch, stretch.end) from None


def _read(store: StreamStore, stream: StreamName, stretch: Stretch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    start: int | None = stretch.start
    if not stretch.is_first:
        start = find_start(store, stream, stretch.segment, stretch.start, stretch.end)
    if start is None or start >= stretch.high:
        return
    walk = EventWalk(
        store,
        stream,
        stretch.segment,
        start=start,
        high=stretch.high,
        segment_end=stretch.end,
        largest=LARGEST_EVENT_BYTES if stretch.is_first else MAX_EVENT_BYTES,
    )
    try:
        for block in walk.blocks():
            if block.end > stretch.emit_from:
                yield from _batches(stream, stretch.segment, block, schema)
    except NotAnEvent as error:
        if stretch.is_first:
            raise
        raise _wrong_guess(stream, stretch, error.offset if error.length else start) from None
    if stretch.range_size:
        _prove_next(store, stream, stretch, walk.end)


def _batches(stream: StreamName, segment: SegmentId, block: EventBlock, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    batch = batch_of(stream, segment, block, schema)
    for low in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(low, BATCH_ROWS)


def _prove_next(store: StreamStore, stream: StreamName, stretch: Stretch, ended: int) -> None:
    """Make the guesses of the stretches behind this one, up to where its last event ended, and look if they are right.

    By induction from the first stretch, whose start is known, all of a segment is then read exactly if no task fails.
    """
    for span in spans_of(stretch.high, stretch.end, stretch.range_size):
        guess = find_start(store, stream, stretch.segment, span.low, stretch.end)
        if ended >= span.high:
            # one event covers the whole span, so no event begins there
            if guess is not None and guess < span.high:
                raise _wrong_guess(stream, stretch, guess)
            continue
        if guess != ended:
            raise _wrong_guess(stream, stretch, span.low if guess is None else guess)
        return


def _wrong_guess(stream: StreamName, stretch: Stretch, offset: int) -> Failed:
    return Failed(
        "a payload looks like events, or is larger than 8 MiB, so the segment cannot be cut where it was guessed",
        where=f"offset {offset} of {stretch.segment.in_stream(stream)}",
        todo="Nothing that was read counts. Set option boundaries to segment or walked.",
    )


def _lost(stream: StreamName, stretch: Stretch, start: int) -> DataLoss:
    return DataLoss(
        f"events are gone: the segment was truncated and begins at {start} now",
        where=f"{stretch.segment.in_stream(stream)}, to be read from {stretch.start} to {stretch.high}",
        todo="Set failOnDataLoss to false to go on with what is left.",
    )
