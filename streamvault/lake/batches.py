"""Convert events to Arrow record batches: the only place that defines an event's columns.

Columns are made from the offsets of the events and the bytes as they are, without a Python value for each event;
payloads are copied once, from the segment's bytes into a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamvault.common.errors import Problem
from streamvault.lake.arrays import integers, numbers, text, texts
from streamvault.streamstore.arithmetic.splitting import EventBlock, EventSplitter
from streamvault.streamstore.model import ANY_EVENT_BYTES, HEADER_BYTES, SegmentId, StreamName

EVENT_SCHEMA = pa.schema(
    [
        pa.field("scope", pa.string()),
        pa.field("stream", pa.string()),
        pa.field("epoch", pa.int32()),
        pa.field("segment", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int32()),
        pa.field("pointer", pa.string()),
        pa.field("payload", pa.binary()),
    ]
)
"""An event's columns.

``epoch`` and ``segment`` are creation epoch and number of the segment, ``offset`` that of the event's header in it
(bytes), ``length`` with the 8-byte header as in the event pointer, ``pointer`` the text form
``scope/stream/N.#epoch.E:O-L``, ``payload`` the event without its header. The order of a stream is that of (epoch,
segment, offset).
"""

BATCH_BYTES = 4 * 1024 * 1024
"""Maximum segment bytes of a batch, unless a single event is larger; a range's blocks are rarely larger."""


FIRST_BYTES = 64
"""Segment bytes of the first batch of a reader that may stop early; each further one is twice as large."""


def event_batches(
    stream: StreamName,
    segment: SegmentId,
    start: int,
    blocks: Iterable[bytes | bytearray | memoryview],
    schema: pa.Schema = EVENT_SCHEMA,
    first: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the events of a part of a segment, in order, as batches of `EVENT_SCHEMA`.

    Memory: one block and its batch; a batch does not refer to the block's memory.

    Args:
        stream: the events' stream.
        segment: the events' segment.
        start: offset of the first event's header (bytes).
        blocks: the segment's bytes from ``start`` on, cut anywhere; the last event must be complete.
        schema: the columns of `EVENT_SCHEMA` to compute.
        first: segment bytes of the first batch, each further one being twice as large, up to `BATCH_BYTES`; None
            for batches of that size.

    Raises:
        NotAnEvent: the bytes are not events, or the last event is incomplete.
    """
    for events in event_blocks(start, segment.in_stream(stream), blocks, first):
        yield batch_of(stream, segment, events, schema)


def event_blocks(
    start: int, where: str, blocks: Iterable[bytes | bytearray | memoryview], first: int | None = None
) -> Iterator[EventBlock]:
    """Yield the events of a part of a segment, in order, in blocks small enough for one batch each.

    Args:
        start: offset of the first event's header (bytes).
        where: the segment's name for messages.
        blocks: the segment's bytes from ``start`` on, cut anywhere; the last event must be complete.
        first: as in `event_batches`.

    Raises:
        NotAnEvent: the bytes are not events, or the last event is incomplete.
    """
    splitter = EventSplitter(start, where, largest=ANY_EVENT_BYTES, starts=True)
    for block in _gathered(blocks, first):
        yield from splitter.feed(block)
    splitter.finish()


def _gathered(blocks: Iterable[bytes | bytearray | memoryview], first: int | None) -> Iterator[memoryview]:
    """Yield the same bytes in blocks, each valid until the next is requested; the last may be smaller.

    For ``first``, see `event_batches`. The end of each block cuts an
    event in two, whose row becomes a batch of its own.
    """
    held, size, full = memoryview(bytearray(BATCH_BYTES)), 0, first or BATCH_BYTES
    try:
        for block in blocks:
            left = memoryview(block)
            while left:
                some, left = left[: full - size], left[full - size :]
                if len(some) == full:
                    yield some
                else:
                    held[size : size + len(some)] = some
                    size += len(some)
                    if size < full:
                        continue
                    size = 0
                    yield held[:full]
                full = min(2 * full, BATCH_BYTES)
    except Problem:  # damage is found at the end of a range, after its bytes
        yield held[:size]
        raise
    yield held[:size]


def batch_of(
    stream: StreamName, segment: SegmentId, events: EventBlock, schema: pa.Schema = EVENT_SCHEMA
) -> pa.RecordBatch:
    """Return events of one segment as a batch of `EVENT_SCHEMA`, or of some of its columns."""
    starts = _starts(events)
    offset = numbers(starts[:-1].astype(np.int64) + events.offset)
    length = numbers(np.diff(starts))
    makers: dict[str, Callable[[], pa.Array]] = {
        "scope": lambda: texts(stream.scope, events.count),
        "stream": lambda: texts(stream.stream, events.count),
        "epoch": lambda: integers(segment.epoch, events.count),
        "segment": lambda: integers(segment.number, events.count),
        "offset": lambda: offset,
        "length": lambda: length,
        "pointer": lambda: _pointers(segment.in_stream(stream), offset, length),
        "payload": lambda: _payloads(events.data, starts),
    }
    return pa.RecordBatch.from_arrays([makers[name]() for name in schema.names], schema=schema)


def _pointers(segment: str, offset: pa.Array, length: pa.Array) -> pa.Array:
    name, until, nothing = text(f"{segment}:"), text("-"), text("")
    return pc.binary_join_element_wise(name, offset.cast(pa.string()), until, length.cast(pa.string()), nothing)


def _starts(events: EventBlock) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return the position of each event in the data, followed by the end of the last one."""
    starts, data = events.starts, events.data
    if starts is None and events.count:
        [again] = EventSplitter(0, largest=ANY_EVENT_BYTES, starts=True).feed(data)
        starts = again.starts
    found = np.full(events.count + 1, len(data), np.int32)
    found[:-1] = 0 if starts is None else starts
    return found


def _payloads(data: memoryview, starts: np.ndarray[tuple[int], np.dtype[np.int32]]) -> pa.Array:
    """Return the payloads as a column: every second value of an array over the data's headers and payloads."""
    count = len(starts) - 1
    ends = np.empty(2 * count + 1, np.int32)
    ends[0::2] = starts
    ends[1::2] = starts[:-1] + HEADER_BYTES
    both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    return both.take(numbers(np.arange(1, 2 * count, 2, dtype=np.int32)))
