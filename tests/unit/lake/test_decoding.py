"""Decoding of payloads into columns: nothing is lost, and a payload that cannot be decoded has a reason.

Events as Arrow batches: every event with its own pointer, wherever the blocks are cut.
"""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamvault import write_table
from streamvault.common.errors import Usage
from streamvault.lake import read
from streamvault.lake.avro import avro_columns
from streamvault.lake.csv_payloads import count_values
from streamvault.lake.decoding import decoded_columns, parser_of
from streamvault.lake.inference import infer_columns
from streamvault.lake.json_payloads import JsonPayloads
from streamvault.lake.payloads import DATE, NotDecoded, as_lines, as_time, checked_times, not_times
from streamvault.lake.read import EVENT_SCHEMA, batch_of, event_batches
from streamvault.lake.table import TableOptions, arrow_type, columns_for, hive_type, trino_type
from streamvault.streamstore.events import EventBlock
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import EventPointer, SegmentId, StreamName
from testkit.small_archives import Vault
from testkit.streams import frame
from tests import hostile_values

COLUMNS = {
    "id": "bigint",
    "name": "string",
    "ok": "boolean",
    "price": "decimal(10,2)",
    "at": "timestamp",
    "day": "date",
    "where": "struct<x:double,tags:array<string>>",
}
EVENT = {"id": 1, "name": "é", "ok": True, "price": "1.25", "at": "2026-01-02T03:04:05.678Z", "day": "2026-01-02",
         "where": {"x": 1.5, "tags": ["a"]}}  # fmt: skip


def options(decode: str, columns: dict[str, str], **more: str) -> TableOptions:
    made = columns_for(columns)
    return TableOptions(
        scope="s",
        stream="t",
        table="t",
        kind="parquet",
        decode=decode,
        columns=made,
        target_size=1,
        **more,  # type: ignore[arg-type]
    )


def decoded(wanted: TableOptions, *payloads: bytes) -> list[dict[str, Any]]:
    return pa.table(decoded_columns(wanted, pa.array(payloads, pa.binary()))).to_pylist()  # type: ignore[no-any-return]


def test_json_fields_have_their_types() -> None:
    made = options("json", COLUMNS, event_time="at")
    [row] = decoded(made, b"  " + json.dumps({**EVENT, "unknown": [1]}, indent=1).encode() + b"\n")
    assert row == {
        "id": 1,
        "name": "é",
        "ok": True,
        "price": Decimal("1.25"),
        "at": datetime(2026, 1, 2, 3, 4, 5, 678000),  # noqa: DTZ001
        "day": date(2026, 1, 2),
        "where": {"x": 1.5, "tags": ["a"]},
        "event_time": datetime(2026, 1, 2, 3, 4, 5, 678000),  # noqa: DTZ001
        "_error": None,
    }


WRONG = [
    b"", b" ", b"\n", b"{", b"}", b"[]", b"null", b"7", b"\xff\xfe", b'{"id":1}{"id":2}', b'{"id":"1"}', b'{"id":1.5}',
    b'{"at":"yesterday"}', b'{"id":1,"id":2}', b'{"where":7}', b'{"day":"2026-13-01"}', b"{}\x00",
    b'{"id":1}\n{"id":2}',    b'{"price":"x"}', b'{"id":99999999999999999999}', b'{"ok":1}', b"{\n}}",
]  # fmt: skip
RIGHT = [
    b"{}",
    b'{"a":NaN}',
    b'{"id":7}',
    json.dumps(EVENT).encode(),
    b'{"id":null,"x":{"y":[{}]}}',
    b'{ "name" : "}\\n{" }',
]


@pytest.mark.parametrize("payload", [*WRONG, *RIGHT])
def test_json_that_does_not_decode_says_why(payload: bytes) -> None:
    before, row, after = decoded(options("json", COLUMNS), b'{"id":5}', payload, b'{"id":6}')
    assert bool(row["_error"]) == (payload in WRONG)
    assert payload in RIGHT or all(value is None for name, value in row.items() if name != "_error")
    assert [(one["id"], one["_error"]) for one in (before, after)] == [(5, None), (6, None)]


