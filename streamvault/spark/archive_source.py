"""The format ``streamvault``: read an archive, with one partition for each range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from streamvault.common.errors import Usage
from streamvault.common.units import moment_text
from streamvault.lake.read import read_part
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.damage import ArchivedPart
from streamvault.manifests.history import History, check_boundaries, select_parts
from streamvault.manifests.manifest import SchemaGroup
from streamvault.objectstore.uri import RootAddress
from streamvault.spark.batch_reader import BatchReader
from streamvault.spark.columns import EventColumns, schemas_of, spark_schema
from streamvault.spark.options import DECODING, NO_COLUMNS, PayloadDecoding, SourceOptions, options_for, schema_for
from streamvault.streamstore.model import StreamCut, StreamName

_START = ("from", "startingOffsets", "startingTimestamp")
_END = ("to", "endingOffsets")
_OPTIONS = ("path", "generation", *_START, *_END, "columns", "unverified", *DECODING)
_FIXED = {
    "minPartitions": (
        "",
        "a partition is a range, which is compared with its digest as a whole",
        "Call repartition on what was read, or export with a smaller range size.",
    )
}


@dataclass(frozen=True, slots=True)
class _ReadOptions:
    """The parsed options; `since` is the option ``startingTimestamp``."""

    root: RootAddress
    stream: StreamName
    generation: int | None
    from_cut: StreamCut | None
    since: datetime | None
    to_cut: StreamCut | None
    columns: list[str] | None
    unverified: bool
    decoding: PayloadDecoding | None

    @property
    def archive(self) -> Archive:
        """The archive."""
        return Archive(self.root.resolve(), self.stream)

    @property
    def schemas(self) -> SchemaGroup | None:
        """What decodes the payloads; None if they are not decoded."""
        return schemas_of(self.decoding, self.stream, self.archive, self.generation)


def _read_options(given: Mapping[str, str]) -> _ReadOptions:
    options = SourceOptions("streamvault", given, _OPTIONS, _FIXED)
    archive = options.uri()
    if archive is None:
        raise options.wrong("path", "the option is missing", f'Use load("ROOT/SCOPE/STREAM"). {NO_COLUMNS}')
    root, scope, name = RootAddress.parse_archive(archive)
    stream = StreamName(scope, name)
    options.text(*_START)  # only one of them
    start = options.cut(stream, *_START[:2], default="earliest", unbounded="earliest")
    end = options.cut(stream, *_END, default="latest", unbounded="latest")
    if start == "latest" or end == "earliest":
        name, wrong, other = ("from", start, "earliest") if start == "latest" else ("to", end, "latest")
        raise options.wrong(name, f"{wrong} leaves nothing to read", f"Give {other}, or a stream cut.")
    return _ReadOptions(
        root,
        stream,
        options.number("generation", least=1),
        start if isinstance(start, StreamCut) else None,
        options.moment("startingTimestamp"),
        end if isinstance(end, StreamCut) else None,
        options.words("columns"),
        options.flag("unverified", default=False),
        PayloadDecoding.of(options),
    )


def _columns_of(options: _ReadOptions) -> StructType:
    return spark_schema(options.columns, options.schemas)


class ArchiveDataSource(DataSource):
    """The data source ``streamvault``; its options are described in docs/reference/spark.md."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "streamvault"

    def schema(self) -> StructType:
        """Return an event's columns, and the fields of its payload if it is decoded."""
        return schema_for(self.options, lambda given: _columns_of(_read_options(given)))

    def reader(self, schema: StructType) -> ArchiveReader:
        """Return a reader of the archive as it is when the query is planned."""
        options = _read_options(options_for(self.options, schema))
        return ArchiveReader(options, EventColumns(schema, options.schemas))

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002
        """Refuse to write.

        Raises:
            Usage: always.
        """
        raise Usage("an archive cannot be written by Spark", todo="Write to the stream, and export it.")

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: ARG002, N802  (Spark's name)
        """Refuse to follow.

        Raises:
            Usage: always.
        """
        raise Usage("an archive cannot be followed by Spark", todo="Follow the stream.")


class ArchiveReader(BatchReader[ArchivedPart]):
    """Plans and reads ranges; manifests are read once, on the driver.

    Args:
        options: the options.
        columns: the columns that Spark requests.
    """

    def __init__(self, options: _ReadOptions, columns: EventColumns) -> None:
        super().__init__(columns)
        self._options = options

    def parts(self) -> list[ArchivedPart]:
        """Return the ranges in which events may pass the filters."""
        options, archive = self._options, self._options.archive
        history = archive.history(options.generation, keep="none")
        history.generations[-1].manifest.require_events(archive.uri)
        parts = [
            part
            for part in select_parts(archive.address, history, self._start(history), options.to_cut)
            if self._bounds.meet(part.segment, part.start, part.end)
        ]
        check_boundaries(options.stream, parts)
        return parts

    def _start(self, history: History) -> StreamCut | None:
        since = self._options.since
        if since is None:
            return self._options.from_cut
        start = history.begin_since(since)
        if start is None:
            newest = moment_text(history.newest.created)
            raise NoSuchArchive(
                f"no generation is from {moment_text(since)} or later; the newest is from {newest}",
                where=self._options.archive.uri,
                todo="Give an earlier time, or export first.",
            )
        return start

    def _events(self, part: ArchivedPart) -> Iterator[pa.RecordBatch]:
        return read_part(self._options.stream, part, schema=self._columns.own, verify=not self._options.unverified)
