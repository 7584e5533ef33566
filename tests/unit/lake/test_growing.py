"""Random histories of schemas: columns only grow, and rows are what Avro's own library makes of the two schemas.

Values of other schemas than the newest are what Java's libraries read with it, or null with a reason.
"""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from streamvault.common.errors import Overtaken
from streamvault.lake.avro import AvroPayloads, avro_columns
from streamvault.lake.decoding import decoded_columns
from streamvault.lake.json_payloads import JsonPayloads
from streamvault.lake.payloads import PayloadParser
from streamvault.lake.registry import RegisteredPayloads, columns_of
from streamvault.lake.reports import ERROR
from streamvault.lake.table import (
    TableOptions,
    Wanted,
    arrow_type,
    columns_for,
    find_options,
    fix_options,
    grown,
    hive_type,
    holds,
    wider_type,
)
from streamvault.manifests.archive import Archive
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import StreamName

PLAIN = st.sampled_from(
    ["boolean", "int", "bigint", "float", "double", "string", "decimal(9,2)", "decimal(18,2)", "decimal(18,4)"]
)
NAMES = st.sampled_from(["a", "b", "c", "B"])


def struct_of(members: dict[str, str]) -> str:
    plain = {name.lower(): (name, kind) for name, kind in members.items()}
    return f"struct<{','.join(f'{name}:{kind}' for name, kind in plain.values())}>"


TYPES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        inner.map(lambda kind: f"array<{kind}>"),
        inner.map(lambda kind: f"map<string,{kind}>"),
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(struct_of),
    ),
    max_leaves=6,
).map(arrow_type)


@given(TYPES, TYPES)
def test_column_only_grows_and_growing_again_changes_nothing(one: pa.DataType, other: pa.DataType) -> None:
    found = wider_type(one, other)
    assert arrow_type(hive_type(found)) == found
    assert holds(found, one), "whatever was in it still is"
    assert wider_type(found, other) == found
    assert wider_type(found, one) == found, "an older schema, however late, changes nothing"
    assert holds(found, other) or not holds(wider_type(other, one), one) or found != other


def test_a_column_whose_type_would_be_too_long_for_engines_stays_and_stops_nothing() -> None:
    def wide(letter: str) -> dict[str, str]:
        return {"at": struct_of({f"{letter}{number:0100}": "int" for number in range(1000)}), "id": "int"}

    begun = TableOptions(
        scope="s", stream="t", table="t", kind="parquet", decode="json", target_size=1, columns=columns_for(wide("a"))
    )
    late = grown(begun, Wanted(columns_for(wide("b") | {"id": "bigint"}), "", adds=True))
    assert [column.type for column in late.columns] == [wide("a")["at"], "bigint"]


