"""Events with values from every corner of every type of a column, and beyond, and what a table must have of them."""

from __future__ import annotations

import io
import json
import math
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import fastavro
from hypothesis import strategies as st

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
FIRST, LAST = datetime.min, datetime.max  # noqa: DTZ901
MOST = 10**38 - 1
_EXACT = Context(prec=60)

TYPES = {
    "b": "boolean",
    "i": "int",
    "n": "bigint",
    "f": "float",
    "x": "double",
    "s": "string",
    "y": "binary",
    "d": "date",
    "t": "timestamp",
    "m": "decimal(38,9)",
}
NESTED = {"l": "array<date>", "r": "struct<at:timestamp,name:string>"}

LONG = ["x" * 15 + "\ud7ffmore", "\ud7ff" * 20, "\U0010ffff" * 20, "\ue000" * 17, "z" * 5000, "é" * 2100]
CORNERS: dict[str, list[Any]] = {
    "b": [True, False],
    "i": [-(2**31), 2**31 - 1],
    "n": [-(2**63), 2**63 - 1, 2**53 + 1],
    "f": [-0.0, math.inf, math.nan, 2.0**-149],
    "x": [5e-324, -math.inf, math.nan, sys.float_info.max],
    "s": [*LONG, "\0", "NULL", " x "],
    "y": [text.encode() for text in LONG],
    "d": [date.min, date.max, date(1970, 1, 1), date(1582, 10, 10), date(4, 2, 29)],
    "t": [FIRST, LAST, EPOCH, EPOCH - timedelta(microseconds=1), EPOCH - timedelta(days=25_000)],
    "m": [Decimal(units).scaleb(-9, _EXACT) for units in (-MOST, MOST, 0, 1)],
    "l": [[], [None], [date.min, date.max]],
    "r": [{"at": LAST, "name": LONG[0]}, {"at": None, "name": None}],
}
"""The corners of each type."""

TEXTS = st.sampled_from(CORNERS["s"]) | st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
TIMES = st.sampled_from(CORNERS["t"]) | st.datetimes().map(lambda time: time.replace(fold=0))
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "b": st.booleans(),
    "i": st.integers(-(2**31), 2**31 - 1),
    "n": st.integers(-(2**63), 2**63 - 1),
    "f": st.floats(width=32),
    "x": st.floats(),
    "s": TEXTS,
    "y": TEXTS.map(str.encode),
    "d": st.dates(),
    "t": TIMES,
    "m": st.integers(-MOST, MOST).map(lambda units: Decimal(units).scaleb(-9, _EXACT)),
    "l": st.lists(st.none() | st.dates(), max_size=3),
    "r": st.fixed_dictionaries({"at": st.none() | TIMES, "name": st.none() | TEXTS}),
}
"""Values that a column of each type can hold."""

BAD = {
    "b": ["maybe"],
    "i": ["2147483648", "-2147483649", "1.5", "0xFFFFFFFF"],
    "n": ["9223372036854775808", "1.5", "0xFFFFFFFFFFFFFFFF"],
    "f": ["1e39", "-1e300", "1.8e308"],
    "x": ["1e400", "1.8e308", "-9.9e308"],
    "d": ['"0000-01-01"', '"2026-02-30"', '"10000-01-01"'],
    "t": ['"0000-12-31T23:59:59"', '"9999-12-31T23:59:59-05:00"', '"0001-01-01T00:00:00+05:00"', '"yesterday"'],
    "m": ["0.1234567891", "1" * 30, "9" * 39, "1e-50", "-1e-9999999"],
}
"""Values beyond each type, as JSON; without the quotes as CSV."""
BAD_JSON = {
    **{name: [value for value in values if not value.startswith("0x")] for name, values in BAD.items()},
    "b": ['"maybe"', "1"],
    "s": ["1"],
    "y": ["{}"],
    "l": ['["0000-01-01"]', '["2026-01-01",[]]', "7"],
    "r": ['{"at":"9999-12-31T23:59:59-05:00","name":"n"}', '{"name":7}'],
}


