"""Values of other schemas than the newest are what Java's libraries read with it, or null with a reason."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from streamvault.lake.avro import AvroPayloads, avro_columns
from streamvault.lake.json_payloads import JsonPayloads
from streamvault.lake.payloads import PayloadParser
from streamvault.lake.registry import RegisteredPayloads, columns_of
from streamvault.lake.table import columns_for
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup

FIELD = descriptor_pb2.FieldDescriptorProto
LETTERS = {"type": "enum", "name": "Letter", "symbols": ["A", "B"]}
ONLY_A = {**LETTERS, "symbols": ["A"]}
PAIR = {"type": "record", "name": "Pair", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": LETTERS}]}
ONLY_X = {**PAIR, "fields": PAIR["fields"][:1]}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}
WITH_MONEY = {**PAIR, "fields": [{"name": "x", "type": "int"}, {"name": "sum", "type": MONEY}]}
SIZED = {"type": "fixed", "name": "Sized", "size": 1}
NUMBERS = {"type": "array", "items": "int"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def one(parser: PayloadParser, payload: bytes) -> tuple[list[Any], str | None]:
    found = parser.parse(pa.array([payload], pa.binary()))
    return [column[0].as_py() for column in found.columns], found.reasons[0].as_py()


def of_field(kind: Any, **more: Any) -> str:
    return json.dumps({"type": "record", "name": "Event", "fields": [{"name": "f", "type": kind, **more}]})


@pytest.mark.parametrize(
    ("written", "reader", "payload", "value"),
    [
        pytest.param("long", "double", b"\x82\x80\x80\x80\x80\x80\x80\x20", 2.0**53, id="rounded as Java does"),
        pytest.param("long", "float", b"\x82\x80\x80\x10", 2.0**24, id="to a float"),
        pytest.param(LETTERS, {**ONLY_A, "default": "A"}, b"\x02", "A", id="enum's default"),
        pytest.param("int", ["null", "string", "long"], b"\x02", {"string": None, "long": 1}, id="to a branch"),
        pytest.param(["int", "string"], "string", b"\x02\x02a", "a", id="of a branch"),
        pytest.param(
            {**ONLY_X, "name": "old.Other"}, ["null", {**ONLY_X, "name": "new.Pair"}, {**ONLY_X, "name": "new.Other"}],
            b"\x02", {"Pair": None, "Other": {"x": 1}}, id="a record that was moved elsewhere",
        ),
        pytest.param(
            PAIR, ["null", "string", {**PAIR, "name": "Other"}], b"\x02\x00",
            {"string": None, "Other": {"x": 1, "y": "A"}}, id="a record of the same fields",
        ),
        pytest.param(WITH_MONEY, ONLY_X, b"\x02\x04\x7f\xff", {"x": 1}, id="a member that the column lacks"),
        pytest.param("long", MILLIS, b"\x00", pa.scalar(0, pa.timestamp("us")).as_py(), id="a logical type is added"),
        pytest.param(MILLIS, "long", b"\x02", 1, id="a logical type is removed"),
        pytest.param("bytes", "string", b"\x02a", "a", id="bytes to string"),
    ],
)  # fmt: skip
def test_value_is_the_readers(written: Any, reader: Any, payload: bytes, value: Any) -> None:
    parser = AvroPayloads(of_field(written), avro_columns(of_field(reader)), of_field(reader))
    assert one(parser, payload) == ([value], None)


@pytest.mark.parametrize(
    ("written", "reader", "payload", "reason"),
    [
        pytest.param(LETTERS, ONLY_A, b"\x02", "f: B is not a symbol of the newest schema", id="symbol"),
        pytest.param(LETTERS, {**LETTERS, "name": "Other"}, b"\x00", "f: Letter is not Other", id="name"),
        pytest.param(SIZED, {**SIZED, "size": 2}, b"a", "f: Sized has another size", id="size"),
        pytest.param("string", "int", b"\x021", "f: string does not become int", id="type"),
        pytest.param("string", NUMBERS, b"\x021", "f: string does not become array", id="nested"),
        pytest.param(["null", "int"], "int", b"\x00", "f: null does not become int", id="null"),
        pytest.param("string", ["null", "int", "long"], b"\x021", "f: string is not a branch of null, int, long"),
        pytest.param(ONLY_X, PAIR, b"\x02", "f: the event has no y, which has no default", id="inside"),
    ],
)  # fmt: skip
def test_value_that_the_reader_has_none_for_is_null_with_a_reason(
    written: Any, reader: Any, payload: bytes, reason: str
) -> None:
    parser = AvroPayloads(of_field(written), avro_columns(of_field(reader)), of_field(reader))
    assert one(parser, payload) == ([None], reason)


def test_field_without_a_default_that_the_event_lacks_has_a_reason() -> None:
    reader = json.loads(of_field("int"))
    reader["fields"].append({"name": "needed", "type": "long"})
    parser = AvroPayloads(of_field("int"), avro_columns(json.dumps(reader)), json.dumps(reader))
    assert one(parser, b"\x02") == ([1, None], "needed: the event has no needed, which has no default")


def test_field_that_no_column_can_hold_is_left_out() -> None:
    schema = json.dumps(
        {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null"]}]}
    )
    columns, _, left_out, _ = columns_of(group("Avro", schema.encode()))
    assert ([column.field for column in columns], left_out) == (["a"], ("b",))


def group(kind: str, *schemas: bytes) -> SchemaGroup:
    entries = (
        SchemaEntry(encoding=at, format=kind, type="E", version=at, data=base64.b64encode(one).decode(), codec="")
        for at, one in enumerate(schemas)
    )
    return SchemaGroup(group="g", entries=tuple(entries))


def message(*fields: tuple[str, int, int]) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="e.proto", syntax="proto3")
    made = file.message_type.add(name="E")
    for name, number, kind in fields:
        made.field.add(name=name, number=number, type=kind, label=1)  # type: ignore[arg-type]
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_protobuf_is_read_by_the_numbers_of_the_newest_schema() -> None:
    old = message(("id", 1, FIELD.TYPE_INT32), ("lost", 2, FIELD.TYPE_STRING))
    new = message(("number", 1, FIELD.TYPE_INT64), ("added", 3, FIELD.TYPE_INT32))
    found = group("Protobuf", old, new)
    columns, readers, *_ = columns_of(found)
    held = columns_for({**{column.field: column.type for column in columns}, "lost": "string"})
    assert one(RegisteredPayloads(held, readers, found), b"\x01\0\0\0\0\x08\x05\x12\x01a") == ([5, 0, "a"], None)
    held = columns_for({"number": "array<int>"})
    assert one(RegisteredPayloads(held, readers, found), b"\x01\0\0\0\0\x08\x05")[0] == [None]
    assert one(RegisteredPayloads(held, readers, found), b"\x01\0\0\0\0\x09\x05")[0] == [None]


@pytest.mark.parametrize(("number", "value"), [("10E300", 1e301), ("1.0E300", 1e300), ("0E999", 0.0)])
def test_large_number_is_what_it_is_beside_a_value_that_does_not_fit(number: str, value: float) -> None:
    parser = JsonPayloads(columns_for({"a": "bigint", "b": "double"}))
    assert one(parser, f'{{"a":"x","b":{number}}}'.encode()) == ([None, value], "a: not a bigint")