ODD = [
    b'\x0b{"id":1}',
    b'\xef\xbb\xbf{"id":1}',
    b'{"x":Inf}',
    b'{"x":-Inf,"id":"a"}',
    b'{"id":1e3}',
    b'{"id":-0}',
    b'{"id":1.0}',
    b'{"name":"\\ud800"}',
    b'{"x":"\\ud800"}',
    b'{"\\udc00":1}',
    b'{"x":' + b"1" * 5000 + b"}",
    b'{"x":' + b"[" * 3000 + b"]" * 3000 + b"}",
    b'{"x":{"id":"a"},"id":1}',
    b'{"x":"\\"id\\":\\"a\\"","id":2}',
    b'{"x":["id","a"],"id":"a"}',
    b'{"name":"\xff"}',
    b'{"x":1,"ok":"y"}',
    b'{"at":""}',
    b'{"at":5}',
    b'{"day":5}',
    b'{"day":"2026-02-30"}',
    b'{"at":"2026-02-30"}',
    b'{"at":"2026-01-01T25:00:00"}',
    b'{"price":5}',
    b'{"price":"1.255"}',
    b'{"price":true}',
    b'{"price":" 1.5"}',
    b'{"where":{"x":"1"}}',
    b'{"where":{"tags":[1]}}',
    b'{"where":{"tags":"a"}}',
    b'{"where":[]}',
    b'{"name":1}',
    b'{"name":true}',
    b'{"name":{}}',
    b'{"ok":"true"}',
    b'{"i\\u0064":"a"}',
    b'{"id":01}',
    b'{"id":1,}',
    b"{'id':1}",
    b'{"id": "a"',
    b'{"id" : [1]}',
    b'{"a":1,"b":null,"id":{}}',
    b'{"id":1 "id":"a"}',
    b'{"id":tru}',
    '{"id":"é"}'.encode("utf-16"),
    b'{"id":123456789012345678901234567890}',
    b'{"id":"a"}{"id":1}',
    b'{"id":1}{"id":"a"}',
]


@given(st.lists(st.sampled_from([*ODD, *WRONG, *RIGHT]), min_size=1, max_size=30))
def test_odd_events_decode_the_same_beside_any_others(payloads: list[bytes]) -> None:
    made = options("json", COLUMNS, event_time="at")
    assert decoded(made, *payloads) == [row for payload in payloads for row in decoded(made, payload)]


@given(st.sampled_from([*ODD, *WRONG, *RIGHT]), st.data())
def test_nothing_is_called_wrong_that_the_parser_accepts(payload: bytes, data: st.DataObject) -> None:
    """The patterns that find wrong events may only find what Arrow rejects: here, in events with a changed byte."""
    at = data.draw(st.integers(0, max(len(payload) - 1, 0)))
    changed = payload[:at] + data.draw(st.binary(max_size=2)) + payload[at + 1 :]
    parser = parser_of(options("json", COLUMNS))
    assert isinstance(parser, JsonPayloads)
    for one in (payload, changed):
        array = pa.array([one], pa.binary())
        if pc.any(pc.is_valid(pa.concat_arrays([parser._at_a_glance(array), parser._looked_into(array)]))).as_py():
            with pytest.raises(NotDecoded):
                parser._whole(array)


TIMES = st.from_regex(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}(:?[0-9]{2}(:?[0-9]{2}(\.[0-9]{1,7})?)?)?)?"
    r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)?",
    fullmatch=True,
)


@given(st.one_of(TIMES, st.text(alphabet="0123456789-:TZ +.", max_size=24)))
def test_no_text_is_called_no_time_that_is_one(text: str) -> None:
    values = pa.array([text])
    if not_times(values, "ms")[0].as_py():
        with pytest.raises(NotDecoded):
            as_time(values, "ms")
    if re.match(DATE, text) is None:
        with pytest.raises((pa.ArrowInvalid, NotDecoded)):
            checked_times(values.cast(pa.date32()))


CELLS = [
    b"1",
    b"-1",
    b" 1",
    b"1 ",
    b"\t7",
    b"0x1F",
    b"1.0",
    b"1e3",
    b"007",
    b"9223372036854775808",
    b"3000000000",
    b"true",
    b"TRUE",
    b"tRuE",
    b" true",
    b"inf",
    b"nan",
    b"1.",
    b"  ",
    b".5",
    b"2026-01-01",
    b" 2026-01-01",
    b"2026-02-30",
    b"1.25",
    b"1.255",
    b"abc",
    b"",
    b"\xff",
    b"2026-01-01T00:00:00Z",
    b"n/a",
    b"1,2",
]


