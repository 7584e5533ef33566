"""Statements that register a table with a query engine by hand."""

from __future__ import annotations

from collections.abc import Sequence

from streamvault.common.errors import Usage
from streamvault.lake.column_types import trino_type
from streamvault.lake.handoff_options import Engine
from streamvault.lake.hive import RawTable, hive_columns, projected
from streamvault.lake.location import TablePlace
from streamvault.lake.options import GENERATION


def table_statements(place: TablePlace, generations: Sequence[int], engine: Engine) -> str:
    """Return statements that create the table and register its generations.

    Args:
        place: the table.
        generations: the table's generations, ascending.
        engine: ``athena``, ``trino`` (also for Presto) or ``hive`` (also for Spark).

    Raises:
        Usage: the engine cannot register an Iceberg table by a statement.
    """
    if place.options.kind == "iceberg":
        return _iceberg(place, engine)
    if engine == "trino":
        return _trino(place, generations)
    columns = ",\n".join(f"  `{name}` {kind}" for name, kind in hive_columns(place.options, quoted=True))
    table = f"`{place.database}`.`{place.options.table}`"
    text = (
        f"CREATE EXTERNAL TABLE IF NOT EXISTS {table} (\n{columns}\n)\nPARTITIONED BY (`{GENERATION}` int)\n"
        f"STORED AS PARQUET\nLOCATION '{place.location}/'"
    )
    if engine == "athena":
        # the projection lists the generations; repeat the statement after each handoff
        if generations:
            inner = ",\n".join(
                f"  '{key}' = '{value}'" for key, value in projected(generations[0], generations[-1]).items()
            )
            text += f"\nTBLPROPERTIES (\n{inner}\n)"
        return text + ";\n"
    added = [
        f"ALTER TABLE {table} ADD IF NOT EXISTS PARTITION (`{GENERATION}` = {number}) "
        f"LOCATION '{place.partition(number)}';\n"
        for number in generations
    ]
    return text + ";\n" + "".join(added)


def raw_statements(raw: RawTable, engine: Engine) -> str:
    """Return statements that create a table over the objects of layout ``events``, with a row for each line.

    Args:
        raw: the table.
        engine: see `table_statements`.
    """
    if engine == "trino":
        text = (
            f'CREATE TABLE IF NOT EXISTS "{raw.database}"."{raw.table}" (\n'
            '  "payload" varchar,\n  "segment" varchar\n)\n'
            f"WITH (\n  format = 'TEXTFILE',\n  external_location = '{raw.location}',\n"
            "  partitioned_by = ARRAY['segment']\n);\n"
        )
        calls = [
            f"CALL system.register_partition('{raw.database}', '{raw.table}', ARRAY['segment'], ARRAY['{segment}'], "
            f"'{raw.location}{segment}');\n"
            for segment in raw.segments
        ]
        return text + "".join(calls)
    name = f"`{raw.database}`.`{raw.table}`"
    text = (
        f"CREATE EXTERNAL TABLE IF NOT EXISTS {name} (\n  `payload` string\n)\nPARTITIONED BY (`segment` string)\n"
        f"STORED AS TEXTFILE\nLOCATION '{raw.location}';\n"
    )
    added = [
        f"ALTER TABLE {name} ADD IF NOT EXISTS PARTITION (`segment` = '{segment}') "
        f"LOCATION '{raw.location}{segment}/';\n"
        for segment in raw.segments
    ]
    return text + "".join(added)


def _trino(place: TablePlace, generations: Sequence[int]) -> str:
    fields = [(field.name, trino_type(field.type)) for field in place.options.schema if field.name != GENERATION]
    # the precision must be the one configured in Trino's catalog: milliseconds by default
    columns = [(name, kind.replace("timestamp(6)", "timestamp")) for name, kind in fields]
    inner = ",\n".join(f'  "{name}" {kind}' for name, kind in [*columns, (GENERATION, "integer")])
    text = (
        f'CREATE TABLE IF NOT EXISTS "{place.database}"."{place.options.table}" (\n{inner}\n)\n'
        f"WITH (\n  format = 'PARQUET',\n  external_location = '{place.location}/',\n"
        f"  partitioned_by = ARRAY['{GENERATION}']\n);\n"
    )
    calls = [
        f"CALL system.register_partition('{place.database}', '{place.options.table}', ARRAY['{GENERATION}'], "
        f"ARRAY['{number}'], '{place.partition(number).rstrip('/')}');\n"
        for number in generations
    ]
    return text + "".join(calls)


def _iceberg(place: TablePlace, engine: Engine) -> str:
    table = place.options.table
    if engine == "trino":
        return f"CALL system.register_table('{place.database}', '{table}', '{place.location}');\n"
    if engine == "hive":
        return (
            f"CREATE EXTERNAL TABLE IF NOT EXISTS `{place.database}`.`{table}`\n"
            "STORED BY 'org.apache.iceberg.mr.hive.HiveIcebergStorageHandler'\n"
            f"LOCATION '{place.location}'\nTBLPROPERTIES ('iceberg.catalog' = 'location_based_table');\n"
        )
    todo = "Use --catalog glue; Athena then sees the table."
    raise Usage("Athena cannot register an Iceberg table by a statement", todo=todo)
