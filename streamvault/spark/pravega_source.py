"""The format ``pravega``: read a stream in batches or continuously, and write to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from streamvault.spark.bounds import Bounds
from streamvault.spark.columns import arrow_schema, spark_schema
from streamvault.spark.pravega_sink import PravegaSink, PravegaStreamSink
from streamvault.spark.pravega_stream import PravegaStreamReader
from streamvault.spark.reading import Reading, read_options
from streamvault.spark.selecting import as_cut, readable_parts
from streamvault.spark.slices import (
    SegmentSlice,
    SlicePartition,
    guessed_slices,
    known_slices,
    read_slice,
    walked_boundaries,
)
from streamvault.spark.writing import write_options
from streamvault.streamstore.arithmetic.walking import EventWalk
from streamvault.streamstore.model import LARGEST_EVENT_BYTES, SegmentId
from streamvault.streamstore.store import StreamStore


class PravegaSource(DataSource):
    """The data source ``pravega``; its options are described in docs/guide/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "pravega"

    def schema(self) -> StructType:
        """Return an event's columns."""
        return spark_schema(read_options(self.options).columns)

    def reader(self, schema: StructType) -> PravegaReader:
        """Return a reader up to the tail that the stream has when the query is planned."""
        return PravegaReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> PravegaStreamReader:  # noqa: N802  (Spark's name)
        """Return a reader of micro-batches, from one stream cut to the next."""
        return PravegaStreamReader(read_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> PravegaSink:
        """Return a sink that appends a data frame atomically."""
        return PravegaSink(write_options(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> PravegaStreamSink:  # noqa: N802
        """Return a sink that appends each micro-batch exactly once."""
        return PravegaStreamSink(write_options(self.options, schema, overwrite=overwrite, streaming=True))


class PravegaReader(DataSourceReader):
    """Plans and reads slices of segments.

    Args:
        reading: the options.
        schema: the columns that Spark requests.
    """

    def __init__(self, reading: Reading, schema: StructType) -> None:
        self._reading = reading
        self._schema = arrow_schema(schema)
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Use filters on epoch, segment and offset to skip slices; Spark still applies all filters to the rows."""
        self._bounds.take(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Return the slices in which events may pass the filters."""
        reading = self._reading
        with reading.address.lend() as store:
            described = store.describe(reading.stream)
            start, end = (as_cut(described, cut) for cut in (reading.from_cut, reading.to_cut))
            parts = readable_parts(described, store, start, end, fail_on_data_loss=reading.fail_on_data_loss)
            planned = [one for part in parts for one in self._cut(store, *part)]
        # Spark treats an empty list as one partition without a value
        return [SlicePartition(one) for one in planned] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a slice's events."""
        if not isinstance(partition, SlicePartition):
            return
        reading = self._reading
        with reading.address.lend() as store:
            yield from read_slice(
                store,
                reading.stream,
                partition.part,
                self._schema,
                fail_on_data_loss=reading.fail_on_data_loss,
            )

    def _cut(self, store: StreamStore, segment: SegmentId, start: int, end: int) -> list[SegmentSlice]:
        """Split a part of a segment into slices, without those in which no event can pass the filters."""
        if not self._bounds.meet(segment, start, end):
            return []
        high, emit_from, size = self._bounds.stop_at(end), self._bounds.start_at, self._reading.range_size
        match self._reading.boundaries:
            case "walked":
                walk = EventWalk(
                    store,
                    self._reading.stream,
                    segment,
                    start=start,
                    high=high,
                    segment_end=end,
                    largest=LARGEST_EVENT_BYTES,
                )
                slices = known_slices(segment, walked_boundaries(walk, size))
                return [one for one in slices if self._bounds.meet(segment, one.start, one.high)]
            case "guessed":
                # only slices at the end may be omitted, as each proves the next
                return [one for one in guessed_slices(segment, start, end, size, emit_from) if one.start < high]
            case _:
                return [SegmentSlice(segment, start, high, end, emit_from)]