@pytest.mark.parametrize(
    "kind", ["int", "bigint", "float", "double", "boolean", "date", "decimal(9,2)", "binary", "timestamp", "string"]
)
@given(cells=st.lists(st.sampled_from(CELLS), min_size=1, max_size=12))
def test_cell_of_csv_decodes_the_same_beside_any_others_and_as_arrow_reads_it(kind: str, cells: list[bytes]) -> None:
    made = options("csv", {"c1": kind})
    alone = [row for cell in cells for row in decoded(made, cell)]
    # repr, as no NaN equals another
    assert repr(decoded(made, *cells)) == repr(alone)
    for cell, row in zip(cells, alone, strict=True):
        if kind != "timestamp" and b"," not in cell:
            types = {"c1": arrow_type(kind)}
            convert = pyarrow.csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True)
            lines = pa.BufferReader(cell + b"\n")
            try:
                read = pyarrow.csv.read_csv(
                    lines,
                    pyarrow.csv.ReadOptions(column_names=["c1"]),
                    pyarrow.csv.ParseOptions(ignore_empty_lines=False),
                    convert,
                )
            except pa.ArrowException:
                assert row["_error"]
            else:
                assert row["_error"] is None or (kind, cell) == ("binary", b"\xff") or cell == b"0x1F"
                assert repr(row["c1"]) == repr(read["c1"][0].as_py()) or row["_error"]


@pytest.mark.parametrize("share", [1, 10, 100])
@pytest.mark.parametrize("kind", ["json", "csv", "avro"])
def test_wrong_events_are_found_in_one_pass(kind: str, share: int) -> None:
    """The parsers are called a few times for each part of a batch, however many of its events are wrong."""
    columns, avro = {"id": "bigint", "v": "string"}, ""
    good, wrong = {
        "json": (b'{"id":1,"v":"x"}', b'{"id":"n/a"}'),
        "csv": (b"1,x", b"n/a,x"),
        "avro": (b"\x02\x02x", b"\x02"),
    }[kind]
    if kind == "avro":
        fields = [{"name": "id", "type": "long"}, {"name": "v", "type": "string"}]
        avro = json.dumps({"type": "record", "name": "r", "fields": fields})
    payloads = [wrong if number % 100 < share else good for number in range(4000)]
    made = options(kind, columns, avro=avro)
    with (
        patch.object(pyarrow.json, "read_json", wraps=pyarrow.json.read_json) as of_json,
        patch.object(pyarrow.csv, "read_csv", wraps=pyarrow.csv.read_csv) as of_csv,
    ):
        errors = sum(row["_error"] is not None for row in decoded(made, *payloads))
    assert errors == 40 * share
    assert of_json.call_count + of_csv.call_count <= 8


def test_csv_fields_have_their_types() -> None:
    made = options("csv", {"c1": "bigint", "c2": "string", "c3": "timestamp"}, event_time="c3")
    rows = decoded(made, b'1,"a,b",2026-01-01T00:00:00Z\r\n', b"2", b"x,y,", b"", b"3,,", b"4,a,b,c", b"5,a,\n6,b,")
    assert [row["c1"] for row in rows] == [1, None, None, None, 3, None, None]
    assert [bool(row["_error"]) for row in rows] == [False, True, True, True, False, True, True]
    assert rows[0]["c2"] == "a,b"
    assert rows[0]["event_time"] == datetime(2026, 1, 1)  # noqa: DTZ001


LINES = [b"1,a", b'"2","b"', b'3,"c', b'"4', b'"5,"', b"", b"\r\n", b",", b'6,"a""b"', b'7,"a""b', b'8,"a"b', b'9,a"b',
         b"\n10,a", b'"a""b,c"', b"\x0b", b"11,\x0b",
         b"\xef\xbb\xbf12,a", b'\xef\xbb\xbf"13,b"', b'\xef\xbb\xbf"']  # fmt: skip


@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=12))
def test_line_of_csv_decodes_the_same_beside_any_others(lines: list[bytes]) -> None:
    for columns in ({"c1": "string", "c2": "string"}, {"c1": "string"}):
        made = options("csv", columns)
        assert decoded(made, *lines) == [row for line in lines for row in decoded(made, line)]


