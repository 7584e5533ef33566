"""A table in Hive's terms, which Glue, Athena, Hive, Presto and Trino share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from streamvault.lake.column_types import hive_type
from streamvault.lake.options import GENERATION, TableOptions


class StorageFormat(NamedTuple):
    """Hive's classes for a file format, and Glue's name for it."""

    input_format: str
    output_format: str
    serde: str
    classification: str


PARQUET = StorageFormat(
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    "parquet",
)
TEXT = StorageFormat(
    "org.apache.hadoop.mapred.TextInputFormat",
    "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
    "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
    "csv",
)


class RawTable(NamedTuple):
    """A table over the objects of layout ``events``, with a partition for each segment.

    Attributes:
        database: the catalog's database.
        table: the table's name.
        location: URI of the folder of the archive's events, with a trailing slash.
        segments: folder names of the segments.
    """

    database: str
    table: str
    location: str
    segments: list[str]


def hive_columns(options: TableOptions, *, quoted: bool = False) -> Iterator[tuple[str, str]]:
    """Yield name and type of the files' columns except the partition; ``quoted`` as for `hive_type`."""
    for field in options.schema:
        if field.name != GENERATION:
            yield field.name, hive_type(field.type, quoted=quoted)


def projected(first: int, last: int) -> dict[str, str]:
    """Return the table properties that list the generations in place of partitions."""
    return {
        "projection.enabled": "true",
        f"projection.{GENERATION}.type": "integer",
        f"projection.{GENERATION}.range": f"{first},{last}",
    }
