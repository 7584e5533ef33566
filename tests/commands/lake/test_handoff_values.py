"""No event can stop a table, and no schema leaves one that nothing can be added to."""

from __future__ import annotations

import io
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any, cast

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from streamvault import write_table
from streamvault.common.errors import Usage
from streamvault.lake import task
from streamvault.lake.reports import HandoffReport
from testkit.lakes import rows_of
from testkit.small_archives import RANGE_SIZE, Vault, contents
from tests import hostile_values
from tests.hostile_values import Event

DECODES = pytest.mark.parametrize("decode", ["json", "csv", "avro"])


class Lake:
    """A stream, its archive in a folder, and a table in an SQL catalog."""

    def __init__(self, folder: Path) -> None:
        self.vault = Vault(folder, f"file://{folder}/objects")
        self.vault.create()
        self._catalog = f"sqlite:///{folder}/catalog.db"

    def add(self, *payloads: bytes, **options: Any) -> HandoffReport:
        self.vault.add(*payloads)
        self.vault.export("chunks")
        return write_table(
            self.vault.archive, catalog=f"sql:{self._catalog}", target_size=100 * RANGE_SIZE, master="inline", **options
        )

    def table(self) -> Table:
        return load_catalog("streamvault", type="sql", uri=self._catalog).load_table("scope.stream")

    def rows(self) -> list[dict[str, Any]]:
        """The table's rows in the stream's order, as the catalog's readers see them."""
        found = self.table().scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["offset"])


@contextmanager
def a_lake() -> Iterator[Lake]:
    with tempfile.TemporaryDirectory() as folder:
        yield Lake(Path(folder))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@DECODES
@given(data=st.data())
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
def test_no_value_stops_a_table(decode: str, data: st.DataObject) -> None:
    """Whatever the first generation has, it is registered, and so is the next one; queries find every value."""
    events, more = (data.draw(hostile_values.events(decode)) for _ in range(2))
    usual = hostile_values.usual(decode)
    options = {"decode": decode, "schema": hostile_values.schema_of(decode)}
    with a_lake() as lake, pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "ROW_GROUP_BYTES", 1)
        # a sample of which nothing can be decoded would be refused
        assert lake.add(usual.payload, *(event.payload for event in events), **options).registered == (1,)
        assert lake.add(*(event.payload for event in more)).registered == (2,)
        held, rows = [usual, *events, *more], lake.rows()
        assert all(event.is_row(row) for event, row in zip(held, rows, strict=True))
        assert finds_all(lake.table(), held, [1] * (1 + len(events)) + [2] * len(more))


def equals(column: str, value: object) -> Any:
    return cast("Any", EqualTo)(column, value)


def finds_all(table: Table, events: Sequence[Event], generations: Sequence[int]) -> bool:
    """Whether a query for each value reads the file that it is in."""
    for event, generation in zip(events, generations, strict=True):
        for name, value in event.held.items():
            if value is None or isinstance(value, list | dict):
                continue
            if isinstance(value, float) and not math.isfinite(value):
                continue  # PyIceberg cannot look for these
            if isinstance(value, date | datetime):
                value = value.isoformat()  # noqa: PLW2901
            files = [found.file.file_path for found in table.scan(row_filter=equals(name, value)).plan_files()]
            assert any(f"generation={generation}/" in file for file in files), (name, value)
    return True


def test_text_too_long_for_statistics_is_found(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups without a least and a greatest value are not left out of a file's."""
    monkeypatch.setattr(task, "ROW_GROUP_BYTES", 1)
    texts = ["a" * 6000, "m", "z" * 6000]
    lake.add(*(json.dumps({"s": text, "pad": "x" * RANGE_SIZE}).encode() for text in texts), decode="json")
    for text in texts:
        found = lake.table().scan(row_filter=equals("s", text), selected_fields=("s",)).to_arrow()
        assert found["s"].to_pylist() == [text]


def test_text_that_has_no_next_one_is_registered(lake: Lake) -> None:
    """The greatest text of a file is cut at a character after which there is none: surrogates follow U+D7FF."""
    text = "x" * 15 + "\ud7ffmore"
    assert lake.add(json.dumps({"s": text}, ensure_ascii=False).encode(), decode="json").registered == (1,)
    assert [row["s"] for row in lake.rows()] == [text]


@pytest.mark.parametrize(
    ("unit", "wrong"),
    [
        ("ms", 253_402_300_800_000),
        ("s", 1_700_000_000_000),
        ("us", -(2**63)),
        ("us", 1e300),
        ("ns", -1e300),
        ("ms", 1e300),
        ("s", "0000-01-01"),
        ("s", "yesterday"),
    ],
)
def test_wrong_event_time_is_null_alone(lake: Lake, unit: str, wrong: object) -> None:
    right = {"id": 1, "t": "2026-01-01" if isinstance(wrong, str) else type(wrong)(0)}
    events = [json.dumps(event).encode() for event in (right, {"id": 2, "t": wrong}, {"id": 3, "t": None})]
    lake.add(*events, decode="json", event_time=f"t:{unit}")
    assert lake.add(events[1]).registered == (2,)
    rows = lake.rows()
    assert [(row["id"], row["event_time"] is None, row["_error"]) for row in rows] == [
        (1, False, None),
        (2, True, "t: not a timestamp of the years 1 to 9999"),
        (3, True, None),
        (2, True, "t: not a timestamp of the years 1 to 9999"),
    ]
    assert [row["t"] for row in rows[1:2]] == [wrong], "the field itself is not lost"


def avro(*fields: tuple[str, Any]) -> str:
    made = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "R", "fields": made})


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {**json.loads(avro(*fields)), "name": "Inner"}


