"""A data source whose rows are made once and repeated: what Spark alone takes to receive an event's columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from streamvault.lake.read import event_batches
from streamvault.spark.columns import spark_schema
from streamvault.streamstore.framing import frame
from streamvault.streamstore.model import SegmentId, StreamName

BATCH_BYTES = 2 * 1024 * 1024
"""Segment bytes of a batch, as of a block of Pravega."""


class MadeRows(DataSource):
    """Options: ``stream``, ``size`` of a payload (bytes), ``parts``, and the ``count`` of events in each."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "made"

    def schema(self) -> StructType:
        """Return all columns of an event."""
        return spark_schema(None)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return a reader of the parts."""
        return _MadeReader(self.options["stream"], *(int(self.options[name]) for name in ("size", "parts", "count")))


class _MadeReader(DataSourceReader):
    def __init__(self, stream: str, size: int, parts: int, count: int) -> None:
        self._stream = StreamName(*stream.split("/"))
        self._size = size
        self._parts = parts
        self._count = count

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        event = frame(bytes(self._size))
        segment, block = SegmentId(0, partition.value), event * (BATCH_BYTES // len(event))
        [batch] = event_batches(self._stream, segment, 0, [block])
        whole, rest = divmod(self._count, len(batch))
        yield from repeat(batch, whole)
        yield batch.slice(0, rest)
