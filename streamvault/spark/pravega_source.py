"""The format ``pravega``: reads a stream in batches or continuously, and writes to it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from streamvault.manifests.archive import Archive
from streamvault.manifests.manifest import SchemaGroup
from streamvault.spark.archive_first import ArchiveFirstReader
from streamvault.spark.columns import EventColumns, schemas_of, spark_schema
from streamvault.spark.options import Reading, options_for, read_options, schema_for, write_options
from streamvault.spark.pattern_readers import PatternReader, PatternStreamReader
from streamvault.spark.pravega_reader import PravegaReader, PravegaStreamReader
from streamvault.spark.pravega_sink import PravegaSink, PravegaStreamSink


def _schemas(reading: Reading) -> SchemaGroup | None:
    """Return what decodes the payloads of a query; None if they are not decoded."""
    archive = Archive.open(reading.archive) if reading.archive and reading.decoding else None
    return schemas_of(reading.decoding, reading.stream, archive)


def _columns(schema: StructType, reading: Reading) -> EventColumns:
    return EventColumns(schema, _schemas(reading))


class PravegaDataSource(DataSource):
    """The data source ``pravega``; its options are described in docs/reference/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "pravega"

    def schema(self) -> StructType:
        """Return an event's columns, and the fields of its payload if it is decoded."""

        def columns(given: Mapping[str, str]) -> StructType:
            reading = read_options(given)
            return spark_schema(reading.columns, _schemas(reading))

        return schema_for(self.options, columns)

    def reader(self, schema: StructType) -> PravegaReader | PatternReader:
        """Return a reader up to the tail that the stream has when the query is planned."""
        reading = read_options(options_for(self.options, schema), streaming=False)
        return (PatternReader if reading.pattern else PravegaReader)(reading, _columns(schema, reading))

    def streamReader(self, schema: StructType) -> PravegaStreamReader | PatternStreamReader:  # noqa: N802
        """Return a reader of micro-batches, from one stream cut to the next."""
        reading = read_options(options_for(self.options, schema), streaming=True)
        columns = _columns(schema, reading)
        if reading.pattern:
            return PatternStreamReader(reading, columns)
        return (ArchiveFirstReader if reading.archive else PravegaStreamReader)(reading, columns)

    def writer(self, schema: StructType, overwrite: bool) -> PravegaSink:
        """Return a sink that appends a data frame atomically."""
        return PravegaSink(write_options(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> PravegaStreamSink:  # noqa: N802
        """Return a sink that appends each micro-batch exactly once."""
        return PravegaStreamSink(write_options(self.options, schema, overwrite=overwrite, streaming=True))
