"""Decode payloads that are single lines of comma-separated values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from streamvault.lake.payloads import (
    DATE,
    NotDecoded,
    Parsed,
    also,
    as_decimals,
    as_lines,
    as_time,
    because,
    checked_times,
    convert_each,
    decimal_in,
    none_of,
    not_times,
    plain_decimals,
    spread,
    without_marks,
)
from streamvault.lake.table import TableColumn, arrow_type, misfit

_VALUE = r'(?:"(?:[^"]|"")*"(?:[^",][^,]*)?|[^",][^,]*|)'
_CLOSED = rf"\A{_VALUE}(?:,{_VALUE})*\z"
"""A line without unclosed quotes. A quote counts only at a value's beginning; a doubled one does not end the value."""


_LINE, _VALUES = re.compile(rf"{_VALUE}(?:,{_VALUE})*"), re.compile(rf"(?:\A|,){_VALUE}")

_TRUE, _FALSE = ("1", "true", "True", "TRUE"), ("0", "false", "False", "FALSE")

_LOOKS_LIKE = (
    (pa.types.is_integer, r"^[-+]?[0-9]+$"),
    (pa.types.is_floating, r"^[-+]?[0-9]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?$|^[-+]?[a-zA-Z]+$"),
    (pa.types.is_date, DATE),
)
"""What values of a type look like; a few of those that do are still none (numbers out of range)."""


