"""Reads the page headers of a Parquet file, without decoding the pages.

Decoders rely on these headers, not on the footer's totals. Both are in Thrift's compact protocol
(https://parquet.apache.org/docs/file-format/, parquet.thrift). They are parsed here because pyarrow does not expose
page headers, and terminates the process on an unknown codec.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PLAIN = 0
DICTIONARY = frozenset({2, 8})
"""The encodings of a page of dictionary indices."""

_DATA, _DICTIONARY_PAGE, _DATA_V2 = 0, 2, 3
# kind of page -> field of its specific header, and the fields in that of the encoding and the number of values
_HEADERS = {_DATA: (5, 2, 1), _DICTIONARY_PAGE: (7, 2, 1), _DATA_V2: (8, 4, 1)}
_MAX_DEPTH = 8
_SKIPPED = {1: 0, 2: 0, 3: 1, 7: 8}  # booleans (the kind is the value), bytes, doubles -> their size

Value = int | dict[int, "Value"] | list["Value"] | None
Fields = dict[int, Value]


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """The part of a column in one row group.

    Attributes:
        column: the column's index among the schema's leaves, from 0.
        rows: number of rows of the row group.
        is_compressed: whether a codec is used.
        values: number of values in its pages, nulls included.
        encodings: the encodings of its pages.
    """

    column: int
    rows: int
    is_compressed: bool
    values: int
    encodings: frozenset[int]


def column_chunks(data: bytes) -> Iterator[ColumnChunk]:
    """Yield the column chunks, by row group. Time and memory are proportional to the file's size.

    Raises:
        ValueError: it is not a Parquet file, or the pages do not fill the extent given by the footer.
    """
    size = int.from_bytes(data[-8:-4], "little")
    if size > len(data) - 12 or data[-4:] != b"PAR1":
        raise ValueError("not a Parquet file")
    footer, _ = _struct(data, len(data) - 8 - size, _MAX_DEPTH)
    for group in _list(footer, 4):
        for number, chunk in enumerate(_list(_fields(group), 1)):
            about = _fields(_fields(chunk).get(3))
            begin = _number(about, 11 if 11 in about else 9)
            found = list(_pages(data, begin, begin + _number(about, 7)))
            yield ColumnChunk(
                column=number,
                rows=_number(_fields(group), 3),
                is_compressed=_number(about, 4) != 0,
                values=sum(values for values, _, is_dictionary in found if not is_dictionary),
                encodings=frozenset(encoding for _, encoding, _ in found),
            )


def _pages(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Yield each page's number of values and encoding, and whether it is a dictionary."""
    if not 0 <= at <= end <= len(data):
        raise ValueError("a column is outside the file")
    while at < end:
        header, at = _struct(data, at, _MAX_DEPTH)
        kind = _number(header, 1)
        if kind not in _HEADERS:
            raise ValueError("a page is of an unknown kind")
        field, encoding, count = _HEADERS[kind]
        own = _fields(header.get(field))
        yield _number(own, count), _number(own, encoding), kind == _DICTIONARY_PAGE
        at += _number(header, 3)
    if at != end:
        raise ValueError("a page is truncated")


def _number(fields: Fields, field: int) -> int:
    value = fields.get(field)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"field {field} is not a number")
    return value


def _fields(value: Value) -> Fields:
    return value if isinstance(value, dict) else {}


def _list(fields: Fields, field: int) -> list[Value]:
    value = fields.get(field)
    return value if isinstance(value, list) else []


def _struct(data: bytes, at: int, depth: int) -> tuple[Fields, int]:
    """Return a struct's fields by number, and its end; values that are not numbers, structs or lists are None."""
    fields: Fields = {}
    number = 0
    while head := _byte(data, at):
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        fields[number], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Value, int]:
    if kind in _SKIPPED:
        return None, at + _SKIPPED[kind]
    if kind in {4, 5, 6}:
        return _integer(data, at)
    if kind == 8:  # binary: names and statistics
        size, at = _unsigned(data, at)
        return None, at + size
    if kind in {9, 10} and depth:
        return _values(data, at, depth - 1)
    if kind == 12 and depth:
        return _struct(data, at, depth - 1)
    raise ValueError("a header has a field of an unknown type")


def _values(data: bytes, at: int, depth: int) -> tuple[Value, int]:
    """Return a list's values, and its end."""
    head = _byte(data, at)
    size, at = (head >> 4, at + 1) if head < 0xF0 else _unsigned(data, at + 1)
    values: list[Value] = []
    for _ in range(size):
        if head & 15 in {1, 2}:  # in a list, a boolean takes a byte
            value, at = None, at + 1
        else:
            value, at = _value(data, at, head & 15, depth)
        if at > len(data):
            raise ValueError("a list is truncated")
        values.append(value)
    return values, at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = _byte(data, at)
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number is too long")


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise ValueError("a header is truncated")
    return data[at]
