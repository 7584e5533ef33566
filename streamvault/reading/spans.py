"""Divides a segment into spans, before anything is read.

A range starts at the first event boundary at or after a multiple of the range size, and ends where the next one starts.
These boundaries are known only after reading the events before them, so plans use *spans*: the offsets ``[low, high)``
in which a range's events begin. A span depends only on the segment and the range size; it has at most one range (none
if one event covers the whole span).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


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


def spans_of(start: int, end: int, range_size: int) -> Iterator[Span]:
    """Yield the spans of a segment from ``start`` to ``end``, in order; none if it is empty."""
    low = start
    while low < end:
        high = min((low // range_size + 1) * range_size, end)
        yield Span(low, high, known=low == start)
        low = high


def span_of(offset: int, end: int, range_size: int) -> Span:
    """Return the part of a span from a proved boundary on."""
    return Span(offset, min((offset // range_size + 1) * range_size, end), known=True)
