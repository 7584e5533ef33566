"""Interface of payload decoders, and the timestamps that they parse: ISO 8601 texts, numbers since 1970.

Arrow arrays from buffers.

`pyarrow.array` and `pyarrow.scalar` import pandas, where it is installed, to see whether their argument is of pandas.
It takes up to a second of each process, and a table has no other use for it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Return numbers as an array, which shares their memory."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def integers(value: int, count: int) -> pa.Array:
    """Return an array of ``count`` times the same 32-bit integer."""
    return numbers(np.full(count, value, np.int32))


def none_of(count: int) -> pa.Array:
    """Return an array of ``count`` times false."""
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bytes((count + 7) // 8))])


def texts(value: str, count: int) -> pa.Array:
    """Return an array of ``count`` times the same text."""
    data = value.encode()
    ends = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(len(data)))
    return pa.Array.from_buffers(pa.string(), count, [None, ends, pa.py_buffer(data * count)])


def binaries(values: Sequence[bytes]) -> pa.Array:
    """Return bytes as an array."""
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(one) for one in values], out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])


def text(value: str) -> pa.Scalar:
    """Return one text."""
    return texts(value, 1)[0]


PART, PARSED_BYTES = 8192, 4 * 1024 * 1024
"""Payloads that are parsed at once, and bytes of expanded records that are."""

FEW = 256
"""Values that are tried before all are converted."""

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
DATE = rf"^{_YEAR}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])$"
TIME = DATE[:-1] + r"(?:[ T][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2}(?:\.[0-9]*)?)?)?)?(?:[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?$"
"""What dates and timestamps look like; a few of those that do are still none (31 April)."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MOMENT = pa.timestamp("us")
_FIRST_DAY, _AFTER_LAST_DAY = -719_162, 2_932_897
"""0001-01-01 and 10000-01-01 in days since 1970: Python has no days outside, and engines show them differently."""

_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_MOST_SCALE = 76
"""Digits after the point that Arrow's wider decimals have; beyond, it reads outside of its tables."""

_MARK = codecs.BOM_UTF8
_ZONE = r"[Tt ].*(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})$"


class NotDecoded(ValueError):
    """A payload cannot be decoded; if there is only one, the message says why."""


class Parsed(NamedTuple):
    """Decoded payloads.

    Attributes:
        columns: the fields' values, an array for each column; null where a value is invalid, or the payload as a whole.
        reasons: for each payload, why it or some of its values are invalid, or null.
    """

    columns: list[pa.Array]
    reasons: pa.Array


class PayloadParser(Protocol):
    """Decoder for one format of payloads."""

    def parse(self, payloads: pa.Array) -> Parsed:
        """Decode payloads. The result for each is the same, whatever the others are."""


def parse_parts(
    payloads: pa.Array,
    kinds: Sequence[pa.DataType],
    whole: Callable[[pa.Array], list[pa.Array]],
    suspects: Sequence[Callable[[pa.Array], pa.Array]],
) -> Parsed:
    """Decode payloads with a parser that rejects all of a part if one of its payloads is invalid.

    After the first failure, the invalid payloads of a part are found before it is parsed, in one pass; those that are
    not found so are found by halving the part.

    Args:
        payloads: the payloads.
        kinds: the columns' types.
        whole: decodes a part, or raises `NotDecoded` if one of its payloads is invalid.
        suspects: each returns, for each payload, why it is certainly invalid, or null: only what ``whole`` would
            reject. The next one is asked only if what the one before left is still rejected.
    """
    parsed: list[Parsed] = []
    is_clean = True
    for start in range(0, len(payloads), PART):
        part = payloads[start : start + PART]
        clean = _attempted(part, whole) if is_clean else None
        is_clean = clean is not None
        parsed.append(clean or _sifted(part, kinds, whole, suspects))
    return joined(parsed or [_nothing(kinds)])


def _sifted(
    payloads: pa.Array,
    kinds: Sequence[pa.DataType],
    whole: Callable[[pa.Array], list[pa.Array]],
    suspects: Sequence[Callable[[pa.Array], pa.Array]],
) -> Parsed:
    if not suspects:
        return _halved(payloads, kinds, whole)
    reasons = suspects[0](payloads)
    left = payloads.filter(pc.is_null(reasons))
    return completed(_attempted(left, whole) or _sifted(left, kinds, whole, suspects[1:]), reasons)


def _attempted(payloads: pa.Array, whole: Callable[[pa.Array], list[pa.Array]]) -> Parsed | None:
    with suppress(NotDecoded):
        return Parsed(whole(payloads), pa.nulls(len(payloads), pa.string()))
    return None


