"""What the readers of batches have in common: filters, and one task for each part."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from streamvault.spark.bounds import Bounds
from streamvault.spark.columns import arrow_schema

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
        schema: the columns that Spark requests.
    """

    def __init__(self, schema: StructType) -> None:
        self._schema = arrow_schema(schema)
        self._bounds = Bounds()

    @property
    def pushFilters(self) -> _PushFilters:  # noqa: N802  (Spark's name)
        """Use filters on epoch, segment and offset to skip parts; Spark still applies all filters to the rows."""
        return _PushFilters(self._bounds)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts in which events may pass the filters."""
        # Spark treats an empty list as one partition without a value
        return [PartPartition(part) for part in self._parts()] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a part's events."""
        if isinstance(partition, PartPartition):
            yield from self._events(partition.part)

    @abstractmethod
    def _parts(self) -> Iterable[P]:
        """Yield the parts in which events may pass the filters."""

    @abstractmethod
    def _events(self, part: P) -> Iterator[pa.RecordBatch]:
        """Yield a part's events."""
