"""Decode payloads that are JSON objects."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from streamvault.lake.column_types import arrow_type
from streamvault.lake.options import TableColumn
from streamvault.lake.payloads import NotDecoded, as_time

__all__ = ["JsonPayloads"]

_AS_TEXT = (pa.date32(), pa.timestamp("us"))
"""Types of which Arrow's parser accepts fewer notations than this package: read as text first."""


class JsonPayloads:
    """A `lake.payloads.PayloadParser` for JSON. Fields without a column stay in the payload only.

    Args:
        columns: the table's columns.
    """

    def __init__(self, columns: tuple[TableColumn, ...]) -> None:
        self._columns = [(column.field, arrow_type(column.type)) for column in columns]
        read_as = [(field, pa.string() if kind in _AS_TEXT else kind) for field, kind in self._columns]
        self._options = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(read_as), unexpected_field_behavior="ignore"
        )

    def suspects(self, payloads: pa.Array) -> list[str | None]:
        """See `PayloadParser.suspects`."""
        return [_wrong_with(payload) for payload in payloads.to_pylist()]

    def parse(self, payloads: pa.Array) -> list[pa.Array]:
        """See `PayloadParser.parse`."""
        try:
            texts = pc.ascii_trim_whitespace(payloads.cast(pa.string()))
            # each payload has at least one object, so equal counts mean exactly one each
            objects = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
            if not pc.all(objects).as_py():
                raise NotDecoded("not a JSON object")
            joined = pc.binary_join(pa.array([texts.to_pylist()], pa.list_(pa.string())), "\n")[0].as_buffer()
            block = max(len(joined) + 1, 1024)
            table = pyarrow.json.read_json(
                pa.BufferReader(joined), pyarrow.json.ReadOptions(use_threads=False, block_size=block), self._options
            )
            if len(table) != len(payloads):
                raise NotDecoded("more than one JSON object")
            return [self._converted(table, field, kind) for field, kind in self._columns]
        except pa.ArrowException as error:
            raise NotDecoded(str(error)) from None

    @staticmethod
    def _converted(table: pa.Table, field: str, kind: pa.DataType) -> pa.Array:
        column = table[field].combine_chunks()
        values = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
        if kind == pa.timestamp("us"):
            return as_time(values, "ms")
        return values.cast(kind)


def _wrong_with(payload: bytes) -> str | None:
    try:
        found = json.loads(payload)
    except ValueError as error:
        return str(error)
    except RecursionError:
        return "nested too deeply"
    return None if isinstance(found, dict) else "not a JSON object"
