"""Avro: a table's columns from a schema, and payloads that are single records of it."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from streamvault.common.errors import Usage
from streamvault.lake.payloads import NotDecoded, Parsed, also, checked_times
from streamvault.lake.table import (
    MOST_DIGITS,
    TableColumn,
    arrow_type,
    check_type,
    columns_for,
    has_decimals,
    hive_type,
    misfit,
)

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms"),
    ("long", "timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
"""Logical types with a column type of their own; values of others are what they are without it (times are numbers)."""

_SINGLE, _FILE, _RECORD_AT = b"\xc3\x01", b"Obj\x01", 10
"""What a record with its schema's fingerprint begins with, and an Avro file; where the record follows the former."""

_SYNC: dict[str, Any] = {"type": "fixed", "name": "sync", "size": 16}
_FILE_HEADER = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": _SYNC},
    ],
}
_FILE_BLOCK = {
    "type": "record",
    "name": "block",
    "fields": [
        {"name": "count", "type": "long"},
        {"name": "data", "type": "bytes"},
        {"name": "sync", "type": _SYNC},
    ],
}
_LONGEST_SCHEMA = 1024 * 1024
_DEEPEST = 20
_EXACT = Context(prec=100)

_NO_VALUE = (pa.ArrowException, TypeError, ValueError, OverflowError, NotDecoded)


def avro_columns(schema: str) -> tuple[TableColumn, ...]:
    """Return a column for each field of a record schema (JSON text).

    Raises:
        Usage: it is not a record schema, or has a type without a column type.
    """
    types = _types_of(schema)
    for field, kind in types.items():
        check_type(kind, "avro", field)
    return columns_for({field: hive_type(kind) for field, kind in types.items()})


def _types_of(schema: str) -> dict[str, pa.DataType]:
    """Return the type of each field of a record schema; timestamps have the schema's units.

    Raises:
        Usage: as `avro_columns`.
    """
    found = _parsed(schema, expand=True)
    if not isinstance(found, dict) or found.get("type") != "record" or not found["fields"]:
        raise Usage("the Avro schema is not of a record with fields", where=str(found)[:80])
    return {str(field["name"]): _type_of(field["type"]) for field in found["fields"]}


def _type_of(schema: Any, depth: int = 0) -> pa.DataType:
    """Return the Arrow type for a schema, in which only recursive types are still named.

    Raises:
        Usage: there is no column type for it.
    """
    if depth > _DEEPEST or (isinstance(schema, str) and schema not in {*_PLAIN, "null"}):
        raise Usage("a column cannot hold a recursive Avro record", where=str(schema)[:100])
    if isinstance(schema, list):
        real = [one for one in schema if one != "null"]
        if len(real) != 1:
            raise Usage("a column cannot hold an Avro union of several types", where=str(schema)[:100])
        return _type_of(real[0], depth)
    if isinstance(schema, str):
        return _type_of({"type": schema}, depth + 1)
    if isinstance(schema["type"], dict | list):
        return _type_of(schema["type"], depth + 1)
    return _plain(schema) or _nested(schema, depth)


def _plain(schema: dict[str, Any]) -> pa.DataType | None:
    kind, logical = schema["type"], schema.get("logicalType")
    if kind == "fixed" and schema["size"] < 1:
        # an array of billions of them would be a few bytes
        raise Usage("a column cannot hold a fixed type without bytes", where=str(schema)[:100])
    if logical == "decimal" and kind in {"bytes", "fixed"}:
        digits = schema.get("precision")
        if not digits:
            return pa.binary()  # as the specification says
        if digits > MOST_DIGITS:
            raise Usage(f"query engines have no decimals of {digits} digits", todo=f"The most are {MOST_DIGITS}.")
        return pa.decimal128(digits, schema.get("scale", 0))
    return _LOGICAL.get((str(kind), str(logical))) or _PLAIN.get(kind)


