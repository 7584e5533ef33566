"""Decode payloads that are JSON objects."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pydantic_core import from_json

from streamvault.common.errors import Usage
from streamvault.lake.payloads import (
    DATE,
    TIME,
    NotDecoded,
    Parsed,
    all_reasons,
    also,
    as_lines,
    as_time,
    because,
    checked_times,
    decimal_in,
    infinite_in,
    none_of,
    parse_parts,
    spread,
    without_marks,
)
from streamvault.lake.table import Nesting, TableColumn, arrow_type, has_decimals, misfit, unfit

_SCHEMA_TYPES = {"integer": pa.int64(), "number": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}
"""Of a JSON Schema."""

_READ_AS = {pa.date32(): pa.string(), pa.timestamp("us"): pa.string(), pa.float32(): pa.float64()}
"""Types that Arrow's parser does not read as this package does: dates and times have more notations, and a large number
becomes an infinite float. (Decimals are read as wider ones: those of 128 bits overflow while they are read.)"""

_SPACE = b" \t\n\v\f\r"
_NO_OBJECT = "not a JSON object"

# Patterns that are matched with all payloads of a part at once. They say only what is certain: `_FIELDS` leads from the
# beginning over whole fields, so that what follows is a field of the object itself, whatever comes after it.
_S = r"[ \t\n\r]*"
_TEXT = r'"(?:[^"\\]|\\.)*"'
_FIELDS = rf'(?s)^[ \t\n\v\f\r]*\{{(?:{_S}{_TEXT}{_S}:{_S}(?:{_TEXT}|[^"\[\]{{}},: \t\n\r]+){_S},)*{_S}'
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_ -]+")

_LARGE = r"[0-9](?:[eE]\+?[0-9]{3}|[0-9.]{200})"
_ZERO = re.compile(rb"^(-?)0(?:\.0+)?[eE].*")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?', re.DOTALL)
_OF_NO_TYPE = b"[{},[]]"

_SMALL = r"[eE]-[0-9]{2,}[^0-9A-Za-z-]|[0-9.]{60}[eE]-|\\u00(?:2[dD]|3[0-9]|[46]5)"
"""What events have that may have a decimal with a small exponent, also one with escapes."""
_INF = re.compile(rb'("(?:[^"\\]|\\.)*")|\bInf\b', re.DOTALL)

_DATE, _TIME = re.compile(DATE), re.compile(TIME)
_NUMBER = re.compile(r"[ \t]*[-+]?[0-9]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?[ \t]*")
_RANGES = {kind: range(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1)) for kind in (pa.int32(), pa.int64())}
_PYTHON_TYPES = (
    (pa.types.is_floating, {int, float}),
    (pa.types.is_boolean, {bool}),
    (pa.types.is_string, {str}),
    (pa.types.is_binary, {str}),
)


class JsonPayloads:
    """A `lake.payloads.PayloadParser` for JSON. Fields without a column stay in the payload only.

    Arrow rejects a payload if one of its values does not fit. Such payloads are decoded again with each half of the
    columns, down to the columns whose values do not fit.

    Args:
        columns: the table's columns.
    """

    def __init__(self, columns: tuple[TableColumn, ...]) -> None:
        self._given = columns
        self._columns = [(column.field, arrow_type(column.type)) for column in columns]
        read_as = [(field, _read_as(kind)) for field, kind in self._columns]
        self._options = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(read_as), unexpected_field_behavior="ignore"
        )
        rules = [(field, kind, _wrong_start(kind)) for field, kind in self._columns if _PLAIN_NAME.fullmatch(field)]
        self._wrong = [
            (f'{_FIELDS}"{field}"{_S}:{_S}(?:{wrong})', misfit(field, kind)) for field, kind, wrong in rules if wrong
        ]
        self._any_wrong = (
            "|".join(f'"{field}"{_S}:{_S}(?:{wrong})' for field, _, wrong in rules if wrong) or r"[^\x00-\xff]"
        )

    def parse(self, payloads: pa.Array) -> Parsed:
        """See `PayloadParser.parse`."""
        payloads = without_marks(payloads)
        found = self._together(payloads)
        wrong = found.reasons.is_valid()
        if not self._columns or not pc.any(wrong).as_py():
            return found
        payloads = _without_infinite(payloads, wrong)
        objects = spread(JsonPayloads(()).parse(payloads.filter(wrong)).reasons.is_null(), wrong)
        return self._halved(payloads, found, pc.fill_null(objects, False))

    def _together(self, payloads: pa.Array) -> Parsed:
        """Decode payloads; of those with a value that does not fit, all values are null."""
        kinds = [kind for _, kind in self._columns]
        return parse_parts(payloads, kinds, self._whole, (self._at_a_glance, self._looked_into))

    def _halved(self, payloads: pa.Array, found: Parsed, wrong: pa.Array) -> Parsed:
        """Decode some payloads again, which are objects, with each half of the columns; only wrong values are null."""
        again = payloads.filter(wrong)
        if not len(again):
            return found
        halves = [half._apart(again) for half in self._halves]  # noqa: SLF001  (the same class)
        rows = np.arange(len(payloads))
        there = wrong.to_numpy(zero_copy_only=False)
        rows[there] = len(payloads) + np.arange(len(again))

        def merged(before: pa.Array, after: pa.Array) -> pa.Array:
            return pa.concat_arrays([before, after]).take(pa.array(rows))

        columns = [column for half in halves for column in half.columns]
        return Parsed(
            [merged(*both) for both in zip(found.columns, columns, strict=True)],
            merged(found.reasons, reduce(all_reasons, (half.reasons for half in halves))),
        )

    def _apart(self, payloads: pa.Array) -> Parsed:
        found = self._together(payloads)
        if len(self._columns) > 1:
            return self._halved(payloads, found, found.reasons.is_valid())
        none = pa.nulls(len(payloads), pa.string())
        return Parsed(found.columns, also(none, found.reasons.is_valid(), misfit(*self._columns[0])))

    @cached_property
    def _halves(self) -> tuple[JsonPayloads, ...]:
        if len(self._given) == 1:
            return (self,)
        middle = len(self._given) // 2
        return JsonPayloads(self._given[:middle]), JsonPayloads(self._given[middle:])

    def _at_a_glance(self, payloads: pa.Array) -> pa.Array:
        """Return, for each payload, why it is certainly invalid, or null, without parsing it."""
        objects = _are_objects(_trimmed(payloads))
        reasons = because(pa.nulls(len(payloads), pa.string()), pc.invert(objects), _NO_OBJECT)
        maybe = pc.match_substring_regex(payloads, self._any_wrong)
        if pc.any(maybe).as_py():
            few = payloads.filter(maybe)
            found = pa.nulls(len(few), pa.string())
            for pattern, reason in self._wrong:
                found = because(found, pc.match_substring_regex(few, pattern), reason)
                if not found.null_count:
                    break
            reasons = pc.coalesce(reasons, spread(found, maybe))
        return reasons

    def _looked_into(self, payloads: pa.Array) -> pa.Array:
        """Return, for each payload, why it is certainly invalid, or null."""
        reasons: list[str | None] = []
        for payload, small in zip(payloads.to_pylist(), self._small(payloads), strict=True):
            document, reason = _document(payload)
            for field, kind in self._columns:
                if _cannot_be(kind, document.get(field)):
                    reason = reason or misfit(field, kind)
            reasons.append(reason or small)
        return pa.array(reasons, pa.string())

    def _small(self, payloads: pa.Array) -> list[str | None]:
        """Return, for each payload, why Arrow must not see it: a decimal with a small exponent can end the process."""
        decimals = [(field, kind) for field, kind in self._columns if has_decimals(kind)]
        found: list[str | None] = [None] * len(payloads)
        if decimals:
            for row in pc.indices_nonzero(pc.match_substring_regex(payloads, _SMALL)).to_pylist():
                found[row] = _wrong_decimal(payloads[row].as_py(), decimals)
        return found

    def _whole(self, payloads: pa.Array) -> list[pa.Array]:
        """Decode payloads at once.

        Raises:
            NotDecoded: at least one payload is invalid; if there is only one, the message says why.
        """
        try:
            texts = _trimmed(payloads)
            if not pc.all(_are_objects(texts)).as_py():
                raise NotDecoded(_NO_OBJECT)
            small = next(filter(None, self._small(payloads)), None)
            if small:
                raise NotDecoded(small)
            # each payload has at least one object, so equal counts mean exactly one each
            lines = as_lines(texts.view(pa.binary()).cast(pa.string()))  # raises if one is not UTF-8
            block = max(len(lines) + 1, 1024)
            table = pyarrow.json.read_json(
                pa.BufferReader(lines), pyarrow.json.ReadOptions(use_threads=False, block_size=block), self._options
            )
            if len(table) != len(payloads):
                raise NotDecoded("more than one JSON object")
            made = [_converted(_one(table[field]), kind) for field, kind in self._columns]
        except pa.ArrowException as error:
            raise NotDecoded(str(error)) from None
        infinite = reduce(pc.or_, map(infinite_in, made), none_of(len(payloads)))
        if pc.any(infinite).as_py() and _without_infinite(payloads, infinite) != payloads:
            raise NotDecoded("a number beyond the largest of its type")
        return made


def _one(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Return the type with which Arrow's parser reads the values of a column."""
    if pa.types.is_list(kind):
        return pa.list_(_read_as(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(member.name, _read_as(member.type)) for member in kind])
    if pa.types.is_decimal(kind):
        return pa.decimal256(76, kind.scale)
    return _READ_AS.get(kind, kind)