@given(st.lists(st.text(alphabet='a",\r\n\0é\ufeff', max_size=8), max_size=8), st.integers(0, 3))
def test_lines_of_csv_are_judged_one_by_one(texts: list[str], skipped: int) -> None:
    wrong = {False: None, True: "a quote is not closed"}
    lines = [text.rstrip("\r\n").lstrip("\ufeff") for text in texts]
    reasons = ["not one line" if {*line} & {*"\r\n"} else wrong[not count_values(line)] for line in lines]
    payloads = pa.array([text.encode() for text in texts], pa.binary())[skipped:]
    made = decoded_columns(options("csv", {"c1": "string"}), payloads)
    known = {None, *wrong.values(), "not one line"}
    found = [(reason or "").rpartition("): ")[2] for reason in made["_error"].to_pylist()]  # some look like framed ones
    assert [reason if reason in known else None for reason in found] == reasons[skipped:]


@given(st.lists(st.text(max_size=5), max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_texts_are_joined_as_lines(texts: list[str], low: int, high: int) -> None:
    joined = as_lines(pa.array(texts, pa.string())[low:high])
    assert bytes(joined) == "".join(f"{text}\n" for text in texts[low:high]).encode()


@pytest.mark.parametrize(
    ("line", "value"), [(b'1,"a""b"', 'a"b'), (b'1,a"b', 'a"b'), (b'1,"a"b', "ab"), (b'1,""', None)]
)
def test_closed_quotes_are_removed(line: bytes, value: str | None) -> None:
    [row] = decoded(options("csv", {"c1": "bigint", "c2": "string"}), line)
    assert (row["c1"], row["c2"], row["_error"]) == (1, value, None)


@pytest.mark.parametrize("line", [b'1,"a', b'"1,a', b'1,"a""', b'1,"'])
def test_unclosed_quote_is_an_error_of_the_row(line: bytes) -> None:
    [row] = decoded(options("csv", {"c1": "string", "c2": "string"}), line)
    assert row["_error"] == "a quote is not closed"
    assert (row["c1"], row["c2"]) == (None, None)


AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": "Kind"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "place", "type": {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "float"}]}},
    ],
}


def test_avro_fields_have_their_types() -> None:
    record = {
        "id": 5, "note": None, "at": datetime(2026, 1, 1, tzinfo=UTC), "kind": "A", "again": "B", "tags": ["t"],
        "more": {"m": 1.5}, "price": Decimal("3.25"), "place": {"x": 0.5}, "key": UUID(int=7),
    }  # fmt: skip
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(AVRO), record)
    good = written.getvalue()
    columns = {column.field: column.type for column in avro_columns(json.dumps(AVRO))}
    rows = decoded(options("avro", columns, avro=json.dumps(AVRO), event_time="at"), good, good[:-1], good + b"x", b"")
    assert [bool(row["_error"]) for row in rows] == [False, True, True, True]
    first = rows[0]
    assert (first["id"], first["note"], first["kind"], first["again"], first["tags"]) == (5, None, "A", "B", ["t"])
    assert (first["price"], first["place"], first["more"]) == (Decimal("3.25"), {"x": 0.5}, [("m", 1.5)])
    assert first["key"] == str(UUID(int=7))
    assert first["event_time"] == datetime(2026, 1, 1)  # noqa: DTZ001


@pytest.mark.parametrize(
    "schema",
    [
        "{}",
        "7",
        '"string"',
        '{"type":"record"}',
        '{"type":"record","name":"r","fields":[{"name":"u","type":["null"]}]}',
    ],
)
def test_avro_schema_that_is_no_record_is_refused(schema: str) -> None:
    with pytest.raises(Usage):
        avro_columns(schema)


@pytest.mark.parametrize(
    ("value", "unit", "wanted"),
    [
        ("2026-01-01", "ms", "2026-01-01T00:00:00"),
        ("2026-01-01 01:02:03", "ms", "2026-01-01T01:02:03"),
        ("2026-01-01T01:02:03.1234567Z", "ms", "2026-01-01T01:02:03.123456"),
        ("2026-01-01T00:00:00+02:00", "ms", "2025-12-31T22:00:00"),
        (1_700_000_000, "s", "2023-11-14T22:13:20"),
        (1_700_000_000_123, "ms", "2023-11-14T22:13:20.123000"),
        (1_700_000_000_123_456_789, "ns", "2023-11-14T22:13:20.123456"),
        (1_700_000_000.5, "s", "2023-11-14T22:13:20.500000"),
        (None, "s", None),
    ],
)
def test_time_is_read_in_its_unit(value: object, unit: str, wanted: str | None) -> None:
    values = pa.array([value], pa.string() if value is None else None)
    found = as_time(values, unit)[0].as_py()
    assert (None if found is None else found.isoformat()) == wanted


