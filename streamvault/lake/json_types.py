"""Which JSON values certainly do not fit a column. Arrow's parser decides about all others."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from streamvault.lake.payloads import DATE, TIME

_DATE, _TIME = re.compile(DATE), re.compile(TIME)
_NUMBER = re.compile(r"[ \t]*[-+]?[0-9]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?[ \t]*")
_RANGES = {kind: range(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1)) for kind in (pa.int32(), pa.int64())}


def wrong_start(kind: pa.DataType) -> str:
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


def cannot_be(kind: pa.DataType, value: Any, *, is_member: bool = False) -> bool:
    """Return whether a value of a payload certainly does not fit a column's type.

    Args:
        kind: the type.
        value: the value, as Python's parsers return it.
        is_member: whether it is inside a list or an object, where Arrow reads dates and timestamps itself.
    """
    if value is None:
        return False
    if pa.types.is_integer(kind):
        return type(value) is not int or value not in _RANGES[kind]
    plain = next((types for is_kind, types in _PLAIN if is_kind(kind)), None)
    if plain is not None:
        return type(value) not in plain
    if pa.types.is_decimal(kind):
        return type(value) is bool or (isinstance(value, str) and _NUMBER.fullmatch(value) is None)
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        return _cannot_hold(kind, value)
    return not is_member and _is_no_time(kind, value)


def _cannot_hold(kind: pa.DataType, value: Any) -> bool:
    if pa.types.is_list(kind):
        return not isinstance(value, list) or any(cannot_be(kind.value_type, one, is_member=True) for one in value)
    return not isinstance(value, dict) or any(
        cannot_be(member.type, value.get(member.name), is_member=True) for member in kind
    )


_PLAIN = (
    (pa.types.is_floating, {int, float}),
    (pa.types.is_boolean, {bool}),
    (pa.types.is_string, {str}),
    (pa.types.is_binary, {str}),
)


def _is_no_time(kind: pa.DataType, value: Any) -> bool:
    """Return whether a value certainly is no date or timestamp; nothing is certain about other types."""
    looks_like = {pa.date32(): _DATE, pa.timestamp("us"): _TIME}.get(kind)
    return looks_like is not None and (type(value) is not str or looks_like.match(value) is None)