EMPTY = {"type": "fixed", "name": "Empty", "size": 0}


@pytest.mark.parametrize(
    ("decode", "schema", "message"),
    [
        ("json", '{"id":"int","w":"map<string,int>"}', "a column of JSON cannot be a map.*w map<string,int>"),
        ("json", '{"w":"array<struct<m:map<string,int>>>"}', "a column of JSON cannot be a map"),
        ("json", '{"w":"struct<id:int,ID:int>"}', "differ only in case"),
        ("json", '{"w":"decimal(39,2)"}', "not a valid column type"),
        ("json", f'{{"w":"struct<{"k" * 129}:int>"}}', "not a valid column type"),
        ("json", json.dumps({"w": "array<" * 30 + "int" + ">" * 30}), "nested too deeply|not a valid column type"),
        ("csv", '{"id":"int","l":"array<int>"}', "a value of CSV cannot be a list.*l array<int>"),
        ("csv", '{"id":"int","l":"struct<a:int>"}', "a value of CSV cannot be"),
        ("avro", avro(("d", {"type": "bytes", "logicalType": "decimal", "precision": 60})), "decimals of 60 digits"),
        ("avro", avro(("r", record())), "structs without members"),
        ("avro", avro(), "does not describe a record with fields"),
        ("avro", avro(("r", record(("id", "int"), ("ID", "int")))), "differ only in case"),
        ("avro", avro(("r", record(("k" * 129, "int")))), "member's name"),
        ("avro", avro(("u", ["null"])), "union without a type"),
        ("avro", avro(("u", ["int", record()])), "structs without members"),
        ("avro", avro(("l", {"type": "array", "items": EMPTY})), "array of values without bytes"),
        ("avro", avro(("l", {"type": "array", "items": record(("f", EMPTY))})), "array of values without bytes"),
        ("avro", avro(("l", {"type": "array", "items": record()})), "array of values without bytes"),
        ("avro", avro(("l", {"type": "array", "items": "null"})), "array of values without bytes"),
        ("avro", avro(("l", {"type": "array"})), "not an Avro schema: items is missing"),
        ("json", '{"id":"bigint"}', "none of the 2 events in a sample can be decoded: not a JSON object"),
        ("avro", avro(("id", "long"), ("text", "string")), "none of the 2 events in a sample can be decoded"),
    ],
)
def test_schema_that_cannot_be_is_refused_before_anything_is_written(
    lake: Lake, decode: str, schema: str, message: str
) -> None:
    with pytest.raises(Usage, match=message):
        lake.add(b"1,2", b"3,4", decode=decode, schema=schema)
    assert not [key for key in contents(lake.vault.root) if "table" in key]
    assert lake.add(b"5,6", decode="csv").registered, "the name is still free"


def test_event_time_of_another_type_is_refused(lake: Lake) -> None:
    for schema, field in (('{"t":"decimal(9,2)"}', "t"), ('{"t":"struct<u:boolean>"}', "t.u")):
        with pytest.raises(Usage, match="event time has another type"):
            lake.add(b'{"t":1700000000000}', decode="json", schema=schema, event_time=field)
    with pytest.raises(Usage, match="none of the 3 events"):
        lake.add(b'{"t":1700000000000}', decode="json", schema='{"t":"bigint"}', event_time="t:s")