@dataclass(frozen=True)
class Event:
    """An event.

    Attributes:
        payload: its bytes.
        held: the values of its columns.
        wrong: the columns whose values it has, but no table can.
    """

    payload: bytes
    held: dict[str, Any]
    wrong: frozenset[str]

    def is_row(self, row: dict[str, Any]) -> bool:
        """Whether a table's row has this event's values: only wrong ones are null, and each has a reason."""
        assert {name: shown(row[name]) for name in self.held} == {name: shown(one) for name, one in self.held.items()}
        error = row["_error"]
        assert (error is None) == (not self.wrong)
        assert all(f"{name}: " in error or len(error) == 300 for name in self.wrong)
        return True


def shown(value: Any) -> Any:
    """A value that is equal to another only if both have the same type and digits (NaN is no exception)."""
    if isinstance(value, dict):
        return {name: shown(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [shown(inner) for inner in value]
    return f"{value:.9f}" if isinstance(value, Decimal) else repr(value)


def events(decode: str) -> st.SearchStrategy[list[Event]]:
    """Events of a format, of which each has a number in its first column that is right."""
    columns = columns_of(decode)
    made = _maker(decode)
    bad = bad_of(decode)
    each = {
        name: st.one_of(
            st.sampled_from(CORNERS[name]).map(lambda value: ("good", value)),
            GOOD[name].map(lambda value: ("good", value)),
            st.just(("good", None)),
            st.sampled_from(bad[name]).map(lambda value: ("bad", value)) if name in bad else st.nothing(),
        )
        for name in columns
        if name != "id"
    }
    drawn = st.lists(st.fixed_dictionaries(each), min_size=1, max_size=6)
    return drawn.map(
        lambda rows: [
            made({"id": ("good", number), **{name: row[name] for name in each}}) for number, row in enumerate(rows)
        ]
    )


def columns_of(decode: str) -> dict[str, str]:
    """The columns' types."""
    return {"id": "bigint", **TYPES, **({} if decode == "csv" else NESTED)}


def schema_of(decode: str) -> str:
    """What `--schema` declares."""
    return json.dumps(AVRO if decode == "avro" else columns_of(decode))


def _event(payload: bytes, row: dict[str, tuple[Any, Any]]) -> Event:
    held = {name: value if sort == "good" else None for name, (sort, value) in row.items()}
    return Event(payload, held, frozenset(name for name, (sort, _) in row.items() if sort == "bad"))


def _json(row: dict[str, tuple[Any, Any]]) -> Event:
    members = [f'"{name}":{value if sort == "bad" else _literal(value)}' for name, (sort, value) in row.items()]
    return _event(f"{{{','.join(members)}}}".encode(), row)


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f'"{name}":{_literal(inner)}' for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_literal, value)) + "]"
    if isinstance(value, float) and math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, date):  # and a datetime
        return f'"{value.isoformat()}"'
    return json.dumps(value.decode() if isinstance(value, bytes) else value, ensure_ascii=False)


def _csv(row: dict[str, tuple[Any, Any]]) -> Event:
    return _event(",".join(_cell(*one) for one in row.values()).encode(), row)


def _cell(sort: str, value: Any) -> str:
    if value is None:
        return ""
    if sort == "bad":
        return str(value).strip('"')
    if isinstance(value, str | bytes):
        text = value.decode() if isinstance(value, bytes) else value
        return '"' + text.replace('"', '""') + '"'
    return _literal(value).strip('"')


def _logical(kind: str, logical: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


_PLACE = [
    {"name": "at", "type": ["null", _logical("long", "timestamp-micros")]},
    {"name": "name", "type": ["null", "string"]},
]
_AVRO_TYPES: dict[str, Any] = {
    "id": "long", "b": "boolean", "i": "int", "n": "long", "f": "float", "x": "double", "s": "string", "y": "bytes",
    "d": _logical("int", "date"),
    "t": _logical("long", "timestamp-micros"),
    "m": _logical("bytes", "decimal", precision=38, scale=9),
    "l": {"type": "array", "items": ["null", _logical("int", "date")]},
    "r": {"type": "record", "name": "Place", "fields": _PLACE},
}  # fmt: skip
AVRO = {
    "type": "record",
    "name": "Hostile",
    "fields": [{"name": name, "type": ["null", kind]} for name, kind in _AVRO_TYPES.items()],
}


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical(inner) for inner in schema]
    if isinstance(schema, dict):
        return {name: _without_logical(inner) for name, inner in schema.items() if name != "logicalType"}
    return schema


