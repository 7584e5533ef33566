"""Infer the columns of payloads from a bounded sample."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from streamvault.common.errors import Usage
from streamvault.lake.csv_payloads import count_values, read_values, text_of
from streamvault.lake.payloads import unmarked
from streamvault.lake.reports import Decode
from streamvault.lake.table import TableColumn, columns_for, hive_type, unfit
from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.framing import NotAnEvent

P = TypeVar("P")
Block = bytes | memoryview

SAMPLE_EVENTS = 2000
"""Maximum events in the sample."""

SAMPLE_PLACES = 8
"""Maximum places that the sample is taken from, spread over all."""

SAMPLE_BYTES = 4 * 1024 * 1024
"""Maximum bytes read at each place."""

MAX_COLUMNS = 500

NEARLY_ALL = 0.9
"""Minimum share of a field's values in the sample that must have one type."""

_INT64 = range(-(2**63), 2**63)
_EXACT_IN_DOUBLE = range(-(2**53), 2**53 + 1)

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,3})?")
_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)
_BOOLEANS = {"true", "True", "TRUE", "false", "False", "FALSE"}


class Inferred(NamedTuple):
    """The columns, and the fields without a column because they have several types; these stay in the payload only."""

    columns: tuple[TableColumn, ...]
    left_out: tuple[str, ...]


