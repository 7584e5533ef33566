"""A table that grew through six schemas is one table to a real Trino, Spark, DuckDB and PyIceberg."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import load_catalog

from streamvault import table_ddl, write_table
from streamvault.lake.reports import Engine
from testkit.lakes import table_keys
from testkit.servers.availability import Unavailable
from testkit.servers.iceberg_spark import iceberg_spark, iceberg_spark_jars, of_sqlite
from testkit.servers.s3 import S3Server
from testkit.servers.trino import TrinoServer
from testkit.small_archives import Vault, objects_of
from tests.conftest import absent

pytestmark = [pytest.mark.minio, pytest.mark.trino, pytest.mark.timeout(1800)]

SCHEMAS: tuple[dict[str, str], ...] = (
    {"id": "int", "ratio": "float"},
    {"id": "int", "ratio": "float", "name": "string"},
    {"id": "bigint", "ratio": "float", "name": "string", "place": "struct<x:int>"},
    {"id": "bigint", "ratio": "double", "place": "struct<x:bigint,y:string>", "cents": "decimal(9,2)"},
    {"cents": "decimal(18,2)", "tags": "array<string>"},
    {"day": "date", "items": "array<struct<sku:string,count:int>>", "name": "string"},
)
EVENTS: tuple[dict[str, Any], ...] = (
    {"id": 1, "ratio": 0.5},
    {"id": 2, "ratio": 1.5, "name": "two"},
    {"id": 2**40, "ratio": 2.5, "name": "three", "place": {"x": 3}},
    {"id": 4, "ratio": 0.1, "place": {"x": 2**41, "y": "four"}, "cents": "1234567.89"},
    {"id": 5, "cents": "1234567890123456.78", "tags": ["a", "b"]},
    {"id": 6, "day": "2026-02-03", "items": [{"sku": "s", "count": 6}], "name": "six"},
)
ASKED = (
    "id, ratio, name, place.x, place.y, CAST(cents AS varchar), tags[1], CAST(day AS varchar), items[1].count, _error"
)
ANSWER: list[list[Any]] = [
    [1, 0.5, None, None, None, None, None, None, None, None],
    [2, 1.5, "two", None, None, None, None, None, None, None],
    [2**40, 2.5, "three", 3, None, None, None, None, None, None],
    [4, 0.1, None, 2**41, "four", "1234567.89", None, None, None, None],
    [5, None, None, None, None, "1234567890123456.78", "a", None, None, None],
    [6, None, "six", None, None, None, None, "2026-02-03", 6, None],
]


@dataclass
class Grown:
    """A table that grew through the schemas, a generation each, in Glue."""

    vault: Vault
    trino: TrinoServer
    database: str
    kind: str

    def hand_off(self, number: int) -> None:
        self.vault.add(json.dumps(EVENTS[number]).encode())
        said = {"decode": "json", "schema": json.dumps(SCHEMAS[number]), "format": self.kind, "master": "inline"}
        options = {"root": self.vault.root, "table": f"{self.database}.t", "catalog": "glue", **said}
        assert write_table(self.vault.uri(), **options).warnings == ()

    def ask(self, catalog: str, database: str = "") -> list[list[Any]]:
        return self.trino.query(f"SELECT {ASKED} FROM {catalog}.{database or self.database}.t ORDER BY id", catalog)


@pytest.fixture(params=["iceberg", pytest.param("parquet", marks=pytest.mark.long)])
def grown(request: pytest.FixtureRequest, vault_in_glue: Vault, trino: TrinoServer) -> Grown:
    return Grown(vault_in_glue, trino, f"grown_{uuid.uuid4().hex[:8]}", request.param)


def expected() -> list[list[Any]]:
    return sorted(ANSWER, key=lambda row: row[0])


def properties(minio: S3Server) -> dict[str, str]:
    keys = {"s3.access-key-id": minio.access_key, "s3.secret-access-key": minio.secret_key}
    return {"s3.endpoint": minio.endpoint, "glue.region": "us-east-1", "s3.region": minio.region, **keys}


def test_table_that_grew_through_six_schemas_is_one(grown: Grown, minio: S3Server, tmp_path: Path) -> None:
    catalog = "iceberg" if grown.kind == "iceberg" else "hive"
    done: set[str] = set()
    if grown.kind == "parquet":
        where = f"{grown.vault.root}/by-hand"
        grown.trino.query(f"CREATE SCHEMA own.{grown.database}_by_hand WITH (location = '{where}')")
    for number in range(len(SCHEMAS)):
        grown.hand_off(number)
        if grown.kind == "parquet" and number > 3:  # statements for Trino add columns, but widen none
            run_statements(grown, done)
        found = grown.trino.query(f"SELECT id, ratio FROM {catalog}.{grown.database}.t ORDER BY id")
        assert [row[0] for row in found] == sorted(event["id"] for event in EVENTS[: number + 1])
    assert grown.ask(catalog) == expected()
    filtered = (
        f"SELECT name FROM {catalog}.{grown.database}.t WHERE id > 3 AND (day IS NOT NULL OR place.x > 0) ORDER BY id"
    )
    assert grown.trino.query(filtered, catalog) == [[None], ["six"], ["three"]]
    if grown.kind == "iceberg":
        table = load_catalog("grown", type="glue", **properties(minio)).load_table((grown.database, "t"))
        rows = table.scan(row_filter="id >= 0").to_arrow()
        assert len(table.history()) == len(SCHEMAS)
        duck = duckdb.connect()
        duck.register("t", rows)
    else:
        duck = on_disk(grown, tmp_path)
        assert grown.ask("own", f"{grown.database}_by_hand") == expected()
    assert [list(row) for row in duck.sql(f"SELECT {ASKED} FROM t ORDER BY id").fetchall()] == expected()


@pytest.mark.spark
@pytest.mark.long
def test_spark_reads_a_table_that_grew_as_one(grown: Grown, minio: S3Server, tmp_path: Path) -> None:
    try:
        iceberg_spark_jars()
    except Unavailable as error:
        absent("spark", f"Iceberg's runtime: {error}")
    for number in range(len(SCHEMAS)):
        grown.hand_off(number)
    asked = ASKED.replace("varchar", "string").replace("[1]", "[0]")
    with iceberg_spark("other", of_sqlite(tmp_path / "catalog.db"), minio, tmp_path / "spark.log") as spark:
        name = "t"
        if grown.kind == "iceberg":
            name = "other.lake.t"
            known = load_catalog("grown", type="glue", **properties(minio)).load_table((grown.database, "t"))
            spark.query("CREATE NAMESPACE other.lake")
            spark.query(f"CALL other.system.register_table('lake.t', '{known.metadata_location}')")
        else:
            spark.query(statements_on_disk(grown, tmp_path, "spark").rstrip(";\n"))
        assert spark.query(f"SELECT {asked} FROM {name} ORDER BY id") == expected()
        filtered = f"SELECT name FROM {name} WHERE id > 3 AND (day IS NOT NULL OR place.x > 0) ORDER BY id"
        assert spark.query(filtered) == [[None], ["six"], ["three"]]
        assert spark.query(f"SELECT id FROM {name} WHERE generation = 4") == [[4]]


def on_disk(grown: Grown, folder: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB with the view of `streamvault ddl`."""
    duck = duckdb.connect()
    duck.sql(statements_on_disk(grown, folder, "duckdb"))
    return duck


def statements_on_disk(grown: Grown, folder: Path, engine: Engine) -> str:
    """The statements for a copy of the files: what reads S3 is not in the engine's package."""
    store = objects_of(grown.vault.root)
    for key in table_keys(grown.vault.root, "t"):
        path = folder / "copy" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(key))
    statements = table_ddl(grown.vault.uri(), engine, root=grown.vault.root, table="t")
    return statements.replace("s3a:", "s3:").replace(store.uri, str(folder / "copy"))


def run_statements(grown: Grown, done: set[str]) -> None:
    """Run the statements for Trino, those for partitions once, in a metastore of its own."""
    ddl = table_ddl(grown.vault.uri(), "trino", root=grown.vault.root, table=f"{grown.database}_by_hand.t")
    for statement in filter(str.strip, ddl.split(";\n")):
        if statement not in done or "register_partition" not in statement:
            grown.trino.query(statement, "own")
            done.add(statement)
