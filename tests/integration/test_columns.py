"""A table that grew through six schemas, told or a registry's, is one to a real Trino, Spark, DuckDB and PyIceberg."""

from __future__ import annotations

import io
import json
import uuid
from base64 import b64encode
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pytest
from pyiceberg.catalog import load_catalog

from streamvault import table_ddl, write_table
from streamvault.importer.schemas import ArchivedSchemas
from streamvault.lake.reports import Engine
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup
from streamvault.sources.schemas import RegistryGroup
from testkit.lakes import table_keys
from testkit.servers.iceberg_spark import iceberg_spark, of_glue
from testkit.servers.s3 import S3Server
from testkit.servers.trino import TrinoServer
from testkit.small_archives import Vault, objects_of

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
FILTERED = [*3 * [[None]], ["six"], *4 * [["three"]]]


def record(name: str, /, **types: Any) -> dict[str, Any]:
    """An Avro schema whose fields may all be missing."""
    fields = [{"name": field, "type": ["null", kind], "default": None} for field, kind in types.items()]
    return {"type": "record", "name": name, "fields": fields}


CENTS = {"type": "bytes", "logicalType": "decimal", "scale": 2}
AVRO: dict[str, Any] = {
    "bigint": "long",
    "date": {"type": "int", "logicalType": "date"},
    "decimal(9,2)": {**CENTS, "precision": 9},
    "decimal(18,2)": {**CENTS, "precision": 18},
    "array<string>": {"type": "array", "items": "string"},
    "struct<x:int>": record("Place", x="int"),
    "struct<x:bigint,y:string>": record("Place", x="long", y="string"),
    "array<struct<sku:string,count:int>>": {"type": "array", "items": record("Item", sku="string", count="int")},
}
"""What writers of Avro call the types of columns."""
REGISTERED = [
    record("Event", **{field: AVRO.get(kind, kind) for field, kind in {"id": "bigint", **schema}.items()})
    for schema in SCHEMAS
]


@dataclass
class Grown:
    """A table that grew through the schemas, a generation each, in Glue; each has events of all schemas until then."""

    vault: Vault
    trino: TrinoServer
    database: str
    kind: str
    registry: str = ""
    """Where the schemas are, for events in Avro; else they are in JSON, and the schemas are told."""

    def hand_off(self, number: int) -> None:
        self.vault.add(*(self.written(which) for which in reversed(range(number + 1))))
        said = {"decode": "json", "schema": json.dumps(SCHEMAS[number])}
        if self.registry:
            self.register(number)
            said = {"decode": "registry", "registry": self.registry, "group": self.database}
        options: dict[str, Any] = {"table": f"{self.database}.t", "catalog": "glue", "format": self.kind, **said}
        report = write_table(self.vault.uri(), root=self.vault.root, master="inline", **options)
        assert (report.warnings, report.undecoded) == ((), 0)

    def written(self, number: int) -> bytes:
        event = EVENTS[number]
        if not self.registry:
            return json.dumps(event).encode()
        exact = {"cents": Decimal(event.get("cents", 0)), "day": date.fromisoformat(event.get("day", "1970-01-01"))}
        fastavro.schemaless_writer(content := io.BytesIO(), REGISTERED[number], {**event, **exact})
        return b"\x01" + number.to_bytes(4, "big") + content.getvalue()

    def register(self, number: int) -> None:
        texts = [b64encode(json.dumps(one).encode()).decode() for one in REGISTERED[: number + 1]]
        same = {"type": "Event", "format": "Avro", "codec": ""}
        entries = tuple(SchemaEntry(encoding=each, version=each, data=text, **same) for each, text in enumerate(texts))
        schemas = SchemaGroup(group=self.database, entries=entries)
        registering = ArchivedSchemas(RegistryGroup(self.registry, self.database), schemas)
        registering.check()
        registering.register()

    def ask(self, catalog: str, database: str = "") -> list[list[Any]]:
        return self.trino.query(f"SELECT {ASKED} FROM {catalog}.{database or self.database}.t ORDER BY id", catalog)


FORMATS = ["iceberg", pytest.param("parquet", marks=pytest.mark.long)]


@pytest.fixture(params=[*FORMATS, "registry"])
def grown(request: pytest.FixtureRequest, vault_in_glue: Vault, trino: TrinoServer) -> Grown:
    made = Grown(vault_in_glue, trino, f"grown_{uuid.uuid4().hex[:8]}", request.param)
    if request.param == "registry":
        made.kind, made.registry = "iceberg", request.getfixturevalue("schema_registry").uri
    return made