_RAW = fastavro.parse_schema(_without_logical(AVRO))
_DAYS, _MICROS = (date.max - EPOCH.date()).days, (LAST - EPOCH) // timedelta(microseconds=1)


def _bad_avro() -> dict[str, list[Any]]:
    """Values beyond each type, as Avro's numbers and bytes."""
    return {
        "d": [_DAYS + 1, 2**31 - 1, -(2**31), -719_163],
        "t": [_MICROS + 1, 2**63 - 1, -(2**63)],
        "m": [(10**38).to_bytes(17, "big", signed=True), b"\x7f" * 40],
        "l": [[_DAYS + 1], [0, -(2**31)]],
        "r": [{"at": 2**63 - 1, "name": "n"}],
    }


def _avro(row: dict[str, tuple[Any, Any]]) -> Event:
    record = {name: value if sort == "bad" else _raw(value) for name, (sort, value) in row.items()}
    written = io.BytesIO()
    fastavro.schemaless_writer(written, _RAW, record)
    return _event(written.getvalue(), row)


def _raw(value: Any) -> Any:
    if isinstance(value, list):
        return [_raw(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _raw(inner) for name, inner in value.items()}
    if isinstance(value, Decimal):
        units = int(value.scaleb(9, _EXACT))
        return units.to_bytes(units.bit_length() // 8 + 1, "big", signed=True)
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return (value - EPOCH.date()).days if isinstance(value, date) else value


def usual(decode: str) -> Event:
    """An event with only its number."""
    return _maker(decode)({name: ("good", 0 if name == "id" else None) for name in columns_of(decode)})


def every(decode: str) -> list[Event]:
    """Events with every corner of each type, and every value beyond it, side by side."""
    columns = list(columns_of(decode))[1:]
    choices = {
        name: [("good", value) for value in CORNERS[name]] + [("bad", value) for value in bad_of(decode).get(name, [])]
        for name in columns
    }
    count = max(map(len, choices.values()))
    return [
        _maker(decode)({"id": ("good", row), **{name: choices[name][row % len(choices[name])] for name in columns}})
        for row in range(count)
    ]


def shown_by_trino(decode: str) -> dict[str, str]:
    """For each column, an expression with which Trino shows every bit of it."""
    texts = {"x": "to_hex(to_ieee754_64(x))", "f": "to_hex(to_ieee754_32(f))", "y": "to_hex(y)"}
    return {name: texts.get(name, name) for name in columns_of(decode)}


def bad_of(decode: str) -> dict[str, list[Any]]:
    """Values beyond each type."""
    return _bad_avro() if decode == "avro" else BAD_JSON if decode == "json" else BAD


def _maker(decode: str) -> Callable[[dict[str, tuple[Any, Any]]], Event]:
    makers: dict[str, Callable[[dict[str, tuple[Any, Any]]], Event]] = {"json": _json, "csv": _csv, "avro": _avro}
    return makers[decode]


def as_trino(name: str, value: Any) -> Any:
    """A column's value as `shown_by_trino` shows it."""
    if isinstance(value, float):
        return struct.pack(">f" if name == "f" else ">d", value).hex().upper()
    return value.hex().upper() if isinstance(value, bytes) else _as_json(value)


def _as_json(value: Any) -> Any:
    if isinstance(value, dict | list):
        return [_as_json(inner) for inner in (value.values() if isinstance(value, dict) else value)]
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")
    if isinstance(value, Decimal):
        return f"{value:.9f}"
    return value.isoformat() if isinstance(value, date) else value
