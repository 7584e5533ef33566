"""How a segment is cut into ranges, before anything is read.

A range starts at the first event boundary at or after a multiple of the range size and ends where the next one
starts. Where those boundaries are is known only once the events before them have been walked, so planning speaks of
*spans*: the stretch of offsets ``[low, high)`` in which a range's events begin. A span follows from the segment and the
range size alone; at most one range belongs to it (none, if one event covers it whole).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Span", "span_of", "spans_of"]


@dataclass(frozen=True, slots=True)
class Span:
    """Where the events of one range begin.

    Attributes:
        low: first offset (bytes), a multiple of the range size or the segment's start.
        high: the next multiple of the range size, or the segment's end if that comes first.
        known: whether `low` is an event boundary for certain (the segment's start).
    """

    low: int
    high: int
    known: bool


def spans_of(start: int, end: int, range_size: int) -> Iterator[Span]:
    """The spans of a segment from ``start`` to ``end``, in order; none if it is empty."""
    low = start
    while low < end:
        high = min((low // range_size + 1) * range_size, end)
        yield Span(low, high, known=low == start)
        low = high


def span_of(offset: int, end: int, range_size: int) -> Span:
    """The rest of the span in which a proved boundary lies."""
    return Span(offset, min((offset // range_size + 1) * range_size, end), known=True)