def expected(upto: int = len(SCHEMAS)) -> list[list[Any]]:
    """The rows after so many generations."""
    return sorted((row for number in range(upto) for row in ANSWER[: number + 1]), key=lambda row: row[0])


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
        assert found == [row[:2] for row in expected(number + 1)]
    assert grown.ask(catalog) == expected()
    filtered = (
        f"SELECT name FROM {catalog}.{grown.database}.t WHERE id > 3 AND (day IS NOT NULL OR place.x > 0) ORDER BY id"
    )
    assert grown.trino.query(filtered, catalog) == FILTERED
    latest = f'SELECT id FROM {catalog}.{grown.database}.t WHERE generation = 6 ORDER BY "offset"'
    assert grown.trino.query(latest, catalog) == [row[:1] for row in reversed(ANSWER)]
    if grown.kind == "iceberg":
        table = load_catalog("grown", type="glue", **properties(minio)).load_table((grown.database, "t"))
        assert len(table.history()) == len(SCHEMAS)
        here = copied(grown, tmp_path)
        files = [task.file.file_path.replace(*here) for task in table.scan().plan_files()]
        duck = duckdb.connect()
        relations = [duck.from_arrow(table.scan(row_filter="id >= 0").to_arrow())]
        relations.append(duck.read_parquet(files, union_by_name=True))
    else:
        relations = [on_disk(grown, tmp_path).view("t")]
        assert grown.ask("own", f"{grown.database}_by_hand") == expected()
    for relation in relations:
        rows = relation.query("found", f"SELECT {ASKED} FROM found ORDER BY id").fetchall()
        assert [list(row) for row in rows] == expected()


@pytest.mark.spark
@pytest.mark.parametrize("grown", FORMATS, indirect=True)
@pytest.mark.usefixtures("iceberg_runtime")
def test_spark_reads_a_table_that_grew_as_one(grown: Grown, minio: S3Server, moto_s3: S3Server, tmp_path: Path) -> None:
    for number in range(len(SCHEMAS)):
        grown.hand_off(number)
    asked = ASKED.replace("varchar", "string").replace("[1]", "[0]")
    with iceberg_spark("other", of_glue(moto_s3.endpoint), minio, tmp_path / "spark.log") as spark:
        name = f"other.{grown.database}.t"
        if grown.kind == "parquet":
            name = "t"
            spark.query(statements_on_disk(grown, tmp_path, "spark").rstrip(";\n"))
        assert spark.query(f"SELECT {asked} FROM {name} ORDER BY id") == expected()
        filtered = f"SELECT name FROM {name} WHERE id > 3 AND (day IS NOT NULL OR place.x > 0) ORDER BY id"
        assert spark.query(filtered) == FILTERED
        assert spark.query(f"SELECT id FROM {name} WHERE generation = 2 ORDER BY id") == [[1], [2]]


def on_disk(grown: Grown, folder: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB with the view of `streamvault ddl`."""
    duck = duckdb.connect()
    duck.sql(statements_on_disk(grown, folder, "duckdb"))
    return duck


def copied(grown: Grown, folder: Path) -> tuple[str, str]:
    """Copy the files, as what reads S3 is in no package; returns the beginnings of their URIs and of their paths."""
    store = objects_of(grown.vault.root)
    for key in table_keys(grown.vault.root, "t"):
        path = folder / "copy" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(key))
    return store.uri, str(folder / "copy")


def statements_on_disk(grown: Grown, folder: Path, engine: Engine) -> str:
    """The statements for a copy of the files."""
    statements = table_ddl(grown.vault.uri(), engine, root=grown.vault.root, table="t")
    return statements.replace("s3a:", "s3:").replace(*copied(grown, folder))


def run_statements(grown: Grown, done: set[str]) -> None:
    """Run the statements for Trino, those for partitions once, in a metastore of its own."""
    ddl = table_ddl(grown.vault.uri(), "trino", root=grown.vault.root, table=f"{grown.database}_by_hand.t")
    for statement in filter(str.strip, ddl.split(";\n")):
        if statement not in done or "register_partition" not in statement:
            grown.trino.query(statement, "own")
            done.add(statement)
