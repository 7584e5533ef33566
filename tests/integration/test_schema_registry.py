"""Events that Pravega's own serializers wrote with a real Schema Registry become columns, all by one command."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2
from pyspark.sql import SparkSession

from streamvault import check_archive, compact_archive, export_stream, import_stream, read_archive, write_table
from streamvault.cli import main
from streamvault.common.errors import Conflict, Failed, Usage
from streamvault.spark import register
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from testkit.servers.availability import Unavailable
from testkit.servers.java import spark_environment
from testkit.servers.process import free_ports
from testkit.servers.schema_registry import JavaSerializers, SchemaRegistryServer
from testkit.servers.spark_cluster import end_spark
from tests.conftest import absent
from tests.integration.conftest import Site

pytestmark = [pytest.mark.pravega, pytest.mark.timeout(600)]

CODECS = ("None", "GzipCompressor", "SnappyCompressor")
FIRST = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}  # fmt: skip
SECOND = {
    **FIRST,
    "fields": [
        *FIRST["fields"],
        {"name": "country", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["none"]},
        {"name": "either", "type": ["int", "string"], "default": 7},
    ],
}
SEVEN, ONE = {"int": 7, "string": None}, {"int": 1, "string": None}
OLD = [{"id": number, "cents": "\u0001\u0002"} for number in range(3)]
NEW = [{**record, "country": {"string": "DE"}, "tags": ["a", "b"], "either": {"int": 1}} for record in OLD]


@dataclass(frozen=True)
class Registered:
    """A stream whose writers use a registry, and a root for tables of it."""

    site: Site
    registry: SchemaRegistryServer
    java: JavaSerializers
    name: StreamName
    folder: Path

    @property
    def uri(self) -> str:
        return f"{self.site.server.uri}/{self.name}"

    def write(self, schema: object, records: Iterable[object], **how: str) -> None:
        content = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
        self.java.write(self.site.server, self.registry, self.name, content, records, **how)

    def hand_off(self, source: str = "", **options: Any) -> list[dict[str, Any]]:
        """Hand off, and return what was decoded of all rows of the table."""
        options = {"registry": self.registry.uri, "root": str(self.folder), "master": "inline[2]", **options}
        report = write_table(source or self.uri, **options)
        assert report.undecoded == 0
        return self.rows(report.columns[report.columns.index("payload") + 1 :])

    def rows(self, columns: Sequence[str], generation: str | int = "*") -> list[dict[str, Any]]:
        files = sorted((self.folder / str(self.name) / "table").rglob(f"generation={generation}/**/*.parquet"))
        return [row for file in files for row in pq.ParquetFile(file).read(columns).to_pylist()]


@pytest.fixture(scope="session")
def java_serializers(tmp_path_factory: pytest.TempPathFactory) -> JavaSerializers:
    try:
        return JavaSerializers(tmp_path_factory.mktemp("serializers"))
    except Unavailable as error:
        absent("jdk", str(error))


@pytest.fixture
def registered(
    here: Site,
    schema_registry: SchemaRegistryServer,
    java_serializers: JavaSerializers,
    scope_name: str,
    tmp_path: Path,
) -> Registered:
    name = StreamName(scope_name, f"{scope_name}-stream")
    here.store.create_stream_and_scope(name, StreamConfiguration(scaling=Scaling(min_segments=1)))
    return Registered(here, schema_registry, java_serializers, name, tmp_path / "lake")


def test_records_of_each_schema_and_codec_are_read_with_the_newest_schema(registered: Registered) -> None:
    for codec in CODECS:
        registered.write(FIRST, OLD, codec=codec)
        registered.write(SECOND, NEW, codec=codec)
    export_stream(registered.uri, str(registered.folder), master="inline")
    found = registered.hand_off(f"{registered.folder}/{registered.name}", decode="registry", format="parquet")
    known = [{"id": number, "cents": Decimal("2.58"), "_error": None} for number in range(3)]
    old = [{**row, "country": None, "tags": ["none"], "either": SEVEN} for row in known]
    new = [{**row, "country": "DE", "tags": ["a", "b"], "either": ONE} for row in known]
    assert found == 3 * [*old, *new]


def test_events_are_decoded_without_a_table(registered: Registered, capfd: pytest.CaptureFixture[str]) -> None:
    registered.write(FIRST, OLD, codec="GzipCompressor")
    registered.write(SECOND, NEW)
    url, known = registered.registry.uri, [0, 1, 2, 0, 1, 2]
    export_stream(registered.uri, str(registered.folder), schemas=url, master="inline")
    archive = f"{registered.folder}/{registered.name}"
    table = read_archive(archive, decode="registry").read_all()
    assert table["id"].to_pylist() == known
    assert table["country"].to_pylist() == [None, None, None, "DE", "DE", "DE"]
    assert table["_error"].null_count == len(known)
    assert read_archive(archive, decode="registry", registry=url).read_all() == table
    assert main(["cat", archive, "--decode", "registry", "--format", "jsonl", "--limit", "4"]) == 0
    out, err = capfd.readouterr()
    fields = [json.loads(line)["fields"] for line in out.splitlines()]
    assert fields[3] == {"id": 0, "cents": "2.58", "country": "DE", "tags": ["a", "b"], "either": ONE}
    assert err == ""


@pytest.mark.spark
def test_spark_decodes_an_archive_and_a_stream(
    registered: Registered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered.write(FIRST, OLD, codec="SnappyCompressor")
    registered.write(FIRST, OLD)
    archive, url = f"{registered.folder}/{registered.name}", registered.registry.uri
    export_stream(registered.uri, str(registered.folder), schemas=url, master="inline")
    registered.write(FIRST, OLD)  # only the stream has these
    for name, value in spark_environment().items():
        monkeypatch.setenv(name, value)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    try:
        register(spark)
        batch = spark.read.format("streamvault").option("decode", "registry").load(f"file://{archive}")
        assert [row.id for row in batch.orderBy("segment", "offset").select("id").collect()] == [0, 1, 2, 0, 1, 2]
        live = spark.read.format("pravega").option("decode", "registry").option("registry", url).load(registered.uri)
        assert live.where("_error IS NULL AND cents = 2.58").count() == 9
        query = (
            spark.readStream.format("pravega").option("archive", f"file://{archive}").option("decode", "registry")
            .option("registry", url).load(registered.uri).select("id", "cents", "_error")
            .writeStream.format("memory").queryName("decoded").trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        )  # fmt: skip
        query.awaitTermination()
        assert spark.table("decoded").where("_error IS NULL").count() == 9
    finally:
        end_spark(spark)


def test_a_table_grows_with_its_group(registered: Registered) -> None:
    registered.write(FIRST, OLD)
    known = [{"id": number, "cents": Decimal("2.58"), "_error": None} for number in range(3)]
    assert registered.hand_off(decode="registry") == known
    registered.write(FIRST, OLD[:1])
    registered.write(SECOND, NEW[:1], codec="GzipCompressor")
    later = [
        {**known[0], "country": None, "tags": ["none"], "either": SEVEN},
        {**known[0], "country": "DE", "tags": ["a", "b"], "either": ONE},
    ]
    assert registered.hand_off(columns="keep") == [*known, known[0], known[0]]
    registered.write(FIRST, OLD[:1])
    registered.write(SECOND, NEW[:1])
    report = write_table(registered.uri, root=str(registered.folder), registry=registered.registry.uri, master="inline")
    assert (report.undecoded, report.columns[-3:]) == (0, ("tags", "either", "_error"))
    assert registered.rows([*known[0], "country", "tags", "either"], generation=3) == later
    with pytest.raises(Usage, match="decode='registry' requires registry"):
        registered.hand_off(registry=None)
    with pytest.raises(Conflict, match=r"other options \(group\)"):
        registered.hand_off(group="another")


def test_protobuf_has_its_types(registered: Registered) -> None:
    order = {"id": "5", "kind": "BIG", "tags": ["a"], "where": {"x": 0.5}, "big": "18446744073709551615"}
    for codec in CODECS:
        registered.write(descriptors(), [order, {}], kind="Protobuf", codec=codec)
    first = {"id": 5, "kind": "BIG", "tags": ["a"], "where": {"x": 0.5}, "big": Decimal(2**64 - 1), "_error": None}
    second = {"id": 0, "kind": "NONE", "tags": [], "where": None, "big": Decimal(0), "_error": None}
    assert registered.hand_off(decode="registry") == 3 * [first, second]


def descriptors() -> bytes:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.nested_type.add(name="Place").field.add(name="x", number=1, type=field.TYPE_FLOAT, label=1)
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("NONE", "BIG")):
        kind.value.add(name=name, number=number)
    for number, (name, of, label, named) in enumerate(
        [
            ("id", field.TYPE_INT64, 1, None),
            ("kind", field.TYPE_ENUM, 1, ".shop.Kind"),
            ("tags", field.TYPE_STRING, 3, None),
            ("where", field.TYPE_MESSAGE, 1, ".shop.Order.Place"),
            ("big", field.TYPE_UINT64, 1, None),
        ],
        1,
    ):
        order.field.add(name=name, number=number, type=of, label=label, type_name=named)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_json_has_the_properties_of_its_schema(registered: Registered) -> None:
    items = {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}}
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "items": items, "any": {}}}
    for codec in CODECS:
        registered.write(schema, [{"id": 5, "items": [{"sku": "s"}], "any": 1}, {}], kind="Json", codec=codec)
    found = registered.hand_off(decode="registry", group=registered.name.stream)
    first, second = {"id": 5, "items": [{"sku": "s"}], "_error": None}, {"id": None, "items": None, "_error": None}
    assert found == 3 * [first, second]


def test_a_group_has_several_types(registered: Registered) -> None:
    registered.write(FIRST, OLD[:1])
    other = {
        "type": "record",
        "name": "Refund",
        "fields": [{"name": "id", "type": "long"}, {"name": "why", "type": "string"}],
    }
    registered.write(other, [{"id": 9, "why": "late"}], message="Refund")
    found = registered.hand_off(decode="registry")
    assert found == [
        {"id": 0, "cents": Decimal("2.58"), "why": None, "_error": None},
        {"id": 9, "cents": None, "why": "late", "_error": None},
    ]


def test_no_group_and_no_registry_are_said_in_one_line(registered: Registered) -> None:
    registered.write(FIRST, OLD[:1])
    with pytest.raises(Usage, match=r"the registry has no such group: .* another\. Give the events' group"):
        registered.hand_off(decode="registry", group="another")
    nowhere = f"http://user:secret@127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(Failed, match="the registry does not answer") as failed:
        registered.hand_off(decode="registry", registry=nowhere)
    assert "secret" not in str(failed.value)
    assert registered.hand_off(decode="registry", table="late", registry=f"{registered.registry.uri}/")


def test_an_archive_that_has_noted_the_schemas_needs_no_registry(registered: Registered) -> None:
    with SchemaRegistryServer() as registry:
        own = replace(registered, registry=registry)
        own.write(FIRST, OLD, codec="SnappyCompressor")
        noting = {"root": str(own.folder), "layout": "chunks", "range_size": "64KiB", "master": "inline"}
        export_stream(own.uri, schemas=registry.uri, **noting)
        assert export_stream(own.uri, schemas=registry.uri, **noting).unchanged
        own.write(SECOND, NEW)
        export_stream(own.uri, schemas=registry.uri, **noting)
    own.site.store.seal(own.name)
    with pytest.raises(Failed, match="the registry does not answer"):
        export_stream(own.uri, schemas=registry.uri, **noting)
    export_stream(own.uri, **noting)
    archive = f"{own.folder}/{own.name}"
    compact_archive(archive, master="inline")
    assert check_archive(archive, read_data=True).ok
    found = own.hand_off(archive, decode="registry", registry=None)
    known = [{"id": number, "cents": Decimal("2.58"), "_error": None} for number in range(3)]
    old = [{**row, "country": None, "tags": ["none"], "either": SEVEN} for row in known]
    assert found == [*old, *({**row, "country": "DE", "tags": ["a", "b"], "either": ONE} for row in known)]
    restored, group = replace(own, name=StreamName(f"{own.name.scope}-b", "restored")), f"{own.name.stream}-b"
    import_stream(archive, restored.uri, schemas=registered.registry.uri, schema_group=group, master="inline")
    read = own.java.read(own.site.server, registered.registry, restored.name, group)
    assert [(row["id"], row.get("country"), row.get("tags")) for row in read] == [
        *((number, None, None) for number in range(3)),
        *((number, "DE", ["a", "b"]) for number in range(3)),
    ]
    other = replace(registered, name=StreamName(own.name.scope, "other"))
    own.site.store.create_stream_and_scope(other.name, StreamConfiguration(scaling=Scaling(min_segments=1)))
    other.write(SECOND, [], group=own.name.stream)
    with pytest.raises(Conflict, match="the registry's schemas differ from the archive's"):
        own.hand_off(archive, decode="registry", table="another", registry=registered.registry.uri)
