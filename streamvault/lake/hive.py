"""A table in Hive's terms, which Glue, Athena, Hive, Presto and Trino share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from streamvault.lake.location import TablePlace
from streamvault.lake.recorded import GENERATION
from streamvault.layouts.object_keys import segment_name
from streamvault.streamstore.model import SegmentId


class StorageFormat(NamedTuple):
    """The name of a file format in statements, Hive's classes for it, and Glue's name."""

    name: str
    input_format: str
    output_format: str
    serde: str
    classification: str


PARQUET = StorageFormat(
    "PARQUET",
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    "parquet",
)
TEXT = StorageFormat(
    "TEXTFILE",
    "org.apache.hadoop.mapred.TextInputFormat",
    "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
    "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
    "csv",
)


class HiveTable(NamedTuple):
    """A table partitioned by one column.

    Attributes:
        database: the catalog's database.
        table: the table's name.
        columns: the files' columns.
        key: the column of the partitions, which is not in the files.
        location: URI of the folder of the table, with a trailing slash.
        partitions: value of the key → URI of the partition's folder, with a trailing slash.
        storage: the format of the files.
    """

    database: str
    table: str
    columns: tuple[pa.Field, ...]
    key: pa.Field
    location: str
    partitions: Mapping[str, str]
    storage: StorageFormat

    @property
    def name(self) -> str:
        """``DATABASE.TABLE``."""
        return f"{self.database}.{self.table}"


def hive_table(place: TablePlace, generations: Iterable[int]) -> HiveTable:
    """Return a table with some of its generations as partitions."""
    return HiveTable(
        place.database,
        place.options.table,
        columns=tuple(field for field in place.options.schema if field.name != GENERATION),
        key=pa.field(GENERATION, pa.int32()),
        location=f"{place.location}/",
        partitions={str(number): place.partition(number) for number in generations},
        storage=PARQUET,
    )


def raw_table(place: TablePlace, archive: str, segments: Iterable[SegmentId]) -> HiveTable:
    """Return the table beside another one that is over the objects of layout ``events``, with a row for each line.

    Args:
        place: the other table.
        archive: the archive's URI.
        segments: the partitions.
    """
    location = f"{archive}/events/"
    return HiveTable(
        place.database,
        f"{place.options.table}_raw",
        columns=(pa.field("payload", pa.string()),),
        key=pa.field("segment", pa.string()),
        location=location,
        partitions={name: f"{location}{name}/" for name in map(segment_name, segments)},
        storage=TEXT,
    )


def projected(first: int, last: int) -> dict[str, str]:
    """Return the table properties that list the generations in place of partitions."""
    return {
        "projection.enabled": "true",
        f"projection.{GENERATION}.type": "integer",
        f"projection.{GENERATION}.range": f"{first},{last}",
    }