def _converted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert what Arrow's parser has read to a column's type.

    Raises:
        NotDecoded, ArrowException: a value does not fit.
    """
    if pa.types.is_list(kind):
        inner = _converted(values.values, kind.value_type)
        return pa.ListArray.from_arrays(values.offsets, inner, kind, mask=values.is_null())
    if pa.types.is_struct(kind):
        members = [_converted(pc.struct_field(values, index), kind.field(index).type) for index in range(len(kind))]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=values.is_null())
    if kind == pa.timestamp("us"):
        return as_time(values, "ms")
    made = checked_times(values.cast(kind))
    if kind == pa.float32() and pc.any(pc.xor(pc.is_inf(made), pc.is_inf(values))).as_py():
        raise NotDecoded("beyond the largest float")
    return made


def _trimmed(payloads: pa.Array) -> pa.Array:
    """Return payloads, which may not be valid texts, without white space around them."""
    return pc.ascii_trim_whitespace(payloads.view(pa.string()))


def _are_objects(texts: pa.Array) -> pa.Array:
    """Return which texts begin and end as an object does."""
    return pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))


def _without_infinite(payloads: pa.Array, some: pa.Array) -> pa.Array:
    """Replace numbers beyond a double in some payloads: Arrow rejects all of a payload, or makes them infinite."""
    some = pc.and_(some, pc.match_substring_regex(payloads, _LARGE))
    if not pc.any(some).as_py():
        return payloads
    replaced = [_TOKEN.sub(_finite, payload) for payload in payloads.filter(some).to_pylist()]
    return pc.coalesce(spread(pa.array(replaced, payloads.type), some), payloads)


def _finite(token: re.Match[bytes]) -> bytes:
    if token[0].startswith(b'"'):
        return token[0]
    # Arrow calls even a zero too large whose exponent is
    return _ZERO.sub(rb"\g<1>0.0", token[0]) if math.isfinite(float(token[0])) else _OF_NO_TYPE


def _document(payload: bytes) -> tuple[dict[str, Any], str | None]:
    """Return a payload's JSON, and why it is certainly none; nothing is certain about an empty object."""
    text = payload.strip(_SPACE)
    with suppress(ValueError):
        found = from_json(text)
        return (found, None) if isinstance(found, dict) else ({}, _NO_OBJECT)
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        return {}, None if b"Inf" in text else str(error)  # which Arrow's parser reads as a number
    except UnicodeEncodeError:
        return {}, "half of a surrogate pair"
    except (ValueError, RecursionError):
        pass  # limits of the parser above, not of Arrow's
    return {}, None


