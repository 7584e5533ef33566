"""What the readers have in common: filters, bounds, and one task for each part.

Bounds on the position of events, derived from a query's filters.

Segments and ranges in which no event can pass are not read; Spark still applies the filters to the rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from streamvault.spark.columns import EventColumns
from streamvault.streamstore.model import SegmentId

_MOST = 1 << 63


@dataclass
class _Range:
    """Possible values of an integer column.

    Attributes:
        low: the minimum.
        high: the maximum plus 1.
        among: the only possible values; None if not limited.
    """

    low: int = -_MOST
    high: int = _MOST
    among: frozenset[int] | None = None

    def take(self, one: Filter) -> None:
        """Narrow the values by a filter on the column; ignore other kinds of filters."""
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
        """Return whether a value in ``[low, high)`` is possible."""
        low, high = max(low, self.low), min(high, self.high)
        if self.among is not None:
            return any(low <= value < high for value in self.among)
        return low < high


@dataclass
class Bounds:
    """Positions of the events that may pass all filters; without filters, all positions."""

    _columns: dict[str, _Range] = field(
        default_factory=lambda: {name: _Range() for name in ("epoch", "segment", "offset")}
    )

    def take(self, filters: Iterable[Filter]) -> None:
        """Narrow the positions by filters, all of which must pass."""
        for one in filters:
            attribute: Any = getattr(one, "attribute", ())
            column = self._columns.get(str(attribute[0]).lower()) if len(attribute) == 1 else None
            if column is not None:
                column.take(one)

    def meet_segment(self, segment: SegmentId) -> bool:
        """Return whether events of a segment may pass."""
        epoch, number = self._columns["epoch"], self._columns["segment"]
        return epoch.meets(segment.epoch, segment.epoch + 1) and number.meets(segment.number, segment.number + 1)

    def meet(self, segment: SegmentId, start: int, end: int) -> bool:
        """Return whether events of a segment that begin in ``[start, end)`` may pass."""
        return self.meet_segment(segment) and self._columns["offset"].meets(start, end)

    def stop_at(self, end: int) -> int:
        """Return the offset from which on no event can pass, at most ``end``."""
        column = self._columns["offset"]
        high = column.high if column.among is None else min(column.high, max(column.among, default=-1) + 1)
        return min(end, high)

    @property
    def start_at(self) -> int:
        """The offset before which no event can pass."""
        column = self._columns["offset"]
        return max(0, column.low, 0 if column.among is None else min(column.among, default=0))


P = TypeVar("P")


class _PushFilters:
    """A reader's method ``pushFilters``.

    PySpark refuses a reader with such a method if ``spark.sql.python.filterPushdown.enabled`` is not set, as some
    readers rely on being asked. These do not: Spark applies all filters to the rows. So it passes for the method of the
    base class, by which PySpark tells whether there is one.

    Args:
        bounds: what the filters limit.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        self._bounds.take(filters)
        return filters


class PartPartition(InputPartition, Generic[P]):
    """A part of an archive or a stream, which one task reads."""

    def __init__(self, part: P) -> None:
        self.part = part


class BatchReader(DataSourceReader, Generic[P]):
    """Plans on the driver which parts to read, and reads them in tasks.

    Args:
        columns: the columns that Spark requests.
    """

    def __init__(self, columns: EventColumns) -> None:
        self._columns = columns
        self._bounds = Bounds()

    @property
    def pushFilters(self) -> _PushFilters:  # noqa: N802  (Spark's name)
        """Use filters on epoch, segment and offset to skip parts; Spark still applies all filters to the rows."""
        return _PushFilters(self._bounds)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts in which events may pass the filters."""
        # Spark treats an empty list as one partition without a value
        return [PartPartition(part) for part in self.parts()] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a part's events."""
        if isinstance(partition, PartPartition):
            yield from self._columns.of(self._events(partition.part))

    @abstractmethod
    def parts(self) -> Iterable[P]:
        """Yield the parts in which events may pass the filters."""

    @abstractmethod
    def _events(self, part: P) -> Iterator[pa.RecordBatch]:
        """Yield a part's events, with the columns `EventColumns.own`."""