def test_avro_values_beyond_what_engines_know_are_null_in_every_event(lake: Lake) -> None:
    """The schema is the records' own, and its fields cannot be left out."""
    schema = avro(("id", "long"), ("until", {"type": "long", "logicalType": "timestamp-millis"}))
    events = [avro_of(("id", "long"), ("until", "long"), id=number, until=2**63 - 1) for number in range(2)]
    report = lake.add(*events, decode="avro", schema=schema)
    assert report.undecoded == 2
    assert [(row["id"], row["until"]) for row in lake.rows()] == [(0, None), (1, None)]
    with pytest.raises(Usage, match="none of the 2 events"):
        lake.add(decode="avro", schema=schema, event_time="until", table="other")


def avro_of(*fields: tuple[str, Any], **values: Any) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(json.loads(avro(*fields))), values)
    return written.getvalue()


@pytest.mark.parametrize(
    ("kind", "logical"), [("int", "time-millis"), ("long", "time-micros"), ("long", "timestamp-nanos")]
)
def test_times_of_avro_without_a_column_type_are_numbers(lake: Lake, kind: str, logical: str) -> None:
    schema = avro(("id", "long"), ("at", {"type": kind, "logicalType": logical}))
    lake.add(avro_of(("id", "long"), ("at", kind), id=1, at=28_800_000), decode="avro", schema=schema)
    assert [(row["id"], row["at"], row["_error"]) for row in lake.rows()] == [(1, 28_800_000, None)]


@pytest.mark.parametrize("digits", [{}, {"precision": 0}])
def test_decimal_of_avro_without_digits_is_bytes(lake: Lake, digits: dict[str, Any]) -> None:
    schema = avro(("id", "long"), ("m", {"type": "bytes", "logicalType": "decimal", **digits}))
    lake.add(avro_of(("id", "long"), ("m", "bytes"), id=1, m=b"\x07"), decode="avro", schema=schema)
    assert [(row["id"], row["m"], row["_error"]) for row in lake.rows()] == [(1, b"\x07", None)]


def test_nested_values_are_counted_by_depth(lake: Lake) -> None:
    """Long keys and keys that differ only in case have no column; many lists are no depth."""
    lists = {f"list{number}": [number] for number in range(30)}
    event = {"id": 1, "data": lists, "long": {"k" * 129: 1, "short": 2}, "case": {"a": 1, "A": 2}, "_pos": 3}
    lake.add(json.dumps(event).encode(), decode="json")
    [row] = lake.rows()
    assert row["data"] == lists
    assert row["long"] == {"short": 2}
    assert row["payload__pos"] == 3, "a name that Iceberg keeps to itself"
    assert "case" not in row


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["5863949479783605708", "5863949479783605709", "12345678901234567890"], "string"),
        (["02134", "10001"], "string"),
        (["-5", "0", "9223372036854775807"], "long"),
        (["1", "2.5"], "double"),
        (["9007199254740993", "2.5"], "string"),
        (["0.12345678901234567890"], "string"),
        (["1.50", "1e3", "NaN"], "double"),
        (["1e400"], "string"),
        (["nan"], "string"),
        (["true", "False"], "boolean"),
        (["true", "1"], "string"),
        (["+41791234567"], "string"),
    ],
)
def test_inferred_column_of_csv_keeps_its_numbers(lake: Lake, values: list[str], kind: str) -> None:
    lake.add(*(f"x,{value}".encode() for value in values), decode="csv")
    assert str(lake.table().schema().find_type("c2")) == kind
    rows = [row["c2"] for row in lake.rows()]
    read: Any = {"string": str, "long": int, "double": float, "boolean": lambda text: text.lower() == "true"}[kind]
    assert repr(rows) == repr([read(value) for value in values])


def test_numbers_of_json_that_no_double_holds_are_not_made_one(lake: Lake) -> None:
    numbers = [2**53 + 1, 2.5] * 2
    lake.add(*(json.dumps({"id": at, "n": number}).encode() for at, number in enumerate(numbers)), decode="json")
    assert "n" not in lake.table().schema().column_names
    assert lake.rows()[0]["id"] == 0


@pytest.mark.parametrize(("decode", "text"), [("json", b'{"c1":7}'), ("csv", b"7")])
def test_byte_order_mark_is_no_part_of_an_event(lake: Lake, decode: str, text: bytes) -> None:
    mark = b"\xef\xbb\xbf"
    lake.add(mark + text, mark + mark + text, text, decode=decode)
    assert [(row["c1"], row["_error"]) for row in lake.rows()] == [(7, None)] * 3
    assert rows_of(lake.vault.root)[0]["payload"] == mark + text