def _wrong_decimal(payload: bytes, columns: list[tuple[str, pa.DataType]]) -> str | None:
    """Return the first column of decimals that holds a value of a payload not exactly; None if all do."""
    plain = _INF.sub(lambda found: found[1] or b"Infinity", payload.strip(_SPACE))
    try:
        document = json.loads(plain, parse_float=str, parse_int=str)
    except (ValueError, RecursionError) as error:
        return str(error)
    if not isinstance(document, dict):
        return _NO_OBJECT
    return next((misfit(field, kind) for field, kind in columns if _is_inexact(kind, document.get(field))), None)


def _is_inexact(kind: pa.DataType, value: Any) -> bool:
    if pa.types.is_decimal(kind):
        return isinstance(value, str) and decimal_in(value, kind) is None
    if pa.types.is_list(kind):
        return isinstance(value, list) and any(_is_inexact(kind.value_type, one) for one in value)
    if pa.types.is_struct(kind):
        return isinstance(value, dict) and any(_is_inexact(member.type, value.get(member.name)) for member in kind)
    return False


def _wrong_start(kind: pa.DataType) -> str:
    """Return a pattern (RE2) of how a value begins in JSON that certainly does not fit a column; empty for none."""
    if pa.types.is_integer(kind):
        return r'["\[{tf]|-?[0-9]+[.eE]'
    if pa.types.is_floating(kind):
        return r'["\[{tf]'
    if pa.types.is_boolean(kind):
        return r'["\[{0-9-]'
    if pa.types.is_string(kind):
        return r"[\[{tf0-9-]"
    if kind in {pa.date32(), pa.timestamp("us")}:
        return r'[\[{tf0-9-]|"[^0-9\\]|"[0-9-]{1,9}"'
    return ""