def test_columns_of_json_are_inferred() -> None:
    found = infer_columns("json", [
        b'{"id":1,"x":1,"deep":{"a":null},"mixed":1,"Stream":"s","list":[]}',
        b"no json",
        b'{"id":2,"x":1.5,"deep":{"a":"t","b":[1]},"mixed":"one","userId":3,"userid":4,"when":"2026-01-01"}',
    ])  # fmt: skip
    types = {column.field: (column.column, column.type) for column in found.columns}
    assert types == {
        "id": ("id", "bigint"),
        "x": ("x", "double"),
        "deep": ("deep", "struct<a:string,b:array<bigint>>"),
        "Stream": ("payload_stream", "string"),
        "list": ("list", "array<string>"),
        "userId": ("userid", "bigint"),
        "userid": ("userid_2", "bigint"),
        "when": ("when", "string"),
    }
    assert found.left_out == ("mixed",)


def test_stray_value_does_not_remove_a_column() -> None:
    payloads = [b'{"id":%d}' % number for number in range(99)] + [b'{"id":"text"}']
    assert infer_columns("json", payloads).columns[0].type == "bigint"


def test_columns_of_csv_are_inferred() -> None:
    found = infer_columns("csv", [b"1,a,2026-01-01", b"2,b,", b"broken", b"\xff"])
    assert [(column.column, column.type) for column in found.columns] == [
        ("c1", "bigint"), ("c2", "string"), ("c3", "string"),
    ]  # fmt: skip


def test_columns_of_long_lines_are_inferred() -> None:
    found = infer_columns(
        "csv", [b'1,"' + b"z" * 140_000 + b'"', b"2," + b"q" * 1_200_000, b'3,"a,""b"', b'4,"oops', b"5,a,b"]
    )
    assert [(column.column, column.type) for column in found.columns] == [("c1", "bigint"), ("c2", "string")]


def test_half_of_a_surrogate_pair_is_no_reason_to_end(tmp_path: Path) -> None:
    found = infer_columns("json", [b'{"\\ud800":1}', b'{"a":"\\udc00"}', b'{"b":2}'])
    assert [column.field for column in found.columns] == ["b"]
    [row] = decoded(options("json", {"b": "bigint"}), b'{"\\ud800":1,"b":2}')
    assert (row["b"], row["_error"]) == (None, "half of a surrogate pair")
    vault = Vault(tmp_path)
    vault.make()
    vault.export()
    with pytest.raises(Usage, match="surrogate"):
        write_table(vault.archive, decode="json", schema='{"\\ud800":"int"}', master="inline[1]")


def test_many_events_that_do_not_decode_are_a_warning(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    for wrong, warned in ((1, False), (2, True)):
        vault.add(*[b'{"a":1}'] * (100 - wrong), *[b'{"a":"x"}'] * wrong)
        report = write_table(
            vault.uri(), root=vault.root, decode="json", schema='{"a":"int"}', format="parquet", master="inline[1]"
        )
        assert (report.undecoded, report.undecoded_share) == (wrong, wrong / 100)
        assert any("could not be decoded" in warning for warning in report.warnings) == warned


@pytest.mark.parametrize("decode", ["json", "csv"])
def test_columns_cannot_be_inferred_without_valid_payloads(decode: str) -> None:
    with pytest.raises(Usage, match="sample"):
        infer_columns(decode, [b"", b"\xff"])  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [*COLUMNS.values(), "map<string,array<int>>", "binary", "float", "int"])
def test_type_names_round_trip(text: str) -> None:
    assert hive_type(arrow_type(text)) == text
    assert trino_type(arrow_type(text))


@pytest.mark.parametrize(
    "text", ["", "varchar", "array<>", "array<int", "struct<a>", "decimal(39,1)", "map<int>", "array<" * 50]
)
def test_invalid_type_name_is_refused(text: str) -> None:
    with pytest.raises(Usage):
        arrow_type(text)


