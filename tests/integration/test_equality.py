"""Rows are what Java's libraries read, field by field, whatever schemas there were before the newest one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from streamvault import export_stream, write_table
from streamvault.lake.registry import columns_of
from streamvault.lake.table import ERROR, arrow_type
from streamvault.sources.schemas import RegistryGroup
from testkit.java_deserializers import JavaDeserializers, java_deserializers, of_trino
from testkit.servers.availability import Unavailable
from testkit.servers.schema_registry import SchemaRegistryServer
from testkit.servers.trino import TrinoServer
from testkit.small_archives import Vault
from tests.conftest import absent

KINDS = ("avro", "protobuf", "json")
MANY = pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaDeserializers]:
    try:
        with java_deserializers(tmp_path_factory.mktemp("deserializers")) as found:
            yield found
    except Unavailable as error:
        absent("jdk", str(error))


@pytest.mark.parametrize("histories", [100, MANY])
@pytest.mark.parametrize("kind", KINDS)
def test_fields_are_what_java_reads_with_the_newest_schema(java: JavaDeserializers, kind: str, histories: int) -> None:
    wrong = {}
    for seed in range(histories):
        history = java.history(kind, seed)
        found = list(history.differences(*history.rows()))
        if found:
            wrong[seed] = found
    assert not wrong


@pytest.mark.minio
@pytest.mark.trino
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "seed", "fields", "whole"),
    [
        *(("avro", 1, 20, False), ("avro", 1, 12, True), ("protobuf", 1, 20, True), ("json", 7, 0, True)),
        *(pytest.param("avro", seed, 20, False, marks=pytest.mark.long) for seed in range(2, 11)),
    ],
)
def test_rows_that_trino_reads_are_what_java_reads_with_the_registry_and_after_it_has_ended(
    java: JavaDeserializers, vault_in_glue: Vault, trino: TrinoServer, kind: str, seed: int, fields: int, whole: bool
) -> None:
    """`whole` says that no event lacks what the newest schema asks for, and none has what no column holds."""
    name = f"equal_{uuid.uuid4().hex[:8]}"
    options: dict[str, Any] = {"decode": "registry", "catalog": "glue", "master": "inline"}
    with SchemaRegistryServer() as registry:
        history = java.history(kind, seed, fields, registry=registry.uri, group=name)
        vault_in_glue.add(*history.payloads)
        export_stream(vault_in_glue.uri(), vault_in_glue.root, schemas=registry.uri, schema_group=name, master="inline")
        columns, *_ = columns_of(RegistryGroup(registry.uri, name).noted())
        # names of their own, as this Trino keeps footers of Parquet files of the same key in another bucket
        write_table(vault_in_glue.archive, table=f"{name}.{name}", registry=registry.uri, **options)
    write_table(vault_in_glue.archive, table=f"{name}.{name}_off", **options)
    kinds = {column.field: arrow_type(column.type) for column in columns}
    names = ", ".join(f'"{column.column}"' for column in columns)
    answer, later = (
        trino.query(f'SELECT {names}, {ERROR} FROM iceberg.{name}.{table} ORDER BY "offset"', "iceberg")
        for table in (name, f"{name}_off")
    )
    assert later == answer
    assert not whole or [row[-1] for row in answer] == [None] * len(history.events)
    rows = [
        {**{field: of_trino(kind, one) for (field, kind), one in zip(kinds.items(), row, strict=False)}, ERROR: row[-1]}
        for row in answer
    ]
    assert list(history.differences(rows, kinds)) == []
