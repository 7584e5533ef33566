"""Divides a segment into spans, before anything is read.

A range starts at the first event boundary at or after a multiple of the range size, and ends where the next one starts.
These boundaries are known only after reading the events before them, so plans use *spans*: the offsets ``[low, high)``
in which a range's events begin. A span depends only on the segment and the range size; it has at most one range (none
if one event covers the whole span).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamvault.streamstore.model import LARGEST_EVENT_BYTES, ContentKind, SegmentId, StreamName
from streamvault.streamstore.uri import StoreAddress


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets at which the events of one range begin.

    Attributes:
        low: first offset (bytes): a multiple of the range size, or the segment's start.
        high: the next multiple of the range size, or the segment's end if that comes first.
        known: whether `low` is certainly an event boundary (the segment's start).
    """

    low: int
    high: int
    known: bool


@dataclass(frozen=True, slots=True)
class SegmentSpan:
    """A span of a stream's segment, for the task that reads its range.

    Attributes:
        source: address of the stream's store.
        stream: the stream.
        segment: the segment.
        segment_end: the segment's end in this run (bytes); no event may extend beyond it.
        span: the span; if its start is not known to be an event boundary, the range's start is a guess.
        largest: maximum payload of an event (bytes), if the range's start is known. A guess accepts at most
            `MAX_EVENT_BYTES`; a range with larger events is then read again from the proved boundary.
        content: what the segment holds. A range of bytes is exactly its span: what is truncated beyond belongs to the
            ranges there.
    """

    source: StoreAddress
    stream: StreamName
    segment: SegmentId
    segment_end: int
    span: Span
    largest: int = LARGEST_EVENT_BYTES
    content: ContentKind = "events"

    @property
    def size(self) -> int:
        """Bytes of the span."""
        return self.span.high - self.span.low


def spans_of(start: int, end: int, range_size: int) -> Iterator[Span]:
    """Yield the spans of a segment from ``start`` to ``end``, in order; none if it is empty."""
    low = start
    while low < end:
        high = min((low // range_size + 1) * range_size, end)
        yield Span(low, high, known=low == start)
        low = high


def count_spans(start: int, end: int, range_size: int) -> int:
    """Return how many spans `spans_of` yields."""
    return (end - 1) // range_size - start // range_size + 1 if start < end else 0


def span_of(offset: int, end: int, range_size: int) -> Span:
    """Return the part of a span from a proved boundary on."""
    return Span(offset, min((offset // range_size + 1) * range_size, end), known=True)
