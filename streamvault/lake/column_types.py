"""The types of a table's columns, in Hive's notation, which Athena and Glue accept unchanged.

``boolean int bigint float double string binary date timestamp decimal(P,S) array<T> map<K,V> struct<name:T,…>``. A
``timestamp`` is in UTC and has microseconds: Hive tables have no type with a time zone.
"""

from __future__ import annotations

import re

import pyarrow as pa

from streamvault.common.errors import Usage

_TODO = (
    "Use boolean, int, bigint, float, double, string, binary, date, timestamp, decimal(P,S), array<T>, map<K,V> "
    "or struct<name:T>."
)
_PLAIN: dict[str, tuple[pa.DataType, str]] = {
    "boolean": (pa.bool_(), "boolean"),
    "int": (pa.int32(), "integer"),
    "bigint": (pa.int64(), "bigint"),
    "float": (pa.float32(), "real"),
    "double": (pa.float64(), "double"),
    "string": (pa.string(), "varchar"),
    "binary": (pa.binary(), "varbinary"),
    "date": (pa.date32(), "date"),
    "timestamp": (pa.timestamp("us"), "timestamp(6)"),
}
_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_DEEPEST = 20


def arrow_type(text: str) -> pa.DataType:
    """Parse a type into an Arrow type.

    Raises:
        Usage: it is not a valid type.
    """
    squeezed = "".join(text.split())
    if squeezed.count("<") > _DEEPEST:
        raise Usage("the column type is nested too deeply", where=text[:100])
    found = _arrow(squeezed)
    if found is None:
        raise Usage("not a valid column type", where=repr(text[:100]), todo=_TODO)
    return found


def hive_type(kind: pa.DataType, *, quoted: bool = False) -> str:
    """Return an Arrow type (one that `arrow_type` returns) in Hive's notation.

    Args:
        kind: the type.
        quoted: put struct members in backquotes, as statements need; catalogs take them without.
    """
    quote = "`" if quoted else ""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_map(kind):
        return f"map<{hive_type(kind.key_type, quoted=quoted)},{hive_type(kind.item_type, quoted=quoted)}>"
    if pa.types.is_list(kind):
        return f"array<{hive_type(kind.value_type, quoted=quoted)}>"
    if pa.types.is_struct(kind):
        members = (f"{quote}{field.name}{quote}:{hive_type(field.type, quoted=quoted)}" for field in kind)
        return f"struct<{','.join(members)}>"
    return next(text for text, (arrow, _) in _PLAIN.items() if arrow == kind)


def trino_type(kind: pa.DataType) -> str:
    """Return an Arrow type in the notation of Trino and Presto."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_map(kind):
        return f"map({trino_type(kind.key_type)}, {trino_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"array({trino_type(kind.value_type)})"
    if pa.types.is_struct(kind):
        inner = ", ".join(f'"{field.name}" {trino_type(field.type)}' for field in kind)
        return f"row({inner})"
    return next(text for arrow, text in _PLAIN.values() if arrow == kind)


def _arrow(text: str) -> pa.DataType | None:
    if text in _PLAIN:
        return _PLAIN[text][0]
    decimal = _DECIMAL.fullmatch(text)
    if decimal and 1 <= int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    kind, bracket, rest = text.partition("<")
    return _nested(kind, _split(rest[:-1])) if bracket and rest.endswith(">") else None


def _nested(kind: str, parts: list[str]) -> pa.DataType | None:
    if kind == "struct":
        return _struct(parts)
    types = [_arrow(part) for part in parts]
    if None in types or (kind, len(types)) not in {("array", 1), ("map", 2)}:
        return None
    return pa.list_(types[0]) if kind == "array" else pa.map_(*types)


def _struct(parts: list[str]) -> pa.DataType | None:
    fields = []
    for part in parts:
        name, _, inner = part.partition(":")
        kind = _arrow(inner)
        if kind is None or not _NAME.fullmatch(name):
            return None
        fields.append(pa.field(name, kind))
    return pa.struct(fields)


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts, depth, begin = [], 0, 0
    for index, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            parts.append(text[begin:index])
            begin = index + 1
    return [*parts, text[begin:]]