FIELD_TYPES: dict[str, tuple[Any, Any, st.SearchStrategy[Any]]] = {
    # the type in Avro, a default, and values
    "int": ("int", 7, st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", 2**40, st.integers(-(2**63), 2**63 - 1)),
    "double": ("double", 0.5, st.floats(allow_nan=False)),
    "string": ("string", "-", st.text(max_size=5)),
    "bytes": ("bytes", "\u00ff", st.binary(max_size=5)),
    "optional": (["null", "string"], None, st.none() | st.text(max_size=5)),
    "list": ({"type": "array", "items": "int"}, [1, 2], st.lists(st.integers(-9, 9), max_size=3)),
}


def test_of_two_runs_that_begin_a_table_the_second_starts_again() -> None:
    """Their columns may be of two samples of a stream that grows, and their releases two."""
    table = Archive(RootAddress.parse("memory://begun").resolve(), StreamName("s", "t")).table_archive("t")
    first, second = (
        TableOptions(
            scope="s", stream="t", table="t", kind="parquet", decode="json", target_size=1, columns=columns_for(types)
        )
        for types in ({"a": "int"}, {"a": "int", "b": "string"})
    )
    fix_options(table, first)
    with pytest.raises(Overtaken, match="another run has begun this table") as caught:
        fix_options(table, second)
    assert "again" in caught.value.todo
    fix_options(table, first)
    assert find_options(table) == first


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, dict[str, Any]]]:
    """Schemas, each made of the one before by what Avro calls compatible, with an event of each."""
    fields: dict[str, dict[str, Any]] = {"id": {"name": "id", "type": "int"}}
    inner: dict[str, dict[str, Any]] = {"x": {"name": "x", "type": "int"}}
    values: dict[str, st.SearchStrategy[Any]] = {"id": FIELD_TYPES["int"][2]}
    inner_values: dict[str, st.SearchStrategy[Any]] = {"x": FIELD_TYPES["int"][2]}
    found = []
    for number in range(draw(st.integers(2, 6))):
        change = draw(st.sampled_from(["add", "add inside", "widen", "widen inside", "remove"])) if number else ""
        some, its = (inner, inner_values) if "inside" in change else (fields, values)
        if change.startswith("add"):
            kind, default, strategy = FIELD_TYPES[draw(st.sampled_from(sorted(FIELD_TYPES)))]
            name = f"f{number}"
            some[name], its[name] = {"name": name, "type": kind, "default": default}, strategy
        elif change.startswith("widen"):
            narrow = [name for name, field in some.items() if field["type"] == "int"]
            for name in narrow[:1]:
                some[name], its[name] = {**some[name], "type": "long"}, FIELD_TYPES["long"][2]
        elif change == "remove":
            for name in [name for name in fields if name != "id"][:1]:
                del fields[name], values[name]
        place = {"name": "place", "type": {"type": "record", "name": "place", "fields": list(inner.values())}}
        schema = {"type": "record", "name": "event", "fields": [*fields.values(), place]}
        event = {name: draw(one) for name, one in values.items()}
        event["place"] = {name: draw(one) for name, one in inner_values.items()}
        found.append((json.dumps(schema), event))
    return found


@given(histories())
def test_rows_of_every_history_are_what_avro_makes_of_both_schemas(history: list[tuple[str, dict[str, Any]]]) -> None:
    first = history[0][0]
    begun = {"scope": "s", "stream": "s", "table": "t", "kind": "iceberg", "decode": "avro", "target_size": 1}
    options = TableOptions(**begun, columns=avro_columns(first), avro=first)  # type: ignore[arg-type]
    for schema, _ in history:
        before = options
        options = grown(options, Wanted(avro_columns(schema), schema, adds=True))
        assert [column.field for column in options.columns][: len(before.columns)] == [
            column.field for column in before.columns
        ]
        pairs = zip(options.columns, before.columns, strict=False)
        assert all(holds(arrow_type(new.type), arrow_type(old.type)) for new, old in pairs)
    for schema, event in history:
        late = grown(options, Wanted(avro_columns(schema), schema, adds=True))
        assert late.columns == options.columns, "an older schema changes nothing"
        written = io.BytesIO()
        fastavro.schemaless_writer(written, fastavro.parse_schema(json.loads(schema)), event)
        made = decoded_columns(late, pa.array([written.getvalue()], pa.binary()))
        reader = fastavro.parse_schema(json.loads(late.reader or late.avro))
        written.seek(0)
        wanted = fastavro.schemaless_reader(written, fastavro.parse_schema(json.loads(schema)), reader)
        assert made[ERROR].to_pylist() == [None]
        for column in options.columns:
            (value,) = made[column.column].to_pylist()
            expected = wanted.get(column.field, event.get(column.field))  # type: ignore[union-attr]
            if isinstance(expected, str) and column.type == "binary":
                expected = expected.encode("latin-1")  # the library leaves a default as it is in JSON
            if column.field == "place":  # members of both, as none is ever dropped
                value = {name: one for name, one in value.items() if name in expected}
                kinds = {member.name: member.type for member in arrow_type(column.type)}
                expected = {
                    name: one.encode("latin-1") if isinstance(one, str) and kinds[name] == pa.binary() else one
                    for name, one in expected.items()
                }
            assert value == expected


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
