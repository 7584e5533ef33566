"""Random histories of schemas: columns only grow, and rows are what Avro's own library makes of the two schemas."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.common.errors import Overtaken
from streamvault.lake.avro import avro_columns
from streamvault.lake.decoding import decoded_columns
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
