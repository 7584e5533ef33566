"""A table in Hive's terms, and statements that register a table with a query engine by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from streamvault.common.errors import Usage
from streamvault.lake.catalogs.registration import find_registration
from streamvault.lake.location import TablePlace
from streamvault.lake.reports import Engine
from streamvault.lake.table import GENERATION, TableOptions, hive_type, trino_type
from streamvault.layouts.keys import segment_name, table_files
from streamvault.manifests.files import one_line
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


def table_statements(place: TablePlace, generations: Sequence[int], engine: Engine) -> str:
    """Return statements that create the table and register its generations.

    Args:
        place: the table.
        generations: the table's generations, ascending.
        engine: ``athena``, ``trino`` (also for Presto), ``hive``, ``spark`` or ``duckdb``.

    Raises:
        Usage: the engine cannot register an Iceberg table by a statement.
    """
    if place.options.kind == "iceberg":
        return _iceberg(place, engine)
    begun, place = place.options, place.as_of(max(generations, default=0))
    if engine == "athena":
        # the projection lists the generations; repeat the statement after each handoff
        table, listed = hive_table(place, ()), projected(generations[0], generations[-1]) if generations else {}
        return _hive(table, listed) + _grown(table, begun, place.options, engine)
    if engine in {"duckdb", "spark"}:  # which accept no pattern without files
        there = set(place.archive.store.folders(place.folder.prefix))
        generations = [number for number in generations if table_files(number).rstrip("/") in there]
    table = hive_table(place, generations)
    created, mark, partitions = partitioned_statements(table, engine).partition(";\n")
    # the table may be there with fewer columns; partitions get those that it has when they are added
    return f"{created}{mark}{_grown(table, begun, place.options, engine)}{partitions}"


def _grown(table: HiveTable, begun: TableOptions, options: TableOptions, engine: Engine) -> str:
    """Return statements that give a table, which may have been created with fewer columns, those that it has now."""
    if begun.columns == options.columns or engine in {"duckdb", "spark"}:
        return ""
    if engine != "trino":
        return f"ALTER TABLE `{table.database}`.`{table.table}` REPLACE COLUMNS (\n{_hive_columns(table)}\n);\n"
    added = {column.column for column in options.columns if column.added}
    return "".join(
        f'ALTER TABLE "{table.database}"."{table.table}" ADD COLUMN IF NOT EXISTS {_trino_column(field)};\n'
        for field in table.columns
        if field.name in added
    )


def partitioned_statements(table: HiveTable, engine: Engine) -> str:
    """Return statements that create a table and its partitions.

    Raises:
        Usage: the engine cannot read files of this format.
    """
    if engine in {"duckdb", "spark"}:
        return _view(table, engine)
    return _trino(table) if engine == "trino" else _hive(table)


def _hive(table: HiveTable, properties: Mapping[str, str] | None = None) -> str:
    name, key = f"`{table.database}`.`{table.table}`", table.key
    text = (
        f"CREATE EXTERNAL TABLE IF NOT EXISTS {name} (\n{_hive_columns(table)}\n)\n"
        f"PARTITIONED BY (`{key.name}` {hive_type(key.type)})\n"
        f"STORED AS {table.storage.name}\nLOCATION '{table.location}'"
    )
    if properties:
        inner = ",\n".join(f"  '{name}' = '{value}'" for name, value in properties.items())
        text += f"\nTBLPROPERTIES (\n{inner}\n)"
    quote = "'" if pa.types.is_string(key.type) else ""
    added = [
        f"ALTER TABLE {name} ADD IF NOT EXISTS PARTITION (`{key.name}` = {quote}{value}{quote}) "
        f"LOCATION '{location}';\n"
        for value, location in table.partitions.items()
    ]
    return text + ";\n" + "".join(added)


def _hive_columns(table: HiveTable) -> str:
    return ",\n".join(f"  `{field.name}` {hive_type(field.type, quoted=True)}" for field in table.columns)


def _trino_column(field: pa.Field) -> str:
    # the precision must be the one configured in Trino's catalog: milliseconds by default
    return f'"{field.name}" {trino_type(field.type).replace("timestamp(6)", "timestamp")}'


def _view(table: HiveTable, engine: Engine) -> str:
    """Return the statement for a view of all files, whose columns are found by name; none without files.

    Spark's tables are not used: Spark adds columns to one, but widens none, and replaces a table only by dropping it.
    """
    if table.storage is not PARQUET:
        what = f"{engine} has no statement for raw events"
        raise Usage(what, where=table.name, todo="Omit --raw, or use another engine.")
    if not table.partitions:
        return ""
    if engine == "spark":
        columns = f"{_hive_columns(table)},\n  `{table.key.name}` {hive_type(table.key.type)}"
        # Hadoop calls the file system of s3://, too, s3a
        location = re.sub("^s3:", "s3a:", table.location)
        folders = f"{location}{table.key.name}={{{','.join(table.partitions)}}}"
        options = f"path '{folders}', basePath '{location}'"
        return f"CREATE OR REPLACE TEMPORARY VIEW `{table.table}` (\n{columns}\n)\nUSING parquet OPTIONS ({options});\n"
    files = ",\n".join(f"  '{location}*.parquet'" for location in table.partitions.values())
    view = f'CREATE OR REPLACE VIEW "{table.table}" AS SELECT * FROM'
    return f"{view} read_parquet([\n{files}\n], union_by_name = true, hive_partitioning = true);\n"


def _trino(table: HiveTable) -> str:
    inner = ",\n".join(f"  {_trino_column(field)}" for field in (*table.columns, table.key))
    text = (
        f'CREATE TABLE IF NOT EXISTS "{table.database}"."{table.table}" (\n{inner}\n)\n'
        f"WITH (\n  format = '{table.storage.name}',\n  external_location = '{table.location}',\n"
        f"  partitioned_by = ARRAY['{table.key.name}']\n);\n"
    )
    calls = [
        f"CALL system.register_partition('{table.database}', '{table.table}', ARRAY['{table.key.name}'], "
        f"ARRAY['{value}'], '{location.rstrip('/')}');\n"
        for value, location in table.partitions.items()
    ]
    return text + "".join(calls)


_TWICE = """\
-- The table is {} in {}. If Trino has that catalog, it needs no statement. This one registers
-- the table again, as it is now: it gets no later generations, and maintenance of one deletes files of the other.
"""


def _iceberg(place: TablePlace, engine: Engine) -> str:
    table = place.options.table
    if engine == "trino":
        held = find_registration(place)
        note = "" if held is None else _TWICE.format(one_line(held.table), one_line(held.catalog))
        return f"{note}CALL system.register_table('{place.database}', '{table}', '{place.location}');\n"
    if engine == "hive":
        return (
            f"CREATE EXTERNAL TABLE IF NOT EXISTS `{place.database}`.`{table}`\n"
            "STORED BY 'org.apache.iceberg.mr.hive.HiveIcebergStorageHandler'\n"
            f"LOCATION '{place.location}'\nTBLPROPERTIES ('iceberg.catalog' = 'location_based_table');\n"
        )
    if engine == "spark":
        todo = "Give Spark its catalog (spark.sql.catalog.NAME) with Iceberg's runtime."
        raise Usage("Spark reads an Iceberg table from its catalog, and needs no statement", todo=todo)
    if engine == "duckdb":
        todo = "Attach its catalog, or use its extension's iceberg_scan."
        raise Usage("DuckDB reads an Iceberg table from its catalog, and needs no statement", todo=todo)
    todo = "Use --catalog glue; Athena then sees the table."
    raise Usage("Athena cannot register an Iceberg table with a statement", todo=todo)