def test_members_of_structs_are_quoted_in_statements() -> None:
    kind = arrow_type("array<struct<order:int,inner:struct<from:string>,m:map<string,struct<x:int>>>>")
    assert hive_type(kind) == "array<struct<order:int,inner:struct<from:string>,m:map<string,struct<x:int>>>>"
    assert (
        hive_type(kind, quoted=True)
        == "array<struct<`order`:int,`inner`:struct<`from`:string>,`m`:map<string,struct<`x`:int>>>>"
    )


@pytest.mark.parametrize("decode", ["json", "csv", "avro"])
@given(st.data())
@settings(max_examples=40)
def test_hostile_value_is_null_and_nothing_else(decode: str, data: st.DataObject) -> None:
    events = data.draw(hostile_values.events(decode))
    made = options(decode, hostile_values.columns_of(decode), avro=hostile_values.schema_of(decode))
    rows = decoded(made, *(event.payload for event in events))
    assert all(event.is_row(row) for event, row in zip(events, rows, strict=True))


@pytest.mark.parametrize("decode", ["json", "csv", "avro"])
def test_every_corner_of_a_type_is_held_and_nothing_beyond(decode: str) -> None:
    events = hostile_values.every(decode)
    made = options(decode, hostile_values.columns_of(decode), avro=hostile_values.schema_of(decode))
    beside = decoded(made, *(event.payload for event in events))
    alone = [row for event in events for row in decoded(made, event.payload)]
    for rows in (beside, alone):
        assert all(event.is_row(row) for event, row in zip(events, rows, strict=True))


DECIMALS = st.from_regex(r"-?(0|[1-9][0-9]{0,80})(\.[0-9]{1,80})?([eE][-+]?[0-9]{1,2})?", fullmatch=True)
HOSTILE_DECIMALS = ["4", "-4", "9" * 38, "9" * 39, "9" * 80, "1e-9", "1e-50", "-1e-9999999", "0e-9999999", "1e9999999"]
WRITTEN = {
    "csv": "{}",
    "json": '{{"c1":{},"f":Inf}}',
    "json, as a text": '{{"f":1,"c1":"{}"}}',
    "json, in a list": '{{"l":[0,{}]}}',
}


@pytest.mark.parametrize("kind", ["decimal(38,0)", "decimal(38,9)", "decimal(38,38)", "decimal(9,2)"])
@pytest.mark.parametrize("how", WRITTEN)
@given(data=st.data())
@settings(max_examples=8)
def test_decimal_is_exact_or_null(how: str, kind: str, data: st.DataObject) -> None:
    numbers = data.draw(st.permutations(HOSTILE_DECIMALS))[:4] + data.draw(st.lists(DECIMALS, max_size=4))
    columns = {"c1": kind} if how == "csv" else {"c1": kind, "f": "double", "l": f"array<{kind}>"}
    made = options(how.partition(",")[0], columns)
    payloads = [
        WRITTEN[how].format(number.replace("e", "\\u0065") if how == "json, as a text" else number).encode()
        for number in numbers
    ]
    rows = decoded(made, *payloads)
    whole, fraction = arrow_type(kind).precision - arrow_type(kind).scale, arrow_type(kind).scale
    for number, row in zip(numbers, rows, strict=True):
        found = row["l"][1] if row.get("l") else row["c1"]
        assert (found is None) == bool(row["_error"])
        assert row.get("f") in {None, 1, math.inf}
        assert found is None or found == Decimal(number)
        fits = re.fullmatch(rf"-?0*[0-9]{{0,{whole}}}(\.[0-9]{{0,{fraction}}})?", number)
        assert found is not None or not fits


@pytest.mark.parametrize("columns", [{"a": "bigint"}, {"a": "bigint", "s": "string"}])
@pytest.mark.parametrize("number", ["1e999", "0e999", "-0.0E+1000", "1.8e308", "1" * 309])
def test_large_number_without_a_column_is_no_reason(number: str, columns: dict[str, str]) -> None:
    [row] = decoded(options("json", columns), f'{{"a":1,"s":"x","u":[{number}]}}'.encode())
    assert (row["a"], row.get("s", "x"), row["_error"]) == (1, "x", None)


