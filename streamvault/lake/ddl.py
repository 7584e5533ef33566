"""Statements that register a table with a query engine by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from streamvault.common.errors import Usage
from streamvault.lake.column_types import hive_type, trino_type
from streamvault.lake.hive import HiveTable, hive_table, projected
from streamvault.lake.location import TablePlace
from streamvault.lake.options import Engine


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
    if engine == "athena":
        # the projection lists the generations; repeat the statement after each handoff
        return _hive(hive_table(place, ()), projected(generations[0], generations[-1]) if generations else {})
    return partitioned_statements(hive_table(place, generations), engine)


def partitioned_statements(table: HiveTable, engine: Engine) -> str:
    """Return statements that create a table and its partitions."""
    return _trino(table) if engine == "trino" else _hive(table)


def _hive(table: HiveTable, properties: Mapping[str, str] | None = None) -> str:
    name, key = f"`{table.database}`.`{table.table}`", table.key
    columns = ",\n".join(f"  `{field.name}` {hive_type(field.type, quoted=True)}" for field in table.columns)
    text = (
        f"CREATE EXTERNAL TABLE IF NOT EXISTS {name} (\n{columns}\n)\n"
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


def _trino(table: HiveTable) -> str:
    # the precision must be the one configured in Trino's catalog: milliseconds by default
    inner = ",\n".join(
        f'  "{field.name}" {trino_type(field.type).replace("timestamp(6)", "timestamp")}'
        for field in (*table.columns, table.key)
    )
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
