"""Rows are what Java's libraries read, field by field, whatever schemas there were before the newest one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from streamvault import write_table
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
    ("kind", "seed", "fields"),
    [
        *(("avro", 1, 20), ("protobuf", 1, 20), ("json", 1, 0)),
        *(pytest.param("avro", seed, 20, marks=pytest.mark.long) for seed in range(2, 11)),
    ],
)
def test_rows_that_trino_reads_are_what_java_reads(
    java: JavaDeserializers,
    schema_registry: SchemaRegistryServer,
    vault_in_glue: Vault,
    trino: TrinoServer,
    kind: str,
    seed: int,
    fields: int,
) -> None:
    name = f"equal_{uuid.uuid4().hex[:8]}"
    history = java.history(kind, seed, fields, registry=schema_registry.uri, group=name)
    vault_in_glue.add(*history.payloads)
    # a name of its own, as this Trino keeps footers of Parquet files of the same key in another bucket
    options = {
        "root": vault_in_glue.root,
        "table": f"{name}.{name}",
        "catalog": "glue",
        "master": "inline",
        "group": name,
    }
    write_table(vault_in_glue.uri(), decode="registry", registry=schema_registry.uri, **options)
    columns, *_ = columns_of(RegistryGroup(schema_registry.uri, name).noted())
    kinds = {column.field: arrow_type(column.type) for column in columns}
    names = ", ".join(f'"{column.column}"' for column in columns)
    answer = trino.query(f'SELECT {names}, {ERROR} FROM iceberg.{name}.{name} ORDER BY "offset"', "iceberg")
    rows = [
        {**{field: of_trino(kind, one) for (field, kind), one in zip(kinds.items(), row, strict=False)}, ERROR: row[-1]}
        for row in answer
    ]
    assert list(history.differences(rows, kinds)) == []
