"""Payloads that are one Avro record each, without a header, by a schema that is given."""

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
    """See `lake.payloads.PayloadParser`.

    Args:
        schema: JSON text.
        columns: the table's.

    Raises:
        Usage: the schema is none, or no Avro library is installed.
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
        except Exception as error:  # noqa: BLE001  (what it raises of wrong bytes has no common kind)
            raise NotDecoded(f"not such an Avro record: {type(error).__name__} {error}") from None
        left = len(payload) - source.tell()
        if left:
            raise NotDecoded(f"{left} bytes are left behind the Avro record")
        if not isinstance(record, dict):
            raise NotDecoded("not an Avro record")
        return record


def _plain(value: Any) -> Any:
    """As Arrow takes it: a moment without its zone (it is UTC), an UUID as text."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tzinfo") and value.tzinfo is not None:
        return value.replace(tzinfo=None)
    return str(value) if type(value).__name__ == "UUID" else value
