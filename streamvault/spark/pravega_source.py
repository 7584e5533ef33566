"""The format ``pravega``: reads a stream in batches or continuously, and writes to it."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from streamvault.spark.archive_first import ArchiveFirstReader
from streamvault.spark.options import options_for, read_options, schema_for, write_options
from streamvault.spark.pattern_readers import PatternReader, PatternStreamReader
from streamvault.spark.pravega_reader import PravegaReader, PravegaStreamReader
from streamvault.spark.pravega_sink import PravegaSink, PravegaStreamSink


class PravegaDataSource(DataSource):
    """The data source ``pravega``; its options are described in docs/reference/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "pravega"

    def schema(self) -> StructType:
        """Return an event's columns."""
        return schema_for(self.options, lambda given: read_options(given).columns)

    def reader(self, schema: StructType) -> PravegaReader | PatternReader:
        """Return a reader up to the tail that the stream has when the query is planned."""
        reading = read_options(options_for(self.options, schema), streaming=False)
        return PatternReader(reading, schema) if reading.pattern else PravegaReader(reading, schema)

    def streamReader(self, schema: StructType) -> PravegaStreamReader | PatternStreamReader:  # noqa: N802
        """Return a reader of micro-batches, from one stream cut to the next."""
        reading = read_options(options_for(self.options, schema), streaming=True)
        if reading.pattern:
            return PatternStreamReader(reading, schema)
        return (ArchiveFirstReader if reading.archive else PravegaStreamReader)(reading, schema)

    def writer(self, schema: StructType, overwrite: bool) -> PravegaSink:
        """Return a sink that appends a data frame atomically."""
        return PravegaSink(write_options(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> PravegaStreamSink:  # noqa: N802
        """Return a sink that appends each micro-batch exactly once."""
        return PravegaStreamSink(write_options(self.options, schema, overwrite=overwrite, streaming=True))
