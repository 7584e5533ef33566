"""Decode payloads that are single lines of comma-separated values."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from streamvault.lake.column_types import arrow_type
from streamvault.lake.options import TableColumn
from streamvault.lake.payloads import NotDecoded, as_time

__all__ = ["CsvPayloads"]


_LINES = "not one line"
_VALUE = r'(?:"(?:[^"]|"")*"(?:[^",][^,]*)?|[^",][^,]*|)'
_CLOSED = rf"\A{_VALUE}(?:,{_VALUE})*\z"
"""A line without unclosed quotes. A quote counts only at a value's beginning; a doubled one does not end the value."""


class CsvPayloads:
    """A `lake.payloads.PayloadParser` for CSV. Columns go by position; an empty value is null.

    Args:
        columns: the table's columns, in the order of the values.
    """

    def __init__(self, columns: tuple[TableColumn, ...]) -> None:
        self._columns = [(column.field, arrow_type(column.type)) for column in columns]
        self._options = pyarrow.csv.ConvertOptions(
            column_types={field: pa.string() if kind == pa.timestamp("us") else kind for field, kind in self._columns},
            null_values=[""],
            strings_can_be_null=True,
        )

    def suspects(self, payloads: pa.Array) -> list[str | None]:
        """See `PayloadParser.suspects`."""
        return [_wrong_with(line) for line in payloads.to_pylist()]

    def parse(self, payloads: pa.Array) -> list[pa.Array]:
        """See `PayloadParser.parse`."""
        try:
            texts = pc.ascii_rtrim(payloads.cast(pa.string()), "\r\n")
            if pc.any(pc.match_substring_regex(texts, r"[\r\n]")).as_py():
                raise NotDecoded(_LINES)
            if len(self._columns) > 1 and pc.any(pc.equal(texts, "")).as_py():
                raise NotDecoded("an empty line")  # the parser would read it as a row of nulls
            if not pc.all(pc.match_substring_regex(texts, _CLOSED)).as_py():
                raise NotDecoded("a quote is not closed")  # the parser would include the end of the line in the value
            joined = ("\n".join(texts.to_pylist()) + "\n").encode()
            table = pyarrow.csv.read_csv(
                pa.BufferReader(joined),
                pyarrow.csv.ReadOptions(
                    use_threads=False,
                    column_names=[field for field, _ in self._columns],
                    block_size=max(len(joined) + 1, 1024),
                ),
                pyarrow.csv.ParseOptions(ignore_empty_lines=False),
                self._options,
            )
            if len(table) != len(payloads):
                raise NotDecoded(_LINES)
            return [self._converted(table, field, kind) for field, kind in self._columns]
        except pa.ArrowException as error:
            raise NotDecoded(str(error)) from None

    @staticmethod
    def _converted(table: pa.Table, field: str, kind: pa.DataType) -> pa.Array:
        values = pa.concat_arrays(table[field].chunks)
        return as_time(values, "ms") if kind == pa.timestamp("us") else values


def _wrong_with(line: bytes) -> str | None:
    return _LINES if re.search(rb"[\r\n]", line.rstrip(b"\r\n")) else None