class CsvPayloads:
    """A `lake.payloads.PayloadParser` for CSV. Columns go by position; an empty value is null.

    Lines from before columns were added are shorter.

    Args:
        columns: the table's columns, in the order of the values.
    """

    def __init__(self, columns: tuple[TableColumn, ...]) -> None:
        self._columns = [(column.field, arrow_type(column.type)) for column in columns]
        self._least = sum(not column.added for column in columns)

    def parse(self, payloads: pa.Array) -> Parsed:
        """See `PayloadParser.parse`."""
        texts, reasons = self._lines(payloads)
        columns, reasons = self._values(texts, reasons)
        done = []
        for values, (field, kind) in zip(columns, self._columns, strict=True):
            made, wrong = convert_each(values, partial(_converted, kind), partial(_hopeless, kind))
            done.append(made)
            reasons = also(reasons, wrong, misfit(field, kind))
        return Parsed(done, reasons)

    def _lines(self, payloads: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the payloads as texts, and why some are no lines."""
        payloads = without_marks(payloads)
        try:
            texts = payloads.cast(pa.string())
        except pa.ArrowInvalid:
            texts = pa.array([text_of(payload) for payload in payloads.to_pylist()], pa.string())
        reasons = because(pa.nulls(len(texts), pa.string()), pc.is_null(texts), "not UTF-8")
        texts = pc.ascii_rtrim(texts, "\r\n")
        if _contains(texts, b"\r\n"):
            reasons = because(reasons, pc.match_substring_regex(texts, r"[\r\n]"), "not one line")
        if _contains(texts, b'"'):
            # the parser would include the end of the line in the value
            reasons = because(reasons, pc.invert(pc.match_substring_regex(texts, _CLOSED)), "a quote is not closed")
        if len(self._columns) > 1:
            # the parser would read it as a row of nulls
            reasons = because(reasons, pc.equal(texts, ""), "an empty line")
        return texts, reasons

    def _values(self, texts: pa.Array, reasons: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        """Return the values of each line as texts, null for lines that are invalid; and why lines are."""
        good = pc.is_null(reasons)
        lines = texts.filter(good)
        other: list[int] = []
        short: dict[int, int] = {}

        def other_count(found: pyarrow.csv.InvalidRow) -> str:
            if self._least <= found.actual_columns < len(self._columns):
                short[found.number - 1] = len(self._columns) - found.actual_columns
            other.append(found.number - 1)
            return "skip"

        if not len(lines):
            return [pa.nulls(len(texts), pa.string()) for _ in self._columns], reasons
        table = read_values(as_lines(lines), [field for field, _ in self._columns], other_count)
        if short:  # they are read again, with nothing in the columns that were added
            ends = [""] * len(texts)
            for row, count in zip(pc.indices_nonzero(good).to_numpy()[[*short]], short.values(), strict=True):
                ends[row] = "," * count
            return self._values(pc.binary_join_element_wise(texts, pa.array(ends, pa.string()), ""), reasons)
        if other:
            rows = pc.indices_nonzero(good).to_numpy()[other]
            wrong = np.zeros(len(texts), bool)
            wrong[rows] = True
            reasons = because(reasons, pa.array(wrong), f"not {len(self._columns)} values")
            good = pc.is_null(reasons)
        columns = [pa.concat_arrays([*column.chunks, pa.array([], pa.string())]) for column in table.columns]
        return columns if len(table) == len(texts) else [spread(column, good) for column in columns], reasons


def read_values(
    lines: bytes | pa.Buffer, names: Sequence[str], invalid: Callable[[pyarrow.csv.InvalidRow], str] | None = None
) -> pa.Table:
    """Read lines into columns of texts; null for a value without a character, not even a quote.

    Args:
        lines: the lines, each with its end.
        names: the columns' names.
        invalid: what to do with a line of another number of values, see `pyarrow.csv.ParseOptions`.
    """
    return pyarrow.csv.read_csv(
        pa.BufferReader(lines),
        pyarrow.csv.ReadOptions(use_threads=False, column_names=names, block_size=max(len(lines) + 1, 1024)),
        pyarrow.csv.ParseOptions(ignore_empty_lines=False, invalid_row_handler=invalid),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
        ),
    )


def count_values(line: str) -> int:
    """Return the number of values of a line; 0 if a quote is not closed."""
    return len(_VALUES.findall(line)) if _LINE.fullmatch(line) else 0


def _contains(texts: pa.Array, characters: bytes) -> bool:
    """Return whether a text has one of some ASCII characters; much faster than a pattern, which is tried on each."""
    values = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    return any((values == one).any() for one in characters)


def text_of(payload: bytes) -> str | None:
    """Return a payload's text; None if it is not UTF-8."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def _converted(kind: pa.DataType, values: pa.Array) -> pa.Array:
    """Convert the texts of a column.

    Raises:
        NotDecoded: at least one has no such value.
    """
    if kind in {pa.string(), pa.binary()}:
        return values.cast(kind)
    if kind == pa.timestamp("us"):
        return as_time(values, "ms")
    if kind == pa.bool_():
        if pc.any(_hopeless(kind, values)).as_py():
            raise NotDecoded("not a boolean")
        return pc.if_else(pc.is_valid(values), pc.is_in(values, pa.array(_TRUE)), pa.scalar(None, pa.bool_()))
    values = pc.ascii_trim(values, " \t")
    if pa.types.is_decimal(kind):
        return as_decimals(values, kind)
    if pa.types.is_integer(kind) and _contains(values, b"xX") and pc.any(_hopeless(kind, values)).as_py():
        raise NotDecoded("not a decimal number")  # Arrow reads hexadecimal ones, the largest as negative ones
    try:
        made = checked_times(values.cast(kind))
    except pa.ArrowException as error:
        raise NotDecoded(str(error)) from None
    if pa.types.is_floating(kind) and pc.any(_too_large(values, made)).as_py():
        raise NotDecoded("beyond the largest number of this type")
    return made


def _too_large(texts: pa.Array, numbers: pa.Array) -> pa.Array:
    """Return which texts with digits were read as infinite."""
    return pc.and_(pc.is_inf(numbers), pc.match_substring_regex(texts, "[0-9]"))


def _hopeless(kind: pa.DataType, values: pa.Array) -> pa.Array:
    """Return which texts certainly have no value of a type."""
    if kind == pa.timestamp("us"):
        return not_times(values, "ms")
    if kind == pa.bool_():
        return pc.and_(pc.is_valid(values), pc.invert(pc.is_in(values, pa.array(_TRUE + _FALSE))))
    if pa.types.is_decimal(kind):
        return _no_decimals(kind, pc.ascii_trim(values, " \t"))
    for is_kind, pattern in _LOOKS_LIKE:
        if is_kind(kind):
            return pc.invert(pc.match_substring_regex(pc.ascii_trim(values, " \t"), pattern))
    return none_of(len(values))


def _no_decimals(kind: pa.DataType, values: pa.Array) -> pa.Array:
    other = pc.invert(pc.fill_null(plain_decimals(values, kind), True))
    wrong = [decimal_in(text, kind) is None for text in values.filter(other).to_pylist()]
    return spread(pa.array(wrong, pa.bool_()), other)