def _halved(payloads: pa.Array, kinds: Sequence[pa.DataType], whole: Callable[[pa.Array], list[pa.Array]]) -> Parsed:
    """Decode all payloads at once; if that fails, decode each half by itself, down to the invalid ones."""
    if not len(payloads):
        return _nothing(kinds)
    try:
        return Parsed(whole(payloads), pa.nulls(len(payloads), pa.string()))
    except NotDecoded as error:
        if len(payloads) == 1:
            return Parsed([pa.nulls(1, kind) for kind in kinds], pa.array([str(error)]))
    middle = len(payloads) // 2
    return joined([_halved(half, kinds, whole) for half in (payloads[:middle], payloads[middle:])])


def _nothing(kinds: Sequence[pa.DataType]) -> Parsed:
    return Parsed([pa.array([], kind) for kind in kinds], pa.array([], pa.string()))


def joined(parts: Sequence[Parsed]) -> Parsed:
    """Return the parts of payloads, at least one, as a whole."""
    columns = [pa.concat_arrays(some) for some in zip(*(part.columns for part in parts), strict=True)]
    return Parsed(columns, pa.concat_arrays([part.reasons for part in parts]))


def completed(some: Parsed, reasons: pa.Array) -> Parsed:
    """Return all payloads: ``some``, in order, where there is no reason yet, and null where there is one."""
    rows = _rows(reasons.is_null())
    return Parsed([column.take(rows) for column in some.columns], pc.coalesce(reasons, some.reasons.take(rows)))


def decoded_each(payloads: pa.Array, decode: Callable[[bytes], Any]) -> tuple[list[Any], pa.Array]:
    """Decode payloads one by one; return what they contain, None if that cannot be decoded, and the reasons."""
    found: list[Any] = []
    reasons: list[str | None] = []
    for payload in payloads.to_pylist():
        try:
            found.append(decode(payload))
            reasons.append(None)
        except NotDecoded as error:
            found.append(None)
            reasons.append(" ".join(str(error).split()))
    return found, pa.array(reasons, pa.string())


def because(reasons: pa.Array, wrong: pa.Array, text: str) -> pa.Array:
    """Add a reason to those payloads that have none yet and are wrong (true; null is false)."""
    if not pc.any(wrong).as_py():
        return reasons
    return pc.coalesce(reasons, pc.if_else(wrong, pa.scalar(text), pa.scalar(None, pa.string())))


def also(reasons: pa.Array, wrong: pa.Array, what: str) -> pa.Array:
    """Add a reason to those payloads that are wrong (true; null is false), after the reasons they have."""
    if not pc.any(wrong).as_py():
        return reasons
    return all_reasons(reasons, pc.if_else(wrong, pa.scalar(what), pa.scalar(None, pa.string())))


def all_reasons(reasons: pa.Array, more: pa.Array) -> pa.Array:
    """Return the reasons of both arrays for each payload; null if it has none in either."""
    return pc.coalesce(pc.binary_join_element_wise(reasons, more, text("; ")), reasons, more)


def without_marks(payloads: pa.Array) -> pa.Array:
    """Remove the byte-order marks with which some editors begin a text; they are no part of its content."""
    if not pc.any(pc.starts_with(payloads, _MARK)).as_py():
        return payloads
    return pa.array([unmarked(payload) for payload in payloads.to_pylist()], payloads.type)


def unmarked(payload: bytes) -> bytes:
    """Remove the byte-order marks of one payload."""
    while payload.startswith(_MARK):
        payload = payload[len(_MARK) :]
    return payload


def without_header(payloads: pa.Array, size: int) -> pa.Array:
    """Return payloads without their first bytes, which all of them have: every second value of headers and records."""
    count = len(payloads)  # (binary_slice of Arrow 26 fails for some, with "Negative buffer resize")
    if not count:
        return payloads
    _, ends, data = payloads.buffers()
    starts = np.frombuffer(ends, np.int32)[payloads.offset : payloads.offset + count + 1]
    cuts = np.empty(2 * count + 1, np.int32)
    cuts[0::2] = starts
    cuts[1::2] = starts[:-1] + size
    both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(cuts), data])
    return both.take(numbers(np.arange(1, 2 * count, 2, dtype=np.int32)))


def as_lines(texts: pa.Array) -> pa.Buffer:
    """Return texts without nulls as one, each followed by a line feed."""
    ended = pc.binary_join_element_wise(texts, text(""), text("\n"))
    _, ends, values = ended.buffers()
    return values.slice(0, int(np.frombuffer(ends, np.int32)[len(ended)])) if len(ended) else pa.py_buffer(b"")


def spread(values: pa.Array, places: pa.Array) -> pa.Array:
    """Put values, in order, at the places that are true, and null at the others."""
    return values.take(_rows(places))


