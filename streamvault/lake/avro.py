"""Avro: a table's columns from a schema, and payloads that are single records of it without a header."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from streamvault.common.errors import Usage
from streamvault.lake.column_types import arrow_type, hive_type
from streamvault.lake.payloads import NotDecoded, Parsed, without
from streamvault.lake.recorded import TableColumn, columns_for

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
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us"),
    "timestamp-micros": pa.timestamp("us"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}

_DEEPEST = 20
_AS_THEY_ARE = frozenset({type(None), bool, int, float, str, bytes, Decimal, date})
"""Types of values that `_arrow` leaves as they are."""

_NO_VALUE = (pa.ArrowException, TypeError, ValueError, OverflowError)


def avro_columns(schema: str) -> tuple[TableColumn, ...]:
    """Return a column for each field of a record schema (JSON text).

    Raises:
        Usage: it is not a record schema, or has a type without a column type.
    """
    found = _parsed(schema, expand=True)
    if not isinstance(found, dict) or found.get("type") != "record":
        raise Usage("the Avro schema is not of a record", where=str(found)[:80])
    return columns_for({str(field["name"]): hive_type(_type_of(field["type"])) for field in found["fields"]})


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
    if logical == "decimal" and kind in {"bytes", "fixed"}:
        return pa.decimal128(int(schema["precision"]), int(schema.get("scale", 0)))
    return _LOGICAL.get(str(logical)) or _PLAIN.get(kind)


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
        expand: put named types in the place of their names.

    Raises:
        Usage: it is not valid, or the library is not installed.
    """
    try:
        from fastavro.schema import expand_schema, parse_schema  # noqa: PLC0415  (an extra)
    except ImportError:
        todo = "pip install 'streamvault[lake]'"
        raise Usage("decoding Avro requires a library that is not installed", todo=todo) from None
    try:
        return (expand_schema if expand else parse_schema)(json.loads(schema))
    except Exception as error:  # noqa: BLE001  (its errors have no common base class)
        raise Usage("not an Avro schema", where=f"{type(error).__name__}: {error}"[:200]) from None


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
        self._columns = [(column.field, arrow_type(column.type)) for column in columns]

    def parse(self, payloads: pa.Array) -> Parsed:
        """See `PayloadParser.parse`."""
        records: list[Mapping[str, Any]] = []
        reasons: list[str | None] = []
        for payload in payloads.to_pylist():
            try:
                records.append(self._read(payload))
                reasons.append(None)
            except NotDecoded as error:
                records.append({})
                reasons.append(str(error))
        columns = []
        for field, kind in self._columns:
            values = [record.get(field) for record in records]
            if not _AS_THEY_ARE.issuperset(map(type, values)):
                values = [_arrow(value) for value in values]
            try:
                columns.append(pa.array(values, kind))
            except _NO_VALUE:
                for row, value in enumerate(values):
                    try:
                        pa.array([value], kind)
                    except _NO_VALUE as error:
                        reasons[row] = reasons[row] or f"{field}: {error}"
                        values[row] = None
                columns.append(pa.array(values, kind))
        if any(reasons):
            wrong = pa.array([reason is not None for reason in reasons])
            columns = [without(column, wrong) for column in columns]
        texts = [None if reason is None else " ".join(reason.split()) for reason in reasons]
        return Parsed(columns, pa.array(texts, pa.string()))

    def _read(self, payload: bytes) -> Mapping[str, Any]:
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


def _arrow(value: Any) -> Any:
    """Convert a value for Arrow: timestamps (in UTC) lose their zone, UUIDs become text."""
    if isinstance(value, dict):
        return {key: _arrow(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_arrow(inner) for inner in value]
    if hasattr(value, "tzinfo") and value.tzinfo is not None:
        return value.replace(tzinfo=None)
    return str(value) if type(value).__name__ == "UUID" else value
