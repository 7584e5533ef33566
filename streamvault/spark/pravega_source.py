"""The format ``pravega``: read a stream in batches or continuously, and write to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from streamvault.spark.batch_reader import BatchReader
from streamvault.spark.pravega_sink import PravegaSink, PravegaStreamSink
from streamvault.spark.pravega_stream import PravegaStreamReader
from streamvault.spark.reading import Reading, read_options
from streamvault.spark.segment_parts import SegmentPart, as_cut, known_parts, read_events, readable_parts
from streamvault.spark.tables import options_for, schema_for
from streamvault.spark.writing import write_options
from streamvault.streamstore.store import StreamStore


class PravegaDataSource(DataSource):
    """The data source ``pravega``; its options are described in docs/reference/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "pravega"

    def schema(self) -> StructType:
        """Return an event's columns."""
        return schema_for(self.options, lambda given: read_options(given).columns)

    def reader(self, schema: StructType) -> PravegaReader:
        """Return a reader up to the tail that the stream has when the query is planned."""
        return PravegaReader(read_options(options_for(self.options, schema), streaming=False), schema)

    def streamReader(self, schema: StructType) -> PravegaStreamReader:  # noqa: N802  (Spark's name)
        """Return a reader of micro-batches, from one stream cut to the next."""
        return PravegaStreamReader(read_options(options_for(self.options, schema), streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> PravegaSink:
        """Return a sink that appends a data frame atomically."""
        return PravegaSink(write_options(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> PravegaStreamSink:  # noqa: N802
        """Return a sink that appends each micro-batch exactly once."""
        return PravegaStreamSink(write_options(self.options, schema, overwrite=overwrite, streaming=True))


class PravegaReader(BatchReader[SegmentPart]):
    """Plans and reads parts of segments.

    Args:
        reading: the options.
        schema: the columns that Spark requests.
    """

    def __init__(self, reading: Reading, schema: StructType) -> None:
        super().__init__(schema)
        self._reading = reading

    def _parts(self) -> list[SegmentPart]:
        reading = self._reading
        with reading.look() as (store, described):
            start, end = (as_cut(described, cut) for cut in (reading.from_cut, reading.to_cut))
            readable = readable_parts(reading, store, described, start, end)
            size = reading.split_size(sum(whole.end - whole.start for whole in readable))
            return [part for whole in readable for part in self._split(store, whole, size)]

    def _events(self, part: SegmentPart) -> Iterator[pa.RecordBatch]:
        return read_events(self._reading, part, self._schema)

    def _split(self, store: StreamStore, whole: SegmentPart, size: int) -> list[SegmentPart]:
        """Split a part of a segment, and leave out the parts in which no event can pass the filters."""
        segment = whole.segment
        if not self._bounds.meet(segment, whole.start, whole.end):
            return []
        high = self._bounds.stop_at(whole.end)
        part = replace(whole, high=high, emit_from=self._bounds.start_at)
        match self._reading.boundaries:
            case "walked":
                parts = known_parts(segment, part.boundaries(store, self._reading.stream, size))
                return [one for one in parts if self._bounds.meet(segment, one.start, one.high)]
            case "guessed":
                # only parts at the end may be omitted, as each proves the next
                return [one for one in part.guessed(size) if one.start < high]
            case _:
                return [part]