def _nested(schema: dict[str, Any], depth: int) -> pa.DataType:
    if schema["type"] == "array":
        return pa.list_(_type_of(schema["items"], depth + 1))
    if schema["type"] == "map":
        return pa.map_(pa.string(), _type_of(schema["values"], depth + 1))
    if schema["type"] == "record":
        return pa.struct([(field["name"], _type_of(field["type"], depth + 1)) for field in schema["fields"]])
    raise Usage("a column cannot hold this Avro type", where=str(schema)[:100])


def _parsed(schema: str, *, expand: bool = False) -> Any:
    """Parse a schema (JSON text) for the Avro library.

    Args:
        schema: the schema.
        expand: put named types in the place of their names. Without it, logical types are removed: the library would
            reject a whole record for one value that Python does not have, and round decimals.

    Raises:
        Usage: it is not valid, or the library is not installed.
    """
    try:
        from fastavro.schema import SchemaParseException, expand_schema, parse_schema  # noqa: PLC0415  (an extra)
    except ImportError:
        todo = "pip install 'streamvault[lake]'"
        raise Usage("decoding Avro requires a library that is not installed", todo=todo) from None
    try:
        found = json.loads(schema)
        return expand_schema(found) if expand else parse_schema(_without_logical(found))
    except KeyError as error:
        raise Usage("not an Avro schema", where=f"{error.args[0]} is missing") from None
    except Exception as error:  # noqa: BLE001  (its errors have no common base class)
        where = str(error) if isinstance(error, ValueError | SchemaParseException) else schema
        raise Usage("not an Avro schema", where=where[:200]) from None


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: inner for name, inner in schema.items() if name != "logicalType"}
    return {name: inner if name == "default" else _without_logical(inner) for name, inner in kept.items()}


class AvroPayloads:
    """A `lake.payloads.PayloadParser` for Avro.

    Args:
        schema: the Avro schema, as JSON text.
        columns: the table's columns.

    Raises:
        Usage: the schema is not valid, or no Avro library is installed.
    """

    def __init__(self, schema: str, columns: tuple[TableColumn, ...]) -> None:
        self._schema = _parsed(schema)
        types = _types_of(schema)
        self._columns = [(column.field, types[column.field], arrow_type(column.type)) for column in columns]

    def parse(self, payloads: pa.Array) -> Parsed:
        """See `PayloadParser.parse`."""
        records: list[Mapping[str, Any]] = []
        texts: list[str | None] = []
        for payload in payloads.to_pylist():
            try:
                records.append(self._record(payload))
                texts.append(None)
            except NotDecoded as error:
                records.append({})
                texts.append(" ".join(str(error).split()))
        reasons = pa.array(texts, pa.string())
        columns = []
        for field, read_as, kind in self._columns:
            made, wrong = _column([record.get(field) for record in records], read_as, kind)
            columns.append(made)
            reasons = also(reasons, pa.array(wrong, pa.bool_()), misfit(field, kind))
        return Parsed(columns, reasons)

    def _record(self, payload: bytes) -> Mapping[str, Any]:
        """Return the record of one payload.

        Raises:
            NotDecoded: it is not a record of the schema.
        """
        import fastavro  # noqa: PLC0415  (an extra)

        source = io.BytesIO(payload)
        try:
            record = fastavro.schemaless_reader(source, self._schema, None)
        except Exception as error:  # noqa: BLE001  (its errors have no common base class)
            raise NotDecoded(f"not an Avro record of this schema: {type(error).__name__} {error}") from None
        left = len(payload) - source.tell()
        if left:
            raise NotDecoded(f"{left} bytes follow the Avro record")
        if not isinstance(record, dict):
            raise NotDecoded("not an Avro record")
        return record


