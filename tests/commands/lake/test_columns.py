"""Tables whose columns grow with the schema, in every sequence with kills and with runs that are late."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import boto3
import duckdb
import fastavro
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import BooleanType, PrimitiveType, StringType

from streamvault import table_ddl, write_table
from streamvault.common.errors import Conflict, Failed, Usage
from streamvault.lake.reports import HandoffReport
from testkit.lakes import generation_of, rows_in, table_keys, writing
from testkit.servers.s3 import S3Server
from testkit.small_archives import Vault, contents, objects_of

MAPPING = "schema.name-mapping.default"
OLD = {"id": "int", "name": "string"}
NEW = {"id": "bigint", "name": "string", "vip": "boolean", "at": "struct<x:float>"}


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return made(tmp_path)


def made(folder: Path) -> Vault:
    (folder / "objects").mkdir()
    vault = Vault(folder, f"file://{folder}/objects")
    vault.create()
    add(vault, {"id": 1, "name": "a"})
    return vault


def add(vault: Vault, *events: dict[str, Any]) -> None:
    vault.add(*(json.dumps(event).encode() for event in events))


def hand_off(
    vault: Vault, schema: dict[str, str] | None = None, *, schema_text: str | None = None, **options: Any
) -> HandoffReport:
    said = {"root": vault.root, "decode": "json", "master": "inline", "catalog": f"sql:{database(vault)}", **options}
    if schema is not None:
        said["schema"] = json.dumps(schema)
    if schema_text is not None:
        said["schema"] = schema_text
    return write_table(vault.uri(), **said)


def database(vault: Vault) -> str:
    return f"sqlite:///{vault.folder}/catalog.db"


def table(vault: Vault) -> Table:
    return SqlCatalog("streamvault", uri=database(vault)).load_table(("scope", "stream"))


def rows(vault: Vault, *columns: str) -> list[tuple[Any, ...]]:
    """The rows that a reader of the catalog's table finds, in the stream's order."""
    found = sorted(table(vault).scan().to_arrow().to_pylist(), key=lambda row: (row["epoch"], row["offset"]))
    return [tuple(row[name] for name in columns) for row in found]


def test_new_field_becomes_a_column_with_the_next_generation(vault: Vault) -> None:
    hand_off(vault, OLD)
    add(vault, {"id": 2**40, "name": "b", "vip": True, "at": {"x": 0.5}})
    report = hand_off(vault, NEW)
    assert report.warnings == ()
    assert report.columns[-5:] == ("id", "name", "vip", "at", "_error")
    assert rows(vault, "id", "name", "vip", "at", "_error") == [
        (1, "a", None, None, None),
        (2**40, "b", True, {"x": 0.5}, None),
    ]
    add(vault, {"id": 3, "name": "c", "vip": False})
    assert hand_off(vault).columns == report.columns, "without a schema, they stay"
    add(vault, {"id": 4, "vip": True, "at": {"x": 1.5, "y": "z"}})
    hand_off(vault, {"at": "struct<x:double,y:string>"})
    assert rows(vault, "id", "vip", "at")[2:] == [(3, False, None), (4, True, {"x": 1.5, "y": "z"})]
    assert rows(vault, "at")[1] == ({"x": 0.5, "y": None},)
    assert hand_off(vault).unchanged


def test_value_that_no_widening_holds_has_a_reason_and_the_rest_its_columns(vault: Vault) -> None:
    hand_off(vault, OLD)
    add(vault, {"id": "text", "name": "b", "more": 1}, {"id": 3, "name": "c"})
    report = hand_off(vault, {"id": "string", "more": "int"})
    assert any("id stays int, as its type cannot become string" in warning for warning in report.warnings)
    assert rows(vault, "id", "name", "more", "_error")[1:] == [(None, "b", 1, "id: not a int"), (3, "c", None, None)]
    assert json.loads(rows(vault, "payload")[1][0])["id"] == "text"


def test_new_fields_without_a_schema_are_proposed_and_not_added(vault: Vault) -> None:
    assert hand_off(vault).proposed == {}
    add(vault, {"id": 2, "name": "b", "vip": True, "at": {"x": 0.5}})
    how = 'to add columns, use --schema FILE with {"vip": "boolean", "at": "struct<x:double>"}; else --columns keep'
    for dry_run in (True, False):
        report = hand_off(vault, dry_run=dry_run)
        assert report.proposed == {"vip": "boolean", "at": "struct<x:double>"}
        assert report.warnings == (f"new fields stay in the payload; {how}",)
        assert report.columns[-3:] == ("id", "name", "_error"), "nothing is added"
    add(vault, {"id": 3, "name": "c"})
    assert hand_off(vault).proposed == {}, "only the new events count"
    add(vault, {"id": 4, "vip": True})
    assert hand_off(vault, columns="keep").warnings == ()


def test_kept_columns_leave_new_fields_in_the_payload(vault: Vault) -> None:
    hand_off(vault, OLD)
    add(vault, {"id": 2**40, "name": "b", "vip": True})
    report = hand_off(vault, NEW, columns="keep")
    assert [warning.split(",")[0] for warning in report.warnings[:3]] == [
        "the column id stays int",
        "the field vip gets no column",
        "the field at gets no column",
    ]
    assert report.columns[-3:] == ("id", "name", "_error")
    assert rows(vault, "id", "name", "_error")[1] == (None, "b", "id: not a int")


def test_columns_are_added_by_a_schema_only(vault: Vault) -> None:
    hand_off(vault)
    add(vault, {"id": 2, "name": "b", "vip": True})
    with pytest.raises(Usage, match="requires a schema"):
        hand_off(vault, columns="add")
    assert "vip" not in hand_off(vault).columns


def test_rehearsal_shows_the_columns_and_writes_nothing(vault: Vault) -> None:
    hand_off(vault, OLD)
    add(vault, {"id": 2, "name": "b"})
    report = hand_off(vault, NEW, dry_run=True)
    assert ("vip" in report.columns, report.generations) == (True, (1, 2))
    assert "vip" not in hand_off(vault).columns
    assert "vip" not in table(vault).schema().column_names


def test_columns_of_csv_are_added_at_the_end(tmp_path: Path) -> None:
    vault = made(tmp_path)
    vault.add(b"1,a")
    hand_off(vault, {"x": "int", "y": "string"}, decode="csv")
    vault.add(b"2,b,0.5,true", b"3,c", b"4,d,1.5", b"5", b"6,e,f,g,h")
    with pytest.raises(Usage, match="the schema's fields are not those of the table"):
        hand_off(vault, {"y": "string", "z": "double"}, decode="csv")
    hand_off(vault, {"x": "int", "y": "string", "z": "double", "w": "boolean"}, decode="csv")
    assert rows(vault, "x", "y", "z", "w", "_error")[2:] == [
        (2, "b", 0.5, True, None),
        (3, "c", None, None, None),
        (4, "d", 1.5, None, None),
        (None, None, None, None, "not 4 values"),
        (None, None, None, None, "not 4 values"),
    ]


def test_column_that_a_user_has_added_is_used_if_it_fits(vault: Vault) -> None:
    hand_off(vault, OLD)
    with table(vault).update_schema() as columns:
        columns.add_column("vip", BooleanType())
    with table(vault).transaction() as change:  # engines add columns without their names
        mapping = json.loads(change.table_metadata.properties[MAPPING])
        change.set_properties({MAPPING: json.dumps([one for one in mapping if "vip" not in one["names"]])})
    add(vault, {"id": 2, "name": "b", "vip": True})
    hand_off(vault, NEW)
    assert rows(vault, "id", "vip") == [(1, None), (2, True)]


@pytest.mark.parametrize(
    ("column", "kind", "wanted"),
    [("vip", StringType(), "boolean"), ("vip", StringType(), "binary"), ("Vip", BooleanType(), "boolean")],
)
def test_column_that_a_user_has_added_with_another_type_or_case_is_a_conflict(
    vault: Vault, column: str, kind: PrimitiveType, wanted: str
) -> None:
    hand_off(vault, OLD)
    with table(vault).update_schema() as columns:
        columns.add_column(column, kind)
    add(vault, {"id": 2, "name": "b", "vip": True})
    before = contents(vault.root)
    with pytest.raises(Conflict, match=f"the column vip of the catalog's table cannot become {wanted}"):
        hand_off(vault, {**OLD, "vip": wanted})
    assert contents(vault.root) == before
    assert hand_off(vault).added == (2,)


def test_added_column_that_was_dropped_is_a_conflict(vault: Vault) -> None:
    hand_off(vault, OLD)
    add(vault, {"id": 2, "name": "b", "vip": True})
    hand_off(vault, NEW)
    with table(vault).update_schema() as columns:
        columns.delete_column("vip")
    add(vault, {"id": 3, "name": "c", "vip": True})
    with pytest.raises(Conflict, match="no longer has the column vip"):
        hand_off(vault, NEW)


@pytest.mark.parametrize("projection", [False, True])
def test_columns_of_a_parquet_table_in_glue_grow(
    vault: Vault, moto_s3: S3Server, use_s3: Callable[[S3Server], None], bucket_name: str, projection: bool
) -> None:
    use_s3(moto_s3)
    moto_s3.make_bucket(bucket_name)
    name = f"db_{uuid.uuid4().hex[:8]}"
    options = {"root": f"s3://{bucket_name}/lake", "format": "parquet", "catalog": "glue", "projection": projection}
    glue = boto3.client("glue", region_name="us-east-1")

    def registered() -> dict[str, str]:
        table = glue.get_table(DatabaseName=name, Name="t")["Table"]
        return {column["Name"]: column["Type"] for column in table["StorageDescriptor"]["Columns"]}

    for schema in (OLD, NEW, OLD):
        add(vault, {"id": 2, "name": "b", "vip": True})
        hand_off(vault, schema, table=f"{name}.t", **options)
        columns = registered()
        if schema is OLD and "vip" not in columns:
            assert (columns["id"], columns["_error"]) == ("int", "string")
            table = glue.get_table(DatabaseName=name, Name="t")["Table"]
            table["StorageDescriptor"]["Columns"][0]["Type"] = "varchar(20)"  # as a user has changed it
            changed = {key: table[key] for key in ("Name", "StorageDescriptor", "PartitionKeys", "Parameters")}
            glue.update_table(DatabaseName=name, TableInput=changed)
    assert list(columns)[-4:] == ["name", "_error", "vip", "at"], "at the end, as some readers go by position"
    assert (columns["id"], columns["vip"], columns["at"]) == ("bigint", "boolean", "struct<x:float>")
    assert next(iter(columns.values())) == "varchar(20)"
    if not projection:
        found = glue.get_partitions(DatabaseName=name, TableName="t")["Partitions"]
        held = {part["Values"][0]: {one["Name"] for one in part["StorageDescriptor"]["Columns"]} for part in found}
        assert {number for number, names in held.items() if "vip" in names} == {"2", "3"}


def test_older_schema_drops_and_narrows_nothing(vault: Vault) -> None:
    hand_off(vault, OLD)
    add(vault, {"id": 2**40, "name": "b", "vip": True})
    columns = hand_off(vault, NEW).columns
    add(vault, {"id": 2**41, "name": "c", "vip": False})
    report = hand_off(vault, OLD)
    assert (report.columns, report.warnings) == (columns, ())
    assert rows(vault, "id", "vip")[1:] == [(2**40, True), (2**41, False)]


def test_plan_of_a_killed_run_keeps_its_columns(vault: Vault) -> None:
    """Of its files, which may be there already: the next generation has the newer ones."""
    hand_off(vault, OLD)
    add(vault, {"id": 2, "name": "b", "vip": True})
    with suppress(Failed), writing(Mock(side_effect=Failed("for a test"))):
        hand_off(vault, OLD)
    add(vault, {"id": 3, "name": "c", "vip": True})
    report = hand_off(vault, NEW)
    assert report.added == (2, 3)
    assert rows(vault, "id", "vip") == [(1, None), (2, None), (3, True)]
    files = {generation_of(key): rows_in(objects_of(vault.root), key)[0] for key in table_keys(vault.root)}
    assert ["vip" in files[number] for number in (1, 2, 3)] == [False, False, True]


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "event", "fields": fields})


def add_avro(vault: Vault, schema: str, *events: dict[str, Any]) -> None:
    for event in events:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, fastavro.parse_schema(json.loads(schema)), event)
        vault.add(written.getvalue())


PLACE = {"type": "record", "name": "place", "fields": [{"name": "x", "type": "float"}]}
WIDER_PLACE = {**PLACE, "fields": [{"name": "x", "type": "double"}, {"name": "y", "type": "string", "default": "-"}]}
FIRST = avro({"name": "id", "type": "int"}, {"name": "of", "type": "string"}, {"name": "at", "type": PLACE})
SECOND = avro(
    {"name": "id", "type": "long"},
    {"name": "customer", "type": "string", "aliases": ["of"]},
    {"name": "at", "type": WIDER_PLACE},
    {"name": "tags", "type": {"type": "array", "items": "bytes"}, "default": ["\u00ff"]},
    {"name": "any", "type": ["null", "int", "string"]},
)


def test_avro_of_an_older_schema_has_the_defaults_of_the_newer_one(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    vault = Vault(tmp_path, f"file://{tmp_path}/objects")
    vault.create()
    options = {"decode": "avro"}
    old, new = ({"id": 1, "of": "a", "at": {"x": 0.5}}, {"id": 2**40, "customer": "b", "at": {"x": 0.1, "y": "z"}})
    add_avro(vault, FIRST, old)
    hand_off(vault, schema_text=FIRST, **options)
    add_avro(vault, SECOND, {**new, "tags": [b"t"], "any": "text"}, {**new, "tags": [], "any": 7})
    assert hand_off(vault, schema_text=SECOND, **options).warnings == ()
    add_avro(vault, FIRST, old)
    assert "so it counts as an older one" in " ".join(hand_off(vault, schema_text=FIRST, **options).warnings)
    found = rows(vault, "id", "of", "customer", "at", "tags", "_error")
    assert found == [
        (1, "a", None, {"x": 0.5, "y": None}, None, None),
        (2**40, None, "b", {"x": 0.1, "y": "z"}, [b"t"], None),
        (2**40, None, "b", {"x": 0.1, "y": "z"}, [], None),
        (1, "a", "a", {"x": 0.5, "y": "-"}, [b"\xff"], "any: the event has no any, which has no default"),
    ]
    unions = [None, {"int": None, "string": "text"}, {"int": 7, "string": None}, None]
    assert [value for (value,) in rows(vault, "any")] == unions


def test_field_that_becomes_a_union_or_was_one_keeps_the_values_of_its_branch(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    vault = Vault(tmp_path, f"file://{tmp_path}/objects")
    vault.create()
    one = avro({"name": "a", "type": "int"}, {"name": "b", "type": ["int", "string"]}, {"name": "c", "type": "string"})
    more = {"name": "more", "type": "boolean"}
    two = avro(
        {"name": "a", "type": ["int", "string"]}, {"name": "b", "type": "int"}, {"name": "c", "type": "int"}, more
    )
    add_avro(vault, one, {"a": 1, "b": "x", "c": "12"})
    hand_off(vault, schema_text=one, decode="avro")
    add_avro(vault, two, {"a": 2, "b": 3, "c": 4, "more": True}, {"a": "y", "b": 3, "c": 4, "more": False})
    hand_off(vault, schema_text=two, decode="avro")
    assert rows(vault, "a", "b", "c", "_error") == [
        (1, {"int": None, "string": "x"}, "12", None),
        (2, {"int": 3, "string": None}, None, "c: not a string"),
        (None, {"int": 3, "string": None}, None, "a: not a int; c: not a string"),
    ]


def test_statements_for_a_grown_table_add_its_columns(vault: Vault) -> None:
    options: dict[str, Any] = {"format": "parquet", "catalog": None}
    hand_off(vault, OLD, **options)
    said = {
        engine: table_ddl(vault.uri(), engine, root=vault.root)
        for engine in ("athena", "trino", "hive", "spark", "duckdb")
    }
    assert not any("COLUMN" in text for text in said.values())
    add(vault, {"id": 2**40, "name": "b", "vip": True, "at": {"x": 0.5}})
    hand_off(vault, NEW, **options)
    said = {engine: table_ddl(vault.uri(), engine, root=vault.root) for engine in said}
    assert 'ADD COLUMN IF NOT EXISTS "at" row("x" real);\n' in said["trino"]
    assert said["trino"].index("ADD COLUMN") < said["trino"].index("register_partition"), (
        "which have the table's columns"
    )
    for engine in ("athena", "hive"):
        assert "REPLACE COLUMNS (\n" in said[engine]
        assert said[engine].count("`vip` boolean") == 2
    assert "generation={1,2}'" in said["spark"]
    assert "`vip` boolean" in said["spark"]
    found = duckdb.connect()
    found.sql(said["duckdb"].replace("file://", ""))
    asked = 'SELECT id, vip, "at".x, generation FROM stream ORDER BY id'
    assert found.sql(asked).fetchall() == [(1, None, None, 1), (2**40, True, 0.5, 2)]
