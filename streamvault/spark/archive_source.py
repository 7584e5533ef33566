"""The format ``streamvault``: read an archive, with one partition for each range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from streamvault.lake.read import read_part
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.selection import RangePart, check_boundaries, select_parts
from streamvault.objectstore.uri import RootAddress
from streamvault.spark.batch_reader import BatchReader
from streamvault.spark.columns import spark_schema
from streamvault.spark.options import SourceOptions
from streamvault.streamstore.model import StreamCut, StreamName

_OPTIONS = ("path", "generation", "from", "to", "startingOffsets", "endingOffsets", "columns", "verify")


@dataclass(frozen=True, slots=True)
class _ReadOptions:
    """The parsed options."""

    root: RootAddress
    stream: StreamName
    generation: int | None
    from_cut: StreamCut | None
    to_cut: StreamCut | None
    columns: list[str] | None
    verify: bool


def _read_options(given: Mapping[str, str]) -> _ReadOptions:
    options = SourceOptions("streamvault", given, _OPTIONS)
    archive = options.text("path")
    if archive is None:
        raise options.wrong("path", "the option is missing", 'Use load("ROOT/SCOPE/STREAM").')
    root, scope, name = RootAddress.parse(archive).split()
    stream = StreamName(scope, name)
    start = options.cut(stream, "from", "startingOffsets", default="earliest")
    end = options.cut(stream, "to", "endingOffsets", default="latest")
    if start == "latest" or end == "earliest":
        name = "from" if start == "latest" else "to"
        raise options.wrong(name, f"{start if name == 'from' else end!s} leaves nothing to read")
    return _ReadOptions(
        root,
        stream,
        options.number("generation", least=1),
        start if isinstance(start, StreamCut) else None,
        end if isinstance(end, StreamCut) else None,
        options.words("columns"),
        options.flag("verify", default=False),
    )


class ArchiveDataSource(DataSource):
    """The data source ``streamvault``; its options are described in docs/guide/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "streamvault"

    def schema(self) -> StructType:
        """Return an event's columns."""
        return spark_schema(_read_options(self.options).columns)

    def reader(self, schema: StructType) -> ArchiveReader:
        """Return a reader of the archive as it is when the query is planned."""
        return ArchiveReader(_read_options(self.options), schema)


class ArchiveReader(BatchReader[RangePart]):
    """Plans and reads ranges; manifests are read once, on the driver.

    Args:
        options: the options.
        schema: the columns that Spark requests.
    """

    def __init__(self, options: _ReadOptions, schema: StructType) -> None:
        super().__init__(schema)
        self._options = options
        self._root = options.root.resolve()

    def _parts(self) -> list[RangePart]:
        options, archive = self._options, self._archive()
        history = archive.history(options.generation)
        history.generations[-1].manifest.require_events(archive.uri)
        parts = [
            part
            for part in select_parts(history, options.from_cut, options.to_cut)
            if self._bounds.meet(part.segment, part.start, part.end)
        ]
        check_boundaries(archive.place, options.stream, parts)
        return parts

    def _events(self, part: RangePart) -> Iterator[pa.RecordBatch]:
        archive = self._archive()
        return read_part(archive.place, archive.stream, part, schema=self._schema, verify=self._options.verify)

    def _archive(self) -> Archive:
        return Archive(self._root, self._options.stream)