class FramedAvro(AvroPayloads):
    """`AvroPayloads` whose records follow their schema's fingerprint, or are each in an Avro file.

    Args:
        schema: the Avro schema, as JSON text; records of another one are not decoded.
        columns: the table's columns.
    """

    def __init__(self, schema: str, columns: tuple[TableColumn, ...]) -> None:
        super().__init__(schema, columns)
        self._types, self._mark = _types_of(schema), fingerprint(schema)
        self._same_schema = lru_cache(maxsize=64)(self._is_same)

    def _record(self, payload: bytes) -> Mapping[str, Any]:
        """See `AvroPayloads`."""
        if payload.startswith(_SINGLE) and len(payload) >= _RECORD_AT:
            found = payload[len(_SINGLE) : _RECORD_AT]
            if found != self._mark:
                raise NotDecoded(f"written with another Avro schema, of the fingerprint {found.hex()}")
            return super()._record(payload[_RECORD_AT:])
        if not payload.startswith(_FILE):
            raise NotDecoded("no header of Avro")
        schema, record = _only_record(payload)
        if len(schema) > _LONGEST_SCHEMA or not self._same_schema(schema):
            raise NotDecoded("an Avro file of another schema")
        return super()._record(record)

    def _is_same(self, schema: bytes) -> bool:
        with suppress(Usage, ValueError):
            text = schema.decode()
            return fingerprint(text) == self._mark and _types_of(text) == self._types
        return False


def fingerprint(schema: str) -> bytes:
    """Return the fingerprint of a schema (JSON text) as it is before a record: CRC-64-AVRO, 8 bytes.

    Raises:
        Usage: as `avro_columns`.
    """
    parsed = _parsed(schema)
    import fastavro.schema  # noqa: PLC0415  (an extra)

    canonical = fastavro.schema.to_parsing_canonical_form(parsed)
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def _only_record(payload: bytes) -> tuple[bytes, bytes]:
    """Return the schema and the bytes of the only record in an Avro file.

    Raises:
        NotDecoded: it is no Avro file of one record, or compressed.
    """
    import fastavro  # noqa: PLC0415  (an extra)

    source = io.BytesIO(payload)
    try:
        header: Any = fastavro.schemaless_reader(source, _FILE_HEADER, None)
        block: Any = fastavro.schemaless_reader(source, _FILE_BLOCK, None)
    except Exception as error:  # noqa: BLE001  (its errors have no common base class)
        raise NotDecoded(f"not an Avro file: {type(error).__name__} {error}") from None
    codec = header["meta"].get("avro.codec", b"null")
    if codec != b"null":
        raise NotDecoded(f"an Avro file that is compressed: {codec[:20]!r}")
    if block["count"] != 1 or block["sync"] != header["sync"] or source.tell() != len(payload):
        raise NotDecoded("not an Avro file of one record")
    return header["meta"].get("avro.schema", b""), block["data"]


def _column(values: list[Any], read_as: pa.DataType, kind: pa.DataType) -> tuple[pa.Array, list[bool]]:
    """Return a field's values as a column, and which of them it cannot hold (null in it)."""
    if has_decimals(read_as):
        values = [_with_decimals(value, read_as) for value in values]
    wrong = [False] * len(values)
    try:
        return _made(values, read_as, kind), wrong
    except _NO_VALUE:
        for row, value in enumerate(values):
            try:
                _made([value], read_as, kind)
            except _NO_VALUE:
                wrong[row] = True
    return _made(
        [None if is_wrong else value for value, is_wrong in zip(values, wrong, strict=True)], read_as, kind
    ), wrong


def _made(values: list[Any], read_as: pa.DataType, kind: pa.DataType) -> pa.Array:
    return checked_times(pa.array(values, read_as)).cast(kind)


def _with_decimals(value: Any, kind: pa.DataType) -> Any:
    """Convert the decimals in a value, which are bytes: a big-endian number in units of the last digit."""
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-kind.scale, _EXACT)
    if pa.types.is_list(kind):
        return [_with_decimals(inner, kind.value_type) for inner in value]
    if pa.types.is_map(kind):
        return [(key, _with_decimals(inner, kind.item_type)) for key, inner in value.items()]
    if pa.types.is_struct(kind):
        return {member.name: _with_decimals(value[member.name], member.type) for member in kind}
    return value
