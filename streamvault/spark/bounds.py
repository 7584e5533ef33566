"""What the filters of a query say of where its events lie, so that the rest is not read.

A filter is used to leave out segments and stretches in which no event can pass; Spark applies it to the rows as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from streamstore.model import SegmentId

__all__ = ["Bounds"]

_MOST = 1 << 63


@dataclass
class _Range:
    """The whole numbers that a column may have.

    Attributes:
        low, high: the least, and the one behind the greatest. among: only these; None for all.
    """

    low: int = -_MOST
    high: int = _MOST
    among: frozenset[int] | None = None

    def take(self, one: Filter) -> None:
        """Narrow it by a filter on the column; one of another kind says nothing."""
        match one:
            case EqualTo(_, int(value)) | EqualNullSafe(_, int(value)):
                self.low, self.high = max(self.low, value), min(self.high, value + 1)
            case GreaterThan(_, int(value)):
                self.low = max(self.low, value + 1)
            case GreaterThanOrEqual(_, int(value)):
                self.low = max(self.low, value)
            case LessThan(_, int(value)):
                self.high = min(self.high, value)
            case LessThanOrEqual(_, int(value)):
                self.high = min(self.high, value + 1)
            case In(_, values):
                among = frozenset(value for value in values if isinstance(value, int))
                self.among = among if self.among is None else self.among & among
            case _:
                pass

    def meets(self, low: int, high: int) -> bool:
        """Whether one of ``[low, high)`` is among them."""
        low, high = max(low, self.low), min(high, self.high)
        if self.among is not None:
            return any(low <= value < high for value in self.among)
        return low < high


@dataclass
class Bounds:
    """Where events may lie that pass all filters; everywhere, as long as none was taken."""

    _columns: dict[str, _Range] = field(
        default_factory=lambda: {name: _Range() for name in ("epoch", "segment", "offset")}
    )

    def take(self, filters: Iterable[Filter]) -> None:
        """Narrow it by filters that all have to pass."""
        for one in filters:
            attribute: Any = getattr(one, "attribute", ())
            column = self._columns.get(str(attribute[0]).lower()) if len(attribute) == 1 else None
            if column is not None:
                column.take(one)

    def meet_segment(self, segment: SegmentId) -> bool:
        """Whether events of a segment may pass."""
        epoch, number = self._columns["epoch"], self._columns["segment"]
        return epoch.meets(segment.epoch, segment.epoch + 1) and number.meets(segment.number, segment.number + 1)

    def meet(self, segment: SegmentId, start: int, end: int) -> bool:
        """Whether events may pass that begin in a stretch of a segment."""
        return self.meet_segment(segment) and self._columns["offset"].meets(start, end)

    def stop_at(self, end: int) -> int:
        """The offset from which on no event passes, or the end if that comes first."""
        column = self._columns["offset"]
        high = column.high if column.among is None else min(column.high, max(column.among, default=-1) + 1)
        return min(end, high)

    @property
    def start_at(self) -> int:
        """The offset before which no event passes."""
        column = self._columns["offset"]
        return max(0, column.low, 0 if column.among is None else min(column.among, default=0))
