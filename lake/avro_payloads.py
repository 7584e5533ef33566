"""Decode payloads that are single Avro records without a header, by a given schema."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lake.avro_types import parsed
from lake.column_types import arrow_type
from lake.options import TableColumn
from lake.payloads import NotDecoded

__all__ = ["AvroPayloads"]


class AvroPayloads:
    """A `lake.payloads.PayloadParser` for Avro.

    Args:
        schema: the Avro schema, as JSON text.
        columns: the table's columns.

    Raises:
        Usage: the schema is not valid, or no Avro library is installed.
    """

    def __init__(self, schema: str, columns: tuple[TableColumn, ...]) -> None:
        self._schema = parsed(schema)
        self._columns = [(column.field, arrow_type(column.type)) for column in columns]

    def suspects(self, payloads: pa.Array) -> list[str | None]:
        """See `PayloadParser.suspects`."""
        reasons: list[str | None] = []
        for payload in payloads.to_pylist():
            try:
                self._read(payload)
                reasons.append(None)
            except NotDecoded as error:
                reasons.append(str(error))
        return reasons

    def parse(self, payloads: pa.Array) -> list[pa.Array]:
        """See `PayloadParser.parse`."""
        records = [self._read(payload) for payload in payloads.to_pylist()]
        try:
            return [pa.array([_plain(record.get(field)) for record in records], kind) for field, kind in self._columns]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise NotDecoded(str(error)) from None

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


def _plain(value: Any) -> Any:
    """Convert a value for Arrow: timestamps (in UTC) lose their zone, UUIDs become text."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tzinfo") and value.tzinfo is not None:
        return value.replace(tzinfo=None)
    return str(value) if type(value).__name__ == "UUID" else value