def test_only_what_is_written_as_infinite_is() -> None:
    rows = decoded(
        options("json", {"x": "double", "l": "array<struct<f:float>>"}),
        b'{"x":Inf,"l":[{"f":-Inf}]}',
        b'{"x":Inf,"l":[{"f":1},{"f":-9.9e308}]}',
        b'{"x":1.7976931348623159e308,"l":[{"f":2}]}',
        b'{"x":0e999,"l":[{"f":-Inf}]}',
    )
    assert [(row["x"], row["l"], bool(row["_error"])) for row in rows] == [
        (math.inf, [{"f": -math.inf}], False),
        (math.inf, None, True),
        (None, [{"f": 2}], True),
        (0, [{"f": -math.inf}], False),
    ]


def test_no_decimal_ends_the_process() -> None:
    program = f"""
import pyarrow as pa
from streamvault.lake.json_payloads import JsonPayloads
from streamvault.lake.table import columns_for
parser = JsonPayloads(columns_for({{"m": "decimal(9,2)"}}))
assert parser.parse(pa.array({[b'{"m":1e-9999999}', b'{"m":"1e-9999999"}']})).reasons.null_count == 0
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


STREAM, SEGMENT = StreamName("scope", "stream"), SegmentId(3, 7)
payloads = st.lists(st.one_of(st.binary(max_size=40), st.just(b"same size"), st.just(bytes(16))), max_size=60)


@given(payloads, st.lists(st.integers(1, 200), max_size=20), st.integers(0, 2**62))
def test_every_event_has_its_pointer(events: list[bytes], cuts: list[int], start: int) -> None:
    data = b"".join(map(frame, events))
    blocks, at = [], 0
    for cut in [*cuts, len(data)]:
        blocks.append(data[at : at + cut])
        at += cut
    rows = pa.Table.from_batches(event_batches(STREAM, SEGMENT, start, blocks), EVENT_SCHEMA).to_pylist()
    assert [row["payload"] for row in rows] == events
    offset = start
    for row, payload in zip(rows, events, strict=True):
        pointer = EventPointer(STREAM, SEGMENT, offset, 8 + len(payload))
        assert row["pointer"] == str(pointer)
        assert (row["scope"], row["stream"], row["epoch"], row["segment"]) == ("scope", "stream", 3, 7)
        assert (row["offset"], row["length"]) == (offset, 8 + len(payload))
        offset += 8 + len(payload)


@given(payloads, st.permutations(EVENT_SCHEMA.names), st.integers(1, 8))
def test_batch_is_the_same_whether_or_not_the_starts_are_known(
    events: list[bytes], names: list[str], some: int
) -> None:
    schema = pa.schema([EVENT_SCHEMA.field(name) for name in names[:some]])
    data = b"".join(map(frame, events))
    bare = EventBlock(5, memoryview(data), len(events))
    rows = batch_of(STREAM, SEGMENT, bare, schema).to_pylist()
    assert rows == [row for batch in event_batches(STREAM, SEGMENT, 5, [data], schema) for row in batch.to_pylist()]
    assert [row["payload"] for row in rows] == events if "payload" in schema.names else len(rows) == len(events)


def test_large_block_makes_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "BATCH_BYTES", 1000)
    data = frame(b"x" * 92) * 100 + frame(b"y" * 5000)
    made = list(event_batches(STREAM, SEGMENT, 0, [data]))
    assert max(batch.num_rows for batch in made) <= 10
    assert sum(batch.num_rows for batch in made) == 101


def test_small_blocks_do_not_make_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "BATCH_BYTES", 1000)
    data = frame(b"x" * 92) * 100 + frame(b"y" * 50)
    reused = bytearray(70)

    def blocks() -> Iterator[memoryview]:
        for at in range(0, len(data), 70):
            some = data[at : at + 70]
            reused[: len(some)] = some
            yield memoryview(reused)[: len(some)]

    made = list(event_batches(STREAM, SEGMENT, 0, blocks()))
    assert len(made) == 11
    assert [row for batch in made for row in batch["payload"].to_pylist()] == [b"x" * 92] * 100 + [b"y" * 50]


def test_batch_holds_no_memory_of_its_block() -> None:
    block = bytearray(frame(b"one") + frame(b"two"))
    batch = next(event_batches(STREAM, SEGMENT, 0, [block]))
    block[:] = bytes(len(block))
    assert batch["payload"].to_pylist() == [b"one", b"two"]


@pytest.mark.parametrize("data", [frame(b"whole") + frame(b"cut")[:-1], b"\xff" * 16])
def test_invalid_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(NotAnEvent):
        list(event_batches(STREAM, SEGMENT, 0, [data]))
