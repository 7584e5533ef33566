"""The format ``pravega``: a stream, read once or as it grows, and written to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from streamstore.model import LARGEST_EVENT_BYTES, SegmentId
from streamstore.store import StreamStore
from streamstore.walking import EventWalk
from streamvault.spark.bounds import Bounds
from streamvault.spark.columns import arrow_schema, spark_schema
from streamvault.spark.pravega_sink import PravegaSink, PravegaStreamSink
from streamvault.spark.pravega_stream import PravegaStreamReader
from streamvault.spark.reading import Reading, read_options
from streamvault.spark.selecting import as_cut, select_stretches
from streamvault.spark.stretches import Stretch, StretchPartition, between, cut_walked, guessed, read_stretch
from streamvault.spark.writing import write_options

__all__ = ["PravegaReader", "PravegaSource"]


class PravegaSource(DataSource):
    """See `streamvault.spark`; the options are described in docs/guide/spark.md."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "pravega"

    def schema(self) -> StructType:
        """An event's columns."""
        return spark_schema(read_options(self.options).columns)

    def reader(self, schema: StructType) -> PravegaReader:
        """Reads once, up to the tail that the stream had when the query was planned."""
        return PravegaReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> PravegaStreamReader:  # noqa: N802  (Spark's name)
        """Reads what comes, from one stream cut to the next."""
        return PravegaStreamReader(read_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> PravegaSink:
        """Appends to a stream, all or nothing."""
        return PravegaSink(write_options(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> PravegaStreamSink:  # noqa: N802
        """Appends the micro-batches of a query, each once."""
        return PravegaStreamSink(write_options(self.options, schema, overwrite=overwrite, streaming=True))


class PravegaReader(DataSourceReader):
    """Plans and reads stretches of segments.

    Args:
        reading: the options. schema: what Spark wants to have.
    """

    def __init__(self, reading: Reading, schema: StructType) -> None:
        self._reading = reading
        self._schema = arrow_schema(schema)
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Remember what filters on epoch, segment and offset leave out; Spark applies all of them to the rows."""
        self._bounds.take(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """The stretches of the stream in which events may pass the filters."""
        reading = self._reading
        with reading.address.lend() as store:
            described = store.describe(reading.stream)
            start, end = (as_cut(described, cut) for cut in (reading.from_cut, reading.to_cut))
            parts = select_stretches(described, store, start, end, fail_on_data_loss=reading.fail_on_data_loss)
            planned = [stretch for part in parts for stretch in self._cut(store, *part)]
        # Spark takes an empty list for one partition without a value
        return [StretchPartition(stretch) for stretch in planned] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A stretch's events."""
        if not isinstance(partition, StretchPartition):
            return
        reading = self._reading
        with reading.address.lend() as store:
            yield from read_stretch(
                store,
                reading.stream,
                partition.stretch,
                self._schema,
                fail_on_data_loss=reading.fail_on_data_loss,
            )

    def _cut(self, store: StreamStore, segment: SegmentId, start: int, end: int) -> list[Stretch]:
        """A segment's part as partitions, without those in which no event passes the filters."""
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
                stretches = between(segment, cut_walked(walk, size))
                return [one for one in stretches if self._bounds.meet(segment, one.start, one.high)]
            case "guessed":
                # none is left out before the last: each proves the next
                return [one for one in guessed(segment, start, end, size, emit_from) if one.start < high]
            case _:
                return [Stretch(segment, start, high, end, emit_from)]
