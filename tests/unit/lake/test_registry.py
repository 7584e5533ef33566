"""Records by the encodings of a Schema Registry, whatever events and schemas there are, and whatever it answers."""

from __future__ import annotations

import base64
import gzip
import io
import json
import socket
import struct
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from streamvault import export_stream, follow_stream, import_stream, table_ddl, write_table
from streamvault.common.errors import Conflict, Usage
from streamvault.common.progress import Progress
from streamvault.exporter.follow import _Following
from streamvault.exporter.reports import ExportReport
from streamvault.exporter.run import ExportRun
from streamvault.lake.avro import AvroPayloads
from streamvault.lake.decoding import decoded_columns
from streamvault.lake.origins import StreamOrigin
from streamvault.lake.protobuf_payloads import protobuf_types
from streamvault.lake.registry import RegisteredPayloads, Undecodable, columns_of, knows
from streamvault.lake.table import TableOptions, Wanted, grown, hive_type
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup, SchemaVersion
from streamvault.objectstore.uri import RootAddress
from streamvault.sources.schemas import RegistryFailed, RegistryGroup
from streamvault.streamstore.model import StreamName
from testkit.lakes import rows_in, table_keys
from testkit.servers.process import free_ports
from testkit.servers.raw_http import RawHttpServer
from testkit.small_archives import Vault, archive_of


def record(*fields: tuple[str, Any], name: str = "shop.Order") -> dict[str, Any]:
    """An Avro schema of fields: name, type, and perhaps a default."""
    made = [
        {"name": field[0], "type": field[1], **({"default": field[2]} if len(field) > 2 else {})} for field in fields
    ]
    return {"type": "record", "name": name, "fields": made}


def encoding(kind: str, name: str, schema: bytes, codec: str = "") -> SchemaEntry:
    data = base64.b64encode(schema).decode() or "AA=="
    return SchemaEntry(encoding=0, format=kind, type=name, version=0, data=data, codec=codec)


def avro(schema: dict[str, Any], codec: str = "") -> SchemaEntry:
    return encoding("Avro", schema["name"], json.dumps(schema).encode(), codec)


def group(*encodings: SchemaEntry | None) -> SchemaGroup:
    """A group of encodings with these ids."""
    numbered = [(number, one) for number, one in enumerate(encodings) if one is not None]
    return SchemaGroup(
        group="g", entries=tuple(one.model_copy(update={"encoding": number}) for number, one in numbered)
    )


def written(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), value)
    return target.getvalue()


def framed(number: int, content: bytes) -> bytes:
    return b"\x01" + struct.pack(">i", number) + content


def decoded(newest: SchemaEntry, encodings: Encodings, *payloads: bytes) -> list[dict[str, Any]]:
    columns, readers, *_ = columns_of(group(newest))
    options = TableOptions(
        scope="s",
        stream="t",
        table="t",
        kind="parquet",
        decode="registry",
        framing="pravega",
        columns=columns,
        avro=readers,
        group="g",
        target_size=1,
    )
    made = decoded_columns(options, pa.array(payloads, pa.binary()), group(*encodings))
    return pa.table(made).to_pylist()  # type: ignore[no-any-return]


OLD = record(("id", "int"))
NEW = record(
    ("id", "long"), ("country", ["null", "string"], "DE"), ("tags", {"type": "array", "items": "string"}, ["x"])
)
Encodings = tuple[SchemaEntry | None, ...]
ENCODINGS: Encodings = (avro(OLD), None, avro(NEW), avro(NEW, "application/x-gzip"), avro(NEW, "lzma"))
VALUE = {"id": 2**40, "country": None, "tags": []}


def test_events_are_read_by_their_encodings_in_their_order() -> None:
    zipped = gzip.compress(written(NEW, VALUE) + bytes(40))
    payloads = [
        framed(2, written(NEW, VALUE)),
        framed(0, written(OLD, {"id": 5})),
        framed(3, zipped),
        framed(1, b"\x00"),
        framed(0, written(OLD, {"id": 6})),
        framed(70_000, b""),
        framed(-1, b""),
        framed(4, b"\x00"),
        framed(3, zipped[:-1]),
        framed(3, gzip.compress(bytes(1_000_000))),
        framed(0, written(OLD, {"id": 7}) + b"\x00"),
        b"\x00" + framed(0, b""),
        b"\x01",
    ]
    rows = decoded(avro(NEW), ENCODINGS, *payloads)
    old = {"country": "DE", "tags": ["x"], "_error": None}
    new = {**VALUE, "_error": None}
    assert rows[:3] == [new, {"id": 5, **old}, new]
    assert rows[4] == {"id": 6, **old}
    reasons = [row["_error"] for row in rows]
    unknown = "no schema is known for its encoding id, neither recorded in the archive nor from the registry"
    assert reasons[3] == reasons[5] == reasons[6] == unknown
    assert reasons[7] == "an unknown codec: lzma"
    assert reasons[8].startswith("not compressed as its encoding says: it is cut off")
    assert "suspiciously large" in reasons[9]
    assert reasons[10] == "1 bytes follow the Avro record", "only compressed records are padded"
    assert reasons[11].endswith("no header of Pravega's serializers")
    assert reasons[12] == "no header of Pravega's serializers"
    assert rows == [row for payload in payloads for row in decoded(avro(NEW), ENCODINGS, payload)]


@given(st.lists(st.tuples(st.integers(-1, 6), st.binary(max_size=12)), max_size=12))
def test_no_event_stops_a_table(events: list[tuple[int, bytes]]) -> None:
    payloads = [framed(number, content) for number, content in events]
    rows = decoded(avro(NEW), ENCODINGS, *payloads)
    assert rows == [row for payload in payloads for row in decoded(avro(NEW), ENCODINGS, payload)]