def parsed_as(payloads: pa.Array, record: Callable[[bytes], bytes], records: PayloadParser) -> Parsed:
    """Decode the records in payloads, `PARSED_BYTES` of records at a time: they may be far larger than the payloads.

    Args:
        payloads: the payloads.
        record: returns a payload's record, or raises `NotDecoded`.
        records: parses them.
    """
    parts: list[Parsed] = []
    found: list[bytes] = []
    reasons: list[str | None] = []
    size = 0
    for payload in payloads.to_pylist():
        try:
            found.append(record(payload))
            reasons.append(None)
            size += len(found[-1])
        except NotDecoded as error:
            reasons.append(str(error))
        if size >= PARSED_BYTES:
            parts.append(completed(records.parse(pa.array(found, pa.binary())), pa.array(reasons, pa.string())))
            found, reasons, size = [], [], 0
    parts.append(completed(records.parse(pa.array(found, pa.binary())), pa.array(reasons, pa.string())))
    return joined(parts)


def _rows(places: pa.Array) -> pa.Array:
    """Return, for each place, how many before it are true; null if it is not."""
    there = places.to_numpy(zero_copy_only=False)
    return pa.array(np.cumsum(there) - 1, pa.int64(), mask=~there)


def convert_each(
    values: pa.Array, convert: Callable[[pa.Array], pa.Array], hopeless: Callable[[pa.Array], pa.Array]
) -> tuple[pa.Array, pa.Array]:
    """Convert values one by one; return the results, and which values cannot be converted (their results are null).

    Args:
        values: the values.
        convert: converts values, each for itself; raises `NotDecoded` if one cannot be converted.
        hopeless: returns which values certainly cannot be converted; called only if the conversion failed.
    """
    try:
        convert(values[:FEW])  # where many are wrong, it is found here: Arrow writes a message for each of them
        return convert(values), none_of(len(values))
    except NotDecoded:
        wrong = pc.fill_null(hopeless(values), False)
    left = pc.if_else(wrong, pa.scalar(None, values.type), values)
    if pc.any(wrong).as_py():
        with suppress(NotDecoded):
            return convert(left), wrong
    if len(values) == 1:
        return convert(pa.nulls(1, values.type)), pa.array([True])
    middle = len(values) // 2
    halves = [convert_each(half, convert, hopeless) for half in (values[:middle], values[middle:])]
    return pa.concat_arrays([half[0] for half in halves]), pa.concat_arrays([half[1] for half in halves])


def beyond_calendar(values: pa.Array) -> pa.Array:
    """Return which values are, or contain, a date or timestamp outside the years 1 to 9999."""
    return _contain(values, _beyond)


def infinite_in(values: pa.Array) -> pa.Array:
    """Return which values are, or contain, an infinite number."""
    return _contain(values, _infinite)


