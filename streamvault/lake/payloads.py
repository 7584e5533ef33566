"""Interface of payload decoders, and the timestamps that they parse: ISO 8601 texts, numbers since 1970."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["NotDecoded", "PayloadParser", "as_time"]

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MOMENT = pa.timestamp("us")
_ZONE = r"[Tt ].*(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})$"


class NotDecoded(ValueError):
    """A payload cannot be decoded; if there is only one, the message says why."""


class PayloadParser(Protocol):
    """Decoder for one format of payloads."""

    def suspects(self, payloads: pa.Array) -> list[str | None]:
        """Return, for each payload, why it is certainly invalid, or None.

        Called only if a batch failed, to find most invalid payloads at once.
        """

    def parse(self, payloads: pa.Array) -> list[pa.Array]:
        """Return the fields' values, an array for each column.

        Raises:
            NotDecoded: at least one payload is invalid.
        """


def as_time(values: pa.Array, unit: str) -> pa.Array:
    """Convert values to timestamps in UTC, in microseconds (finer digits are cut off); null stays null.

    Args:
        values: ISO 8601 texts (UTC if without a zone), numbers since 1970, dates or timestamps.
        unit: unit of numbers: ``s``, ``ms``, ``us`` or ``ns``.

    Raises:
        NotDecoded: a value is not a timestamp.
    """
    kind = values.type
    try:
        if pa.types.is_string(kind):
            return _of_texts(values)
        if pa.types.is_integer(kind):
            return _of_integers(values.cast(pa.int64()), unit)
        if pa.types.is_floating(kind):
            scaled = pc.multiply(values.cast(pa.float64()), 1_000_000 / _PER_SECOND[unit])
            return pc.floor(scaled).cast(pa.int64()).cast(_MOMENT)
        return values.cast(_MOMENT, safe=False)
    except pa.ArrowException as error:
        raise NotDecoded(str(error)) from None


def _of_integers(values: pa.Array, unit: str) -> pa.Array:
    per_second = _PER_SECOND[unit]
    if per_second > 1_000_000:
        # rounds towards zero, which is a microsecond late before 1970
        return pc.divide(values, per_second // 1_000_000).cast(_MOMENT)
    return pc.multiply_checked(values, 1_000_000 // per_second).cast(_MOMENT)


def _of_texts(values: pa.Array) -> pa.Array:
    short = pc.replace_substring_regex(values, r"(\.[0-9]{6})[0-9]+", r"\1")
    zoned = pc.match_substring_regex(short, _ZONE)
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.if_else(zoned, short, nothing).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    without = pc.if_else(zoned, nothing, short).cast(_MOMENT).cast(pa.int64())
    return pc.coalesce(with_zone, without).cast(_MOMENT)