def sample(places: Sequence[P], read: Callable[[P], tuple[EventSplitter, Iterable[Block]]]) -> Iterator[bytes]:
    """Yield sample payloads: the first ones at some places, spread over all.

    Args:
        places: where events begin.
        read: returns, for a place, a splitter and the bytes from there on, cut anywhere.
    """
    chosen = places[:: max(1, -(-len(places) // SAMPLE_PLACES))]
    share = SAMPLE_EVENTS // max(1, len(chosen))
    for place in chosen:
        splitter, blocks = read(place)
        taken, fed = 0, 0
        with suppress(NotAnEvent):  # the handoff itself reports it
            for block in blocks:
                fed += len(block)
                for _, payload in splitter.events(block):
                    if taken < share:
                        taken += 1
                        yield bytes(payload)
                if taken >= share or fed >= SAMPLE_BYTES:
                    break


def infer_columns(decode: Decode, payloads: Iterable[bytes]) -> Inferred:
    """Infer the columns of payloads.

    Numbers become ``bigint`` or ``double`` if these hold all of the sample unchanged. Texts stay texts, even if they
    look like dates, as later ones may not; so do numbers of CSV with superfluous zeros at the beginning.

    Raises:
        Usage: no payload of the sample can be decoded, or none has a field.
    """
    held = [unmarked(payload) for payload in payloads]
    fields = _json_fields(held) if decode == "json" else _csv_fields(held)
    if not fields:
        todo = "Declare the columns with --schema, or omit --decode."
        raise Usage(f"no {decode.upper()} with fields in a sample of {len(held)} events", todo=todo)
    plain = {name: kind for name, kind in fields.items() if kind is not None}
    left_out = [name for name in fields if name not in plain]
    kept, beyond = list(plain)[:MAX_COLUMNS], list(plain)[MAX_COLUMNS:]
    return Inferred(columns_for({field: hive_type(plain[field]) for field in kept}), (*left_out, *beyond))


def _json_fields(payloads: Sequence[bytes]) -> dict[str, pa.DataType | None]:
    seen: dict[str, dict[str, tuple[int, Any]]] = {}
    for payload in payloads:
        try:
            found = json.loads(payload.decode())
            json.dumps(found, ensure_ascii=False).encode()  # no event with half of a surrogate pair is decoded
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            for name, value in found.items():
                _count(seen.setdefault(name, {}), _kind(value, 0))
    return {name: _type(_usual(kinds)) for name, kinds in seen.items()}


def _count(kinds: dict[str, tuple[int, Any]], kind: Any) -> None:
    """Count a value of a field; all lists count as one kind, whatever their elements."""
    if kind is None:
        return
    sort = next(iter(kind)) if isinstance(kind, dict) else str(kind)
    count, before = kinds.get(sort, (0, None))
    kinds[sort] = count + 1, _merged(before, kind)


def _usual(kinds: dict[str, tuple[int, Any]]) -> Any:
    """Return the type of nearly all values of a field; events with other values will not decode."""
    kinds = dict(kinds)
    numbers = [kinds.pop(sort) for sort in ("bigint", "exact", "double") if sort in kinds]
    if numbers:
        merged = None
        for _, kind in numbers:
            merged = _merged(merged, kind)
        kinds["number"] = sum(count for count, _ in numbers), merged
    if not kinds:
        return None
    count, kind = max(kinds.values(), key=lambda one: one[0])
    return kind if count >= NEARLY_ALL * sum(one for one, _ in kinds.values()) else "mixed"


# The kind of a value: None (unknown), the name of a plain type, "exact" (a bigint that no double holds), {"struct": …},
# {"list": …}, or "mixed".


def _kind(value: Any, depth: int) -> Any:  # noqa: PLR0911  (one for each of JSON's types)
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return ("bigint" if value in _EXACT_IN_DOUBLE else "exact") if value in _INT64 else "mixed"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return "string"
    if depth > 10:
        return "mixed"
    if isinstance(value, list):
        inner: Any = None
        for one in value:
            inner = _merged(inner, _kind(one, depth + 1))
        return {"list": inner}
    return {"struct": {name: _kind(inner, depth + 1) for name, inner in value.items()}}


def _merged(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return one if other is None else other
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        if "list" in one:
            return {"list": _merged(one["list"], other["list"])}
        names = {**one["struct"], **other["struct"]}
        return {"struct": {name: _merged(one["struct"].get(name), other["struct"].get(name)) for name in names}}
    if one == other:
        return one
    both = {str(one), str(other)}
    return "double" if both == {"bigint", "double"} else "exact" if both == {"bigint", "exact"} else "mixed"


def _type(kind: Any) -> pa.DataType | None:
    """Return the column type; None if no column can hold the values."""
    plain = {
        "boolean": pa.bool_(),
        "bigint": pa.int64(),
        "exact": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
    }
    if kind is None:
        return pa.string()
    if isinstance(kind, str):
        return plain.get(kind)
    if "list" in kind:
        inner = _type(kind["list"])
        return None if inner is None else pa.list_(inner)
    fields = {name: _type(inner) for name, inner in kind["struct"].items()}
    # members that no engine can name stay in the payload only; an object with many keys is a map, not a struct
    usable = {
        name: inner for name, inner in fields.items() if inner is not None and not unfit(pa.struct([(name, inner)]))
    }
    found = pa.struct(list(usable.items()))
    return found if len(usable) <= MAX_COLUMNS and not unfit(found) else None


def _csv_fields(payloads: Sequence[bytes]) -> dict[str, pa.DataType | None]:
    lines = [line for payload in payloads if (line := _line(payload)) is not None]
    counts = [count_values(line) for line in lines]
    if not counts:
        return {}
    usual = max(set(counts), key=counts.count)
    same = [line for line, count in zip(lines, counts, strict=True) if count == usual]
    names = [f"c{number + 1}" for number in range(usual)]
    joined = ("\n".join(same) + "\n").encode()
    table = read_values(joined, names)
    return {name: _type_of_texts({*table[name].to_pylist()} - {None}) for name in names}


def _type_of_texts(values: set[str]) -> pa.DataType:
    """Return the type that holds values as they are written."""
    if values and values <= _BOOLEANS:
        return pa.bool_()
    if values and all(_WHOLE.fullmatch(value) and int(value) in _INT64 for value in values):
        return pa.int64()
    numbers = {value for value in values if not _NO_NUMBER.fullmatch(value)}
    if numbers and all(_NUMBER.fullmatch(value) and _is_double(value) for value in numbers):
        return pa.float64()
    return pa.string()


def _is_double(number: str) -> bool:
    """Return whether a double has all of a number's digits."""
    return Decimal(repr(float(number))) == Decimal(number)  # an infinite one is not equal


def _line(payload: bytes) -> str | None:
    text = (text_of(payload) or "").rstrip("\r\n")
    return text if text and len(text.splitlines()) == 1 and count_values(text) else None