def _contain(values: pa.Array, wanted: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return which values are, or contain, one that is wanted."""
    kind = values.type
    if not pa.types.is_nested(kind):
        return wanted(values)
    found = none_of(len(values))
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            found = pc.or_(found, _contain(pc.struct_field(values, index), wanted))
    elif (pa.types.is_list(kind) or pa.types.is_map(kind)) and len(values):
        inner = _contain(values.items if pa.types.is_map(kind) else values.values, wanted)
        counts = np.concatenate([[0], np.cumsum(inner.to_numpy(zero_copy_only=False))])
        ends = counts[values.offsets.to_numpy()]
        found = pc.and_(pc.greater(numbers(ends[1:]), numbers(ends[:-1])), values.is_valid())
    return found


def _beyond(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_date32(kind):
        return _outside(values.view(pa.int32()), 1)
    if pa.types.is_timestamp(kind):
        return _outside(values.view(pa.int64()), 86_400 * _PER_SECOND[kind.unit])
    return none_of(len(values))


def _infinite(values: pa.Array) -> pa.Array:
    if pa.types.is_floating(values.type):
        return pc.and_kleene(pc.is_inf(values), values.is_valid())
    return none_of(len(values))


def _outside(values: pa.Array, per_day: int) -> pa.Array:
    bounds = np.array(
        [_FIRST_DAY * per_day, _AFTER_LAST_DAY * per_day], np.int32 if values.type == pa.int32() else np.int64
    )
    low, high = numbers(bounds)
    return pc.and_kleene(pc.or_(pc.less(values, low), pc.greater_equal(values, high)), values.is_valid())


def checked_times(values: pa.Array) -> pa.Array:
    """Return values unchanged.

    Raises:
        NotDecoded: one is, or contains, a date or timestamp outside the years 1 to 9999.
    """
    if pc.any(beyond_calendar(values)).as_py():
        raise NotDecoded("a date or timestamp outside the years 1 to 9999")
    return values


def decimal_in(text: str, kind: pa.DataType) -> Decimal | None:
    """Return the decimal that a text is, if a type holds it exactly; else None.

    Arrow's own conversion of texts returns other numbers, and even ends the process, for numbers of many digits or with
    small exponents.
    """
    if not _DECIMAL.fullmatch(text):
        return None
    exact = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    try:
        value = Decimal(text)
        made = value.quantize(Decimal(1).scaleb(-kind.scale), context=exact)
    except (Inexact, InvalidOperation):
        return None
    return made if int(value.as_tuple().exponent) >= -_MOST_SCALE else None


def plain_decimals(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return which texts have no exponent, and no more digits on either side of the point than a type."""
    whole, fraction = kind.precision - kind.scale, kind.scale
    return pc.match_substring_regex(texts, rf"^[-+]?0*[0-9]{{0,{whole}}}(?:\.[0-9]{{0,{fraction}}})?$")


def as_decimals(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert texts to decimals; null stays null.

    Raises:
        NotDecoded: a text is no decimal that the type holds exactly.
    """
    plain = pc.or_kleene(plain_decimals(texts, kind), texts.is_null())
    if not pc.all(plain).as_py():
        made = [decimal_in(text, kind) for text in texts.filter(pc.invert(plain)).to_pylist()]
        if None in made:
            raise NotDecoded("not a decimal of this type")
        texts = pc.coalesce(spread(pa.array([f"{one:f}" for one in made], pa.string()), pc.invert(plain)), texts)
    try:
        return texts.cast(kind)
    except pa.ArrowException as error:
        raise NotDecoded(str(error)) from None


def not_times(values: pa.Array, unit: str) -> pa.Array:
    """Return which values are certainly no timestamps for `as_time`."""
    if pa.types.is_string(values.type):
        return pc.invert(pc.match_substring_regex(values, TIME))
    per_day = 86_400 * _PER_SECOND[unit]
    if pa.types.is_integer(values.type):
        least, most = max(_FIRST_DAY * per_day, -(2**63)), min(_AFTER_LAST_DAY * per_day, 2**63) - 1
        whole = values.cast(pa.int64())
        return pc.or_(pc.less(whole, least), pc.greater(whole, most))
    if pa.types.is_floating(values.type):
        values, first, after = values.cast(pa.float64()), float(_FIRST_DAY * per_day), float(_AFTER_LAST_DAY * per_day)
        return pc.invert(pc.and_(pc.greater_equal(values, first), pc.less(values, after)))
    return beyond_calendar(values)


def as_time(values: pa.Array, unit: str) -> pa.Array:
    """Convert values to timestamps in UTC, in microseconds (finer digits are cut off); null stays null.

    Args:
        values: ISO 8601 texts (UTC if without a zone), numbers since 1970, dates or timestamps.
        unit: unit of numbers: ``s``, ``ms``, ``us`` or ``ns``.

    Raises:
        NotDecoded: a value is not a timestamp, or outside the years 1 to 9999.
    """
    try:
        return checked_times(_time(values, unit))
    except pa.ArrowException as error:
        raise NotDecoded(str(error)) from None


def _time(values: pa.Array, unit: str) -> pa.Array:
    kind = values.type
    if pa.types.is_string(kind):
        return _of_texts(values)
    if pa.types.is_integer(kind):
        return _of_integers(values.cast(pa.int64()), unit)
    if pa.types.is_floating(kind):
        scaled = pc.multiply(values.cast(pa.float64()), 1_000_000 / _PER_SECOND[unit])
        return pc.floor(scaled).cast(pa.int64()).cast(_MOMENT)
    return values.cast(_MOMENT, safe=False)


def _of_integers(values: pa.Array, unit: str) -> pa.Array:
    per_second = _PER_SECOND[unit]
    if per_second > 1_000_000:
        # rounds towards zero, which is a microsecond late before 1970
        return pc.divide(values, per_second // 1_000_000).cast(_MOMENT)
    return pc.multiply_checked(values, 1_000_000 // per_second).cast(_MOMENT)


def _of_texts(values: pa.Array) -> pa.Array:
    short = pc.replace_substring_regex(values, r"(\.[0-9]{6})[0-9]+", r"\1")
    zoned = pc.match_substring_regex(short, _ZONE)
    nothing = pa.nulls(1, pa.string())[0]
    with_zone = pc.if_else(zoned, short, nothing).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    without = pc.if_else(zoned, nothing, short).cast(_MOMENT).cast(pa.int64())
    return pc.coalesce(with_zone, without).cast(_MOMENT)


def varint(payload: bytes, at: int) -> tuple[int, int]:
    """Return the number of variable length at a place of a payload, and where it ends.

    Raises:
        NotDecoded: it is incomplete.
    """
    value = shift = 0
    while at < len(payload) and shift < 70:
        value |= (payload[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if payload[at - 1] < 128:
            return value, at
    raise NotDecoded("a field is incomplete")