def _cannot_be(kind: pa.DataType, value: Any) -> bool:  # noqa: PLR0911  (one for each kind of type)
    """Return whether a value of a payload, as Python's parsers return it, certainly does not fit a column's type."""
    if value is None:
        return False
    if pa.types.is_integer(kind):
        return type(value) is not int or value not in _RANGES[kind]
    plain = next((types for is_kind, types in _PYTHON_TYPES if is_kind(kind)), None)
    if plain is not None:
        return type(value) not in plain
    if pa.types.is_decimal(kind):
        return type(value) is bool or (isinstance(value, str) and _NUMBER.fullmatch(value) is None)
    if pa.types.is_list(kind):
        return not isinstance(value, list) or any(_cannot_be(kind.value_type, one) for one in value)
    if pa.types.is_struct(kind):
        return not isinstance(value, dict) or any(_cannot_be(member.type, value.get(member.name)) for member in kind)
    # nothing is certain about other types than dates and timestamps
    looks_like = {pa.date32(): _DATE, pa.timestamp("us"): _TIME}.get(kind)
    return looks_like is not None and (type(value) is not str or looks_like.match(value) is None)


def json_schema_types(schema: bytes, _: str = "") -> dict[str, pa.DataType | None]:
    """Return the column type of each property of a JSON Schema of objects; None if no column can hold it.

    Raises:
        Usage: it is not one.
    """
    try:
        found = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise Usage("not a JSON Schema", where=str(error)) from None
    properties = found.get("properties") if isinstance(found, dict) else None
    if not isinstance(properties, dict):
        raise Usage("the JSON Schema does not describe objects with properties", where=str(found)[:80])
    types: dict[str, pa.DataType | None] = {}
    for name, inner in properties.items():
        place = Nesting()
        kind = _schema_type(inner, found, place)
        text = name.encode("utf-8", "backslashreplace").decode()  # JSON may have half of a surrogate pair
        types[text] = kind if text == name and next(place.left, None) is not None else None
    return types


def _schema_type(schema: Any, whole: dict[str, Any], place: Nesting) -> pa.DataType | None:
    """Return the type of a schema at a place in the types around it."""
    names: list[str] = []
    while isinstance(schema, dict) and str(schema.get("$ref", "")).startswith("#/"):
        if schema["$ref"] in names:
            return None
        names.append(schema["$ref"])
        found: Any = whole
        for name in schema["$ref"][2:].split("/"):
            found = found.get(name) if isinstance(found, dict) else None
        schema = found
    inside = place.into(*names)
    if not isinstance(schema, dict) or inside is None:
        return None
    kinds = schema.get("type")
    [kind, *others] = [one for one in kinds if one != "null"] or [None] if isinstance(kinds, list) else [kinds]
    if others:
        return None
    if kind == "array":
        inner = _schema_type(schema.get("items"), whole, inside)
        return None if inner is None else pa.list_(inner)
    if kind == "object" and isinstance(schema.get("properties"), dict):
        members = [
            (name, _schema_type(one, whole, inside)) for name, one in schema["properties"].items() if name.isascii()
        ]
        found = pa.struct([member for member in members if member[1] is not None and not unfit(pa.struct([member]))])
        return None if unfit(found) else found
    return _SCHEMA_TYPES.get(str(kind))