def test_events_of_ids_that_are_all_different_are_parsed_at_once() -> None:
    schema = record(("a", "int"))
    columns, readers, *_ = columns_of(group(avro(schema)))
    payloads = pa.array([framed(number, written(schema, {"a": number})) for number in range(2000)], pa.binary())
    with patch("streamvault.lake.registry.Undecodable.parse", autospec=True, side_effect=Undecodable.parse) as parse:
        found = RegisteredPayloads(columns, readers, group(avro(schema))).parse(payloads)
    assert parse.call_count == 1
    assert found.columns[0].to_pylist() == [0] + [None] * 1999
    assert found.reasons.null_count == 1


def test_a_field_that_the_newest_schema_has_lost_is_read_where_the_table_has_it() -> None:
    columns, *_ = columns_of(group(avro(NEW)))
    newest = json.dumps({"shop.Order": record(("id", "long"))})
    parser = RegisteredPayloads(columns, newest, group(avro(NEW), avro(OLD)))
    found = parser.parse(pa.array([framed(0, written(NEW, {**VALUE, "id": 7, "country": "FR"})), framed(1, b"\x04")]))
    assert [column.to_pylist() for column in found.columns] == [[7, 2], ["FR", None], [[], None]]
    assert found.reasons.null_count == 2


def money(scale: int) -> dict[str, Any]:
    return record(("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale}))


@pytest.mark.parametrize(
    ("writer", "reader", "value"),
    [
        (money(2), money(4), Decimal("2.58")),
        (
            record(("price", {"type": "long", "logicalType": "timestamp-millis"})),
            record(("price", {"type": "long", "logicalType": "timestamp-micros"})),
            datetime(1970, 1, 1, 0, 0, 0, 1000),  # noqa: DTZ001
        ),
    ],
)
def test_units_and_scales_are_the_writers(writer: dict[str, Any], reader: dict[str, Any], value: object) -> None:
    content = b"\x04\x01\x02" if isinstance(value, Decimal) else b"\x02"
    assert decoded(avro(reader), (avro(writer),), framed(0, content)) == [{"price": value, "_error": None}]


def test_what_an_alias_names_is_of_the_writers_unit_and_scale() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 10}
    old = record(
        ("amount", {**decimal, "scale": 2}),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("lines", {"type": "array", "items": record(("net", {**decimal, "scale": 2}), name="Line")}),
    )
    line = record(("sum", {**decimal, "scale": 4}), name="Line")
    line["fields"][0]["aliases"] = ["net"]
    new = record(
        ("total", {**decimal, "precision": 12, "scale": 4}),
        ("moment", {"type": "long", "logicalType": "timestamp-micros"}),
        ("lines", {"type": "array", "items": line}),
    )
    new["fields"][0]["aliases"], new["fields"][1]["aliases"] = ["amount"], ["at"]
    [row] = decoded(avro(new), (avro(old),), framed(0, b"\x04\x30\x39\x02\x02\x04\x30\x39\x00"))
    moment = datetime(1970, 1, 1, 0, 0, 0, 1000)  # noqa: DTZ001
    lines = [{"sum": Decimal("123.45")}]
    assert row == {"total": Decimal("123.45"), "moment": moment, "lines": lines, "_error": None}


def test_an_array_of_values_without_bytes_is_not_read() -> None:
    for empty in ("null", {"type": "record", "name": "E", "fields": []}, {"type": "fixed", "name": "F", "size": 0}):
        writer = record(("id", "int"), ("none", {"type": "array", "items": empty}))
        [row] = decoded(avro(OLD), (avro(writer),), framed(0, b"\x02" + b"\xfe" * 9 + b"\x01"))
        assert row["_error"].startswith("a column cannot hold")


def test_an_array_of_values_without_bytes_is_not_read_either_behind_a_recursive_field() -> None:
    fields = [("next", ["null", "R"]), ("none", {"type": "array", "items": "null"})]
    writer = record(("id", "int"), ("r", record(*fields, name="R")), name="Order")
    [row] = decoded(avro(OLD), (avro(writer),), framed(0, b"\x02\x00" + b"\xfe" * 9 + b"\x01"))
    assert row["_error"].startswith("a column cannot hold an Avro array of values without bytes")


@pytest.mark.parametrize("kind", ["bytes", {"type": "record", "name": "R", "fields": [{"name": "b", "type": "bytes"}]}])
def test_a_default_that_is_not_of_its_type_is_a_reason(kind: Any) -> None:
    reader = record(("id", "int"), ("more", kind, "€" if kind == "bytes" else {"b": 5}))
    [row] = decoded(avro(reader), (avro(OLD),), framed(0, b"\x02"))
    assert row["_error"] == "more: the event has no more, whose default is not of its type"
    assert (row["id"], row["more"]) == (1, None)


def test_records_inside_one_another_without_an_end_have_a_reason() -> None:
    """The compiled reader of the library ends the process at some thousand of them."""
    kinds: list[tuple[Any, bytes, bytes]] = [
        (["null", "Node"], b"\x02", b""),
        ({"type": "array", "items": "Node"}, b"\x02", b"\x00"),
        ({"type": "map", "values": "Node"}, b"\x02\x00", b"\x00"),
    ]
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        for inner, begin, end in kinds:
            schema = avro(record(("id", "int"), ("next", inner), name="Node"))
            few, many = (framed(0, (b"\x02" + begin) * many + b"\x02\x00" + end * many) for many in (3, 100_000))
            rows = process.submit(decoded, schema, (schema,), few, many, few).result()
            assert [row["id"] for row in rows] == [1, None, 1]
            assert [row["_error"] and "RecursionError" in row["_error"] for row in rows] == [None, True, None]
        endless = avro(record(("next", "Node"), name="Node"))
        [row] = process.submit(decoded, avro(OLD), (endless,), framed(0, b"\x02")).result()
        assert "RecursionError" in row["_error"]


def test_a_compressed_record_is_not_larger_than_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamvault.lake.compressed.MOST_RECORD", 1000)
    [row] = decoded(avro(OLD), (avro(OLD, "application/x-gzip"),), framed(0, gzip.compress(b"\x02" + bytes(2000))))
    assert "suspiciously large" in row["_error"]


def test_schemas_that_name_types_again_and_again_are_looked_at_in_a_moment() -> None:
    nested: dict[str, Any] = record(("x", "int"), name="A0")
    for number in range(1, 30):
        nested = record(("l", nested), ("r", f"A{number - 1}"), name=f"A{number}")
    with pytest.raises(Usage, match="the Avro schema has more than 50,000 types"):
        columns_of(group(avro(record(("id", "int"), ("b", nested)))))
    node = {f"c{number}": {"$ref": "#/definitions/node"} for number in range(9)}
    definitions: dict[str, Any] = {"node": {"type": "object", "properties": {**node, "v": {"type": "integer"}}}}
    for number in range(19):
        inner = {"$ref": f"#/definitions/d{number + 1}"}
        definitions[f"d{number}"] = {"type": "object", "properties": {"l": inner, "r": inner}}
    definitions["d19"] = {"type": "integer"}
    properties = {name: {"$ref": f"#/definitions/{name}"} for name in ("node", "d0", "d18")}
    schema = json.dumps({"type": "object", "properties": properties, "definitions": definitions}).encode()
    columns, _, left_out, _ = columns_of(group(encoding("Json", "x", schema)))
    assert {one.field: one.type for one in columns} == {"node": "struct<v:bigint>", "d18": "struct<l:bigint,r:bigint>"}
    assert left_out == ("d0",)


def test_a_property_whose_name_is_no_text_is_left_out() -> None:
    integer = {"type": "integer"}
    inner = {"type": "object", "properties": {"\ud800": integer, "x": integer}}
    schema = json.dumps({"type": "object", "properties": {"\ud800": integer, "place": inner}}).encode()
    columns, _, left_out, _ = columns_of(group(encoding("Json", "x", schema)))
    assert [(one.field, one.type) for one in columns] == [("place", "struct<x:bigint>")]
    assert left_out == ("\\ud800",)


def messages(**fields: tuple[tuple[str, int, str | None], ...]) -> bytes:
    """A descriptor set of messages: their fields' names, types and the types' names."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    for message, members in fields.items():
        made = file.message_type.add(name=message)
        for number, (name, kind, named) in enumerate(members, 1):
            made.field.add(name=name, number=number, type=kind, label=1, type_name=named)  # type: ignore[arg-type]
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_messages_that_contain_each_other_again_and_again_have_no_column() -> None:
    doubled = {
        f"M{number}": tuple((name, FIELD.TYPE_MESSAGE, f".p.M{number + 1}") for name in "lr") for number in range(19)
    }
    node = tuple((f"c{number}", FIELD.TYPE_MESSAGE, ".p.Node") for number in range(9))
    last = ("v", FIELD.TYPE_INT32, None)
    assert protobuf_types(messages(Node=(*node, last)), "p.Node") == {
        **{name: None for name, _, _ in node},
        "v": pa.int32(),
    }
    assert protobuf_types(messages(**doubled, M19=(last,)), "p.M0") == {"l": None, "r": None}


def test_a_field_of_protobuf_is_read_as_its_writer_meant_it() -> None:
    old = messages(M=(("at", FIELD.TYPE_INT64, None), ("x", FIELD.TYPE_DOUBLE, None), ("n", FIELD.TYPE_INT32, None)))
    named = ("at", FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    new = messages(M=(named, ("x", FIELD.TYPE_FLOAT, None), ("n", FIELD.TYPE_INT64, None)))
    content = b"\x08\x80\xd0\x95\xff\xbc\x31\x11" + struct.pack("<d", 0.1) + b"\x18\x05"
    [row] = decoded(encoding("Protobuf", "p.M", new), (encoding("Protobuf", "p.M", old),), framed(0, content))
    assert (row["at"], row["x"], row["n"]) == (None, None, 5)
    assert row["_error"] == "at: not a timestamp of the years 1 to 9999; x: not a float"


def begun_with(schema: dict[str, Any]) -> TableOptions:
    columns, readers, *_ = columns_of(group(avro(schema)))
    of = {"scope": "s", "stream": "t", "table": "t", "kind": "parquet", "decode": "registry", "target_size": 1}
    return TableOptions(**of, columns=columns, avro=readers)


def symbols(*names: str) -> tuple[str, Any]:
    return "kind", {"type": "enum", "name": "Kind", "symbols": list(names)}


@pytest.mark.parametrize("adds", [True, False])
def test_a_newer_schema_is_read_with_also_if_it_has_no_new_column(adds: bool) -> None:
    begun = begun_with(record(symbols("A", "B")))
    newest = columns_of(group(avro(record(symbols("A", "B", "C")))))[:2]
    late = grown(begun, Wanted(*newest, adds=adds, knows=lambda _: True))
    assert late.columns == begun.columns
    assert json.loads(late.reader or late.avro) == json.loads(newest[1])
    without = columns_of(group(avro(record(("other", "int")))))[:2]
    noted = grown(late, Wanted(*without, adds=False))
    assert json.loads(noted.reader or noted.avro) == json.loads(newest[1]), "an archive may have noted older ones only"
    both = group(avro(record(symbols("A", "B"))), avro(record(("other", "int"))), avro(record(symbols("A", "B", "C"))))
    older = both.model_copy(update={"entries": both.entries[:2]})
    for noted_by, is_newer in ((both, True), (older, False)):
        found = grown(late, Wanted(*without, adds=False, knows=partial(knows, noted_by)))
        assert (json.loads(found.reader or found.avro) == json.loads(without[1])) == is_newer
    later = grown(late, Wanted(*without, adds=False, knows=lambda _: True))
    assert json.loads(later.reader or later.avro) == json.loads(without[1]), "a field was removed"
    named = late.model_copy(update={"decode": "avro"})
    kept = grown(named, Wanted(*without, adds=False))
    assert (kept.reader or kept.avro) == newest[1], "a file that lacks a column may be an old one"


@pytest.mark.parametrize(
    "malformed",
    [
        {**record(("id", "int")), "aliases": 5},
        {**record(("id", "int")), "aliases": [5]},
        record(("id", "int"), ("b", {"type": "fixed", "name": "F", "size": None})),
        record(("id", "int"), ("b", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": None})),
        record(("id", "int"), ("\ud800", "int")),
    ],
)
def test_a_malformed_newest_schema_blocks_no_table(malformed: dict[str, Any]) -> None:
    good = avro(record(("id", "int")))
    bad = good.model_copy(update={"encoding": 1, "version": 1, "data": avro(malformed).data})
    columns, readers, _, warnings = columns_of(group(good, bad))
    assert [column.field for column in columns] == ["id"]
    assert json.loads(readers) == {good.type: record(("id", "int"))}
    assert len(warnings) == 1
    recorded = json.dumps({good.type: malformed})  # a plan that has it nevertheless can be finished
    for parser in (RegisteredPayloads(columns, each, group(good, bad)) for each in (readers, recorded)):
        parsed = parser.parse(pa.array([framed(0, b"\x02"), framed(1, b"\x02")], pa.binary()))
        assert all(parsed.reasons.to_pylist()[1:])


def test_events_of_a_schema_that_came_after_the_run_began_are_read_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream's tail is fixed later than the columns are looked for."""
    vault, known = Vault(tmp_path), [avro(record(symbols("A", "B")))]
    monkeypatch.setattr(RegistryGroup, "find", lambda _: group(*known))
    vault.create()
    vault.add(framed(0, b"\x02"))
    options = {"format": "parquet", "decode": "registry", "registry": "http://none:1", "root": vault.root}
    write_table(vault.uri(), master="inline", **options)
    draft = StreamOrigin.draft

    def overtaken(origin: StreamOrigin, *arguments: Any) -> Any:
        if len(known) == 1:
            known.append(avro(record(symbols("A", "B", "C"))).model_copy(update={"version": 1}))
            vault.add(framed(1, b"\x04"))
        return draft(origin, *arguments)

    monkeypatch.setattr(StreamOrigin, "draft", overtaken)
    assert write_table(vault.uri(), master="inline", **options).undecoded == 0
    store = RootAddress.parse(vault.root).resolve().open()
    rows = [row for key in sorted(table_keys(vault.root)) for row in rows_in(store, key)]
    assert [row["kind"] for row in rows] == ["B", "C"]


def test_types_of_one_name_in_two_formats_are_decoded_each_by_its_own_schema() -> None:
    """The writers of a group have changed its format."""
    message = messages(M=(("id", FIELD.TYPE_INT32, None), ("more", FIELD.TYPE_INT32, None)))
    both = (avro(record(("id", "int"), name="p.M")), encoding("Protobuf", "p.M", message))
    for newest in both:
        rows = decoded(newest, both, framed(0, b"\x0a"), framed(1, b"\x08\x05\x10\x01"))
        assert [(row["id"], row["_error"]) for row in rows] == [(5, None), (5, None)]


def test_few_large_records_are_parsed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed ones may be a hundred times larger than the payloads that are read at once."""
    monkeypatch.setattr("streamvault.lake.payloads.PARSED_BYTES", 10_000)
    parsed, parse = [], AvroPayloads.parse
    monkeypatch.setattr(AvroPayloads, "parse", lambda self, some: parsed.append(some.nbytes) or parse(self, some))
    payloads = [framed(0, gzip.compress(b"\x02" + bytes(4000))) for _ in range(20)] + [b""]
    rows = decoded(avro(OLD), (avro(OLD, "application/x-gzip"),), *payloads)
    assert [row["id"] for row in rows] == [1] * 20 + [None]
    assert len(parsed) > 5
    assert max(parsed) < 15_000


def test_defaults_of_a_later_type_hold_also_without_a_new_column() -> None:
    first = record(("a", "int"), ("b", "int"), name="A")
    begun = begun_with(first)
    both = group(avro(first), avro(record(("a", "int"), ("b", "int", 5), name="B")))
    late = grown(begun, Wanted(*columns_of(both)[:2], adds=True))
    assert late.columns == begun.columns
    assert json.loads(late.reader or late.avro).keys() == {"A", "B"}


def test_a_type_that_came_later_is_decoded_and_schemas_that_are_none_have_a_reason() -> None:
    later = (avro(record(("id", "int"), name="Later")), encoding("Avro", "shop.Order", b"{"), encoding("Any", "x", b""))
    rows = decoded(avro(OLD), later, *(framed(number, b"\x02") for number in range(3)))
    assert rows[0] == {"id": 1, "_error": None}
    assert [row["_error"].partition(":")[0] for row in rows[1:]] == [
        "not an Avro schema",
        "a format that is not decoded",
    ]


FIELD = descriptor_pb2.FieldDescriptorProto


def order_schema() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    for number, (name, kind, label, named) in enumerate(
        [
            ("id", FIELD.TYPE_UINT64, 1, None),
            ("counts", FIELD.TYPE_MESSAGE, 3, ".shop.Order.CountsEntry"),
            ("at", FIELD.TYPE_MESSAGE, 1, ".google.protobuf.Timestamp"),
            ("parent", FIELD.TYPE_MESSAGE, 1, ".shop.Order"),
            ("blobs", FIELD.TYPE_BYTES, 3, None),
            ("rate", FIELD.TYPE_DOUBLE, 1, None),
            ("maybe", FIELD.TYPE_INT32, 1, None),
        ],
        1,
    ):
        order.field.add(name=name, number=number, type=kind, label=label, type_name=named)
    order.field[-1].proto3_optional, order.field[-1].oneof_index = True, 0
    order.oneof_decl.add(name="_maybe")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=FIELD.TYPE_UINT32, label=1)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def order_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(descriptor_pb2.FileDescriptorSet.FromString(order_schema()).file[0].SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


PLAIN = encoding("Protobuf", "shop.Order", order_schema())
ZIPPED = encoding("Protobuf", "shop.Order", order_schema(), "application/x-gzip")
ORDERS = st.builds(
    order_class(),
    id=st.integers(0, 2**64 - 1),
    counts=st.dictionaries(st.text(max_size=3), st.integers(0, 2**32 - 1), max_size=3),
    blobs=st.lists(st.binary(max_size=4), max_size=3),
    rate=st.floats(allow_nan=False),
    maybe=st.none() | st.integers(-5, 5),
    at=st.none() | st.fixed_dictionaries({"seconds": st.integers(-60_000_000_000, 250_000_000_000)}),
)


@given(ORDERS, st.integers(0, 9))
def test_protobuf_is_decoded_also_before_the_zeros_of_a_compressed_buffer(order: Any, zeros: int) -> None:
    content = order.SerializeToString()
    plain, zipped = decoded(
        PLAIN, (PLAIN, ZIPPED), framed(0, content), framed(1, gzip.compress(content + bytes(zeros)))
    )
    assert plain == zipped
    assert (plain["id"], dict(plain["counts"]), plain["blobs"]) == (order.id, dict(order.counts), list(order.blobs))
    assert (plain["rate"], plain["maybe"]) == (order.rate, order.maybe if order.HasField("maybe") else None)
    moment = order.at.seconds if order.HasField("at") else None
    if plain["_error"] is None:
        found = plain["at"] and (plain["at"] - datetime(1970, 1, 1)) // timedelta(seconds=1)  # noqa: DTZ001
        assert found == moment
    else:
        assert plain["_error"] == "at: not a timestamp of the years 1 to 9999"


@given(st.binary(max_size=30))
def test_bytes_that_are_no_message_have_a_reason(content: bytes) -> None:
    first, second = decoded(PLAIN, (PLAIN, ZIPPED), framed(0, content), framed(1, gzip.compress(content)))
    if first["_error"] is None:  # zeros at the end are no part of a compressed one
        assert {**first, "rate": repr(first["rate"])} == {**second, "rate": repr(second["rate"])}


def test_a_field_that_no_column_can_hold_is_left_out() -> None:
    types = protobuf_types(order_schema(), "shop.Order")
    assert {name: kind and hive_type(kind) for name, kind in types.items()} == {
        "id": "decimal(20,0)",
        "counts": "map<string,bigint>",
        "at": "timestamp",
        "parent": None,
        "blobs": "array<binary>",
        "rate": "double",
        "maybe": "int",
    }
    properties = {
        "id": {"type": ["null", "integer"]},
        "place": {"$ref": "#/definitions/place"},
        "any": {},
        "either": {"type": ["string", "integer"]},
        "loop": {"$ref": "#/definitions/loop"},
        "names": {"type": "array", "items": {"type": "string"}},
    }
    definitions = {
        "place": {"type": "object", "properties": {"x": {"type": "number"}, "a b": {"type": "string"}}},
        "loop": {"$ref": "#/definitions/loop"},
    }
    schema = json.dumps({"type": "object", "properties": properties, "definitions": definitions}).encode()
    columns, _, left_out, _ = columns_of(group(encoding("Json", "Order", schema)))
    assert {column.field: column.type for column in columns} == {
        "id": "bigint",
        "place": "struct<x:double>",
        "names": "array<string>",
    }
    assert left_out == ("any", "either", "loop")


@pytest.mark.parametrize(
    "schema",
    [
        encoding("Json", "x", b"{"),
        encoding("Json", "x", b'{"type":"string"}'),
        encoding("Json", "x", b'{"type":"object","properties":{}}'),
        encoding("Protobuf", "x", b"\xff"),
        encoding("Protobuf", "shop.Other", order_schema()),
        encoding("Avro", "x", b"\xff"),
        encoding("Avro", "x", b'"int"'),
        encoding("Any", "x", b""),
    ],
)
def test_schemas_without_columns_are_refused(schema: SchemaEntry) -> None:
    with pytest.raises(Usage):
        columns_of(group(schema))


BROKEN = (
    ("Avro", b"{", "not an Avro schema: "),
    ("Avro", b'"int"', "the Avro schema does not describe a record with fields: "),
    ("Protobuf", b"\xff", "not a Protobuf schema: "),
    ("Json", b"[]", "the JSON Schema does not describe objects with properties: "),
    ("Custom", b"", "a format that is not decoded: "),
)


@pytest.mark.parametrize(("kind", "schema", "reason"), BROKEN)
def test_a_schema_that_cannot_be_understood_stops_no_other_type(kind: str, schema: bytes, reason: str) -> None:
    broken = encoding(kind, "Other", schema)
    columns, _, _, warnings = columns_of(group(avro(NEW), broken, broken.model_copy(update={"codec": "x"})))
    assert [one.field for one in columns] == ["id", "country", "tags"]
    (warning,) = warnings
    assert warning.startswith(f"version 0 of Other gives no columns: {reason}")
    rows = decoded(avro(NEW), (avro(NEW), broken), framed(0, written(NEW, VALUE)), framed(1, b"\x02"))
    assert rows[0] == {**VALUE, "_error": None}
    assert rows[1]["id"] is None
    assert rows[1]["_error"].startswith("not a JSON object" if kind == "Json" else reason)


def test_columns_are_of_the_newest_schema_of_a_type_that_can_be_understood() -> None:
    newer = encoding("Avro", "shop.Order", b"{").model_copy(update={"version": 1})
    columns, readers, _, warnings = columns_of(group(avro(NEW), newer))
    assert [one.field for one in columns] == ["id", "country", "tags"]
    assert json.loads(readers) == {"shop.Order": NEW}
    assert len(warnings) == 1


class Registry(RawHttpServer):
    """Answers every request with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self._answer = answer
        self.requests: list[bytes] = []

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()
        return f"http://user:pass%40word@{host}:{port}"

    def respond(self, connection: socket.socket, request: bytearray) -> None:
        self.requests.append(bytes(request))
        connection.sendall(self._answer)
        raise EOFError


def http(body: bytes, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


FORMAT = {"serializationFormat": "Json", "fullTypeName": "Json"}
GZIP = "application/x-gzip"
DATA = base64.b64encode(b'{"type": "object", "properties": {"id": {"type": "integer"}}}').decode()
INFO = {"type": "x", "schemaData": DATA, "serializationFormat": FORMAT}
GOOD = {"schemaInfo": INFO, "versionInfo": {"version": 3}, "codecType": {"name": GZIP}}
LISTED = {**GOOD, "schemas": []}


class Group(Registry):
    """A group with so many encodings.

    Attributes:
        missing: what is answered for what does not exist.
        exists: whether the group does.
        failing: how many more requests are answered with an error.
    """

    def __init__(self, encodings: int, version: int = 3) -> None:
        super().__init__(b"")
        self.encodings, self.version = encodings, version
        self.missing, self.exists, self.failing = http(b"", "404 Not Found"), True, 0

    @property
    def paths(self) -> list[str]:
        """What was asked for since the last time."""
        paths = [one.split()[1].decode().partition("?")[0].removeprefix("/v1/groups/group") for one in self.requests]
        self.requests.clear()
        return paths

    def respond(self, connection: socket.socket, request: bytearray) -> None:
        place = request.split()[1].partition(b"?")[0].rpartition(b"/")[2].decode()
        answer: dict[str, Any] = {**GOOD, "versionInfo": {"version": self.version}}
        if place == "versions":
            unused = {**GOOD, "versionInfo": {"version": 9}}
            answer = {"schemas": [answer, unused]}
        elif not place.isdecimal():
            answer = {"allowMultipleTypes": True}
        known = self.exists and (not place.isdecimal() or int(place) < self.encodings)
        self._answer = http(json.dumps(answer).encode()) if known else self.missing
        if self.failing:
            self.failing, self._answer = self.failing - 1, http(b"", "503 Busy")
        super().respond(connection, request)


def entries(*ids: int) -> tuple[SchemaEntry, ...]:
    return tuple(
        SchemaEntry(encoding=number, type="x", format="Json", version=3, data=DATA, codec="application/x-gzip")
        for number in ids
    )


def test_a_group_is_noted_with_all_that_it_has() -> None:
    with Group(3) as server:
        found = RegistryGroup(server.url, "a space/the/group").noted()
    unused = SchemaVersion(type="x", format="Json", version=9, data=DATA)
    settings = '{"allowMultipleTypes": true}'
    assert found == SchemaGroup(
        group="a space/the/group", entries=entries(0, 1, 2), unused=(unused,), settings=settings
    )
    first = server.requests[0]
    assert first.startswith(b"GET /v1/groups/group?namespace=a%20space%2Fthe HTTP/1.1\r\n")
    assert base64.b64encode(b"user:pass@word") in first


def test_a_run_asks_for_each_encoding_once() -> None:
    with Group(3) as server:
        asked = RegistryGroup(server.url, "group")
        asked.noted()
        assert server.paths == ["", "/schemas/versions", *(f"/encodings/{number}" for number in (0, 1, 2, 3, 0))]
        server.encodings = 5
        assert [one.encoding for one in asked.noted().entries] == [0, 1, 2, 3, 4]
        assert server.paths == ["", "/schemas/versions", *(f"/encodings/{number}" for number in range(2, 6))]
        asked.noted()
        assert server.paths == ["", "/schemas/versions", "/encodings/4", "/encodings/5"]
        server.encodings = 4
        with pytest.raises(Conflict, match="encoding 4 is not what it was a moment ago"):
            asked.noted()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (http(b"", "401 Unauthorized"), "the registry answers 401 Unauthorized"),
        (http(b"", "503 Busy"), "the registry answers 503 Busy"),
        (http(b"", "429 Slow Down"), "the registry answers 429 Slow Down"),
        (http(b"", "302 Found", "Location: http://127.0.0.1:1/\r\n"), "the registry answers 302 Found"),
        (http(b"{"), "the registry's answer makes no sense"),
        (http(b"[" * 100_000), "the registry's answer makes no sense"),
        (http(b"[]"), "the registry's answer makes no sense"),
        (http(b'{"schemas": [7]}'), "the registry's answer makes no sense"),
        (http(json.dumps({**LISTED, "schemaInfo": 7}).encode()), "the registry's answer makes no sense"),
        (http(json.dumps(LISTED).replace(DATA, "!").encode()), "the registry's answer makes no sense"),
        (b"no HTTP\r\n\r\n", "the registry's answer makes no sense"),
        (http(b"{}")[:-1], "the registry's answer ends early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{", "the registry's answer ends early"),
        (http(b" " * (16 << 20) + b" {}"), "the registry's answer has more than 16,777,216 bytes"),
        (http(json.dumps(LISTED).encode()), "the group has more than 20 encodings"),
        (b"", "the registry does not answer"),
    ],
)
def test_answers_that_cannot_be_used_are_one_line(answer: bytes, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamvault.sources.schemas.MAX_SCHEMAS", 20)
    with Registry(answer) as server, pytest.raises(RegistryFailed) as failed:
        RegistryGroup(server.url, "group").noted()
    assert str(failed.value).startswith(message)
    assert "word" not in str(failed.value)
    is_outage = any(part in message for part in ("503", "429", "ends early", "does not answer"))
    assert failed.value.transient == is_outage


def test_an_answer_that_is_not_the_registrys_ends_no_list() -> None:
    with Group(1) as server:
        server.missing = http(b"<html>", "404 Not Found")
        with pytest.raises(RegistryFailed, match="the registry's answer makes no sense"):
            RegistryGroup(server.url, "group").noted()


def test_a_registry_that_is_set_up_anew_while_it_is_read_is_noticed() -> None:
    class Renewed(Group):
        def respond(self, connection: socket.socket, request: bytearray) -> None:
            if b"/encodings/1 " in request:
                self.version = 7
            super().respond(connection, request)

    with Renewed(3) as server, pytest.raises(Conflict, match="encoding 0 is not what it was a moment ago"):
        RegistryGroup(server.url, "group").noted()


def test_registry_that_is_not_there_says_what_to_do() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(RegistryFailed) as failed:
        RegistryGroup(url, "group").noted()
    said = "the registry does not answer (Connection refused): "
    assert str(failed.value) == f"{said}{url}. Check that it is running, and that the URL is right."
    with Registry(http(b"", "404 Not Found")) as server, pytest.raises(Conflict, match=r"404 Not Found .* without /v1"):
        RegistryGroup(f"{server.url}/v1", "group").ask("", "POST", {})
    with Registry(http(b"", "404 Not Found")) as server, pytest.raises(Usage, match=r"no such group: .* without /v1"):
        RegistryGroup(f"{server.url}/v1", "group").noted()


def test_group_without_a_registry_is_a_warning(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"x")
    said = "--schema-group has no effect without --schemas URL"
    for dry_run in (True, False, False, True):
        exported = export_stream(vault.uri(), vault.root, schema_group="g", master="inline", dry_run=dry_run)
        assert said in exported.warnings
    name = StreamName("scope", "restored")
    restored = import_stream(vault.archive, vault.uri(name), schema_group="g", master="inline")
    assert said in restored.warnings


def test_schemas_that_are_too_large_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamvault.manifests.manifest.MAX_GROUP_BYTES", 3)
    with Group(1) as server, pytest.raises(RegistryFailed, match=r"the group cannot be recorded: .* more than 3 bytes"):
        RegistryGroup(server.url, "group").noted()


@pytest.mark.parametrize("url", ["127.0.0.1:9092", "ftp://host", "http://", "http://host?x", "http://host:port"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(Usage, match="not the URL of a Schema Registry"):
        RegistryGroup(url, "group").noted()


def test_no_message_has_the_login() -> None:
    (port,) = free_ports(1)
    with pytest.raises(RegistryFailed) as caught:
        RegistryGroup(f"http://anna:secret@127.0.0.1:{port}", "group").noted()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("login", ["anna:se/cret", "anna:12/secret", "anna:sec?ret", "anna:sec#ret"])
@pytest.mark.parametrize("before", ["http://", "https:/", "ftp://", ""])
def test_no_login_that_is_not_quoted_is_shown(before: str, login: str) -> None:
    with pytest.raises(Usage, match="not the URL of a Schema Registry") as caught:
        RegistryGroup(f"{before}{login}@127.0.0.1:9", "group").noted()
    assert "anna" not in str(caught.value)
    assert "ret@" not in str(caught.value)


def export(vault: Vault, server: Registry | None = None, group: str = "group") -> ExportReport:
    noting = {} if server is None else {"schemas": server.url, "schema_group": group}
    return export_stream(vault.uri(), vault.root, master="inline", **noting)


WARNING = "new schemas are not recorded without --schemas URL"


def test_an_export_notes_what_the_registry_has(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"event")
    export(vault)
    with Group(1) as server:
        assert export(vault, server).generation == 2, "the schemas are new"
        assert server.paths
        assert export(vault, server).unchanged
        server.encodings = 2
        vault.add(b"more")
        for dry_run in (True, False):
            assert export_stream(vault.uri(), vault.root, master="inline", dry_run=dry_run).warnings == (WARNING,)
        assert export(vault, server).generation == 4, "what a run without the registry has left out is recorded"
        assert export(vault).unchanged
        down = {"master": "inline", "schemas": server.url, "schema_group": "group"}
    vault.add(b"without the registry")
    with pytest.raises(RegistryFailed, match="does not answer"):
        export_stream(vault.uri(), vault.root, **down)
    assert export(vault).warnings == (WARNING,)
    report = export_stream(vault.uri(), vault.root, **down)
    assert report.unchanged, "with nothing new, it may be down"
    assert report.warnings[0].startswith("new schemas were not looked for: the registry does not answer")
    with Group(2, version=7) as server, pytest.raises(Conflict, match="encoding 0 of group has two schemas"):
        export(vault, server)
    noted = [one.manifest.schemas for one in archive_of(vault.root).history().generations]
    assert [group and [one.encoding for one in group.entries] for group in noted] == [None, [0], [0], [0, 1], [0, 1]], (
        noted
    )
    vault.add(b"without schemas")
    export(vault)
    assert archive_of(vault.root).newest().schemas == noted[-1], "what was noted is kept"
    vault.add(b"in other registries")
    with Group(2, version=7) as server, pytest.raises(Conflict, match="encoding 0 of group has two schemas"):
        export(vault, server)
    with Group(2) as server, pytest.raises(Conflict, match="the schema groups group and an/group differ"):
        export(vault, server, "an/group")
    with Group(1) as server, pytest.raises(Conflict, match=r"fewer encodings than the archive: .*: 1 of 2") as caught:
        export(vault, server)
    assert "word" not in str(caught.value)
    with Group(2) as server:
        server.exists = False
        with pytest.raises(Conflict, match=r"fewer encodings than the archive: .*: 0 of 2"):
            export(vault, server)


def test_a_stream_whose_group_does_not_exist_yet_is_archived(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"event")
    with Group(1) as server:
        server.exists = False
        with pytest.raises(Usage, match="the registry has no such group"):
            export(vault, server)
        options = {"schemas": server.url, "master": "inline"}
        with patch.object(ExportRun, "run", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            export_stream(vault.uri(), vault.root, **options)
        resumed = export_stream(vault.uri(), vault.root, **options)
        assert (resumed.generation, resumed.events) == (1, 1)
        assert "the unfinished generation records no schemas; run again to record them" in resumed.warnings
        unchanged = export_stream(vault.uri(), vault.root, **options)
        assert unchanged.unchanged
        assert "the registry has no such group" in unchanged.warnings[0]
        server.exists = True
        noted = export_stream(vault.uri(), vault.root, **options)
        assert (noted.generation, noted.events, noted.warnings) == (2, 0, ())
    assert len(archive_of(vault.root).newest().schemas.entries) == 1


def test_follow_retries_while_the_registry_fails(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"event")
    with Group(1) as server:
        server.failing = 1
        report = follow_stream(
            vault.uri(), vault.root, schemas=server.url, schema_group="group", master="inline", every=0.01, idle=0.1
        )
    assert (report.made, report.retries, report.warnings) == (1, 1, ())


def test_follow_asks_again_until_the_registry_answers(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"event")
    with Group(1) as server:
        export(vault, server)
        server.encodings, server.failing = 2, 5
        report = follow_stream(
            vault.uri(), vault.root, schemas=server.url, schema_group="group", master="inline", every=0.01, idle=1
        )
    assert (report.made, report.events, server.failing) == (1, 0, 0)
    assert len(report.warnings) == 1
    assert report.warnings[0].startswith("new schemas were not looked for: the registry answers 503 Busy")


def test_follow_asks_only_for_what_is_new(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"event")
    export(vault)
    asked = []
    with Group(3) as server:

        def note(text: str) -> None:
            asked.append(server.paths)
            if len(asked) < 3:
                vault.add(b"more")

        progress, archive_new = Progress(), _Following._archive_new
        with (
            patch.object(progress, "note", note),
            patch.object(_Following, "_archive_new", autospec=True, side_effect=archive_new) as looked,
        ):
            report = follow_stream(
                vault.uri(),
                vault.root,
                schemas=server.url,
                schema_group="group",
                master="inline",
                every=0.01,
                idle=1,
                progress=progress,
            )
        assert not server.paths, "rounds without events ask for nothing"
    assert [len(one) for one in asked] == [7, 4, 4]
    assert looked.call_count < report.rounds, "while nothing comes, most rounds do not look at the archive"


def test_a_handoff_asks_for_each_encoding_once(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    for number in range(2):
        vault.add(framed(number, gzip.compress(b"{}")))
        export(vault)
    with Group(3) as server:
        options = {"decode": "registry", "registry": server.url, "group": "group", "master": "inline"}
        write_table(f"{vault.root}/{archive_of(vault.root).stream}", format="parquet", **options)
        assert len(server.paths) == 7
        write_table(f"{vault.root}/{archive_of(vault.root).stream}", **options)
        assert server.paths == [], "nothing is new"
        vault.add(framed(0, gzip.compress(b"{}")))
        export(vault, server)
        vault.add(framed(0, gzip.compress(b"{}")))
        export(vault)
    with pytest.raises(RegistryFailed, match="the registry does not answer") as caught:
        write_table(f"{vault.root}/{archive_of(vault.root).stream}", **options)
    assert "Without its URL, what the archive has recorded is used." in caught.value.todo
    del options["registry"]
    assert write_table(f"{vault.root}/{archive_of(vault.root).stream}", **options).undecoded == 0


def test_statements_advise_no_option_that_they_do_not_have(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"event")
    export(vault)
    with pytest.raises(Usage, match=r"requires the events' schemas.*Create the table first"):
        table_ddl(vault.archive, "hive", decode="registry")


def test_an_archive_without_events_begins_no_table(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    export(vault)
    options = {"format": "parquet", "decode": "json", "master": "inline"}
    for _ in range(2):
        assert write_table(vault.archive, **options).added == ()
    vault.add(b'{"id": 7}')
    export(vault)
    assert write_table(vault.archive, **options).events == 1
    assert "id" in write_table(vault.archive, **options).columns


def test_a_handoff_of_a_stream_with_nothing_new_does_without_the_registry(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(framed(0, gzip.compress(b"{}")))
    options = {"decode": "registry", "group": "group", "master": "inline", "root": vault.root}
    with Group(1) as server:
        options["registry"] = server.url
        write_table(vault.uri(), format="parquet", **options)
    assert write_table(vault.uri(), **options).added == ()
    vault.add(framed(0, gzip.compress(b"{}")))
    with pytest.raises(RegistryFailed, match="the registry does not answer") as caught:
        write_table(vault.uri(), **options)
    assert "noted" not in caught.value.todo
    with Group(1) as server:
        assert write_table(vault.uri(), **{**options, "registry": server.url}).added == (2,)


def test_an_unfinished_export_without_schemas_is_not_continued_with_some(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"event")
    with patch.object(ExportRun, "run", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        export(vault)
    with Group(1) as server, pytest.raises(Usage, match="an unfinished run has other options: no schemas"):
        export(vault, server)
