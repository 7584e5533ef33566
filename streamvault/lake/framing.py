"""Headers that serializers write before each record: how events are recognized by them, and what is left without."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streamvault.lake.payloads import Parsed, PayloadParser, completed, spread, without_header
from streamvault.lake.reports import Framing


class Header(NamedTuple):
    """A header.

    Attributes:
        marks: what an event begins with that has one.
        size: bytes before the record.
        seen: what an event of another framing that has one probably begins with: ids are small.
        name: its name for messages.
    """

    marks: tuple[bytes, ...]
    size: int
    seen: tuple[bytes, ...]
    name: str


HEADERS: dict[Framing, Header] = {
    "pravega": Header((b"\x01",), 5, (b"\x01\x00",), "header of Pravega's serializers"),
    "confluent": Header((b"\x00",), 5, (b"\x00\x00",), "header of Confluent's serializers"),
    "avro": Header((b"\xc3\x01", b"Obj\x01"), 10, (b"\xc3\x01", b"Obj\x01"), "header of Avro"),
}
"""Pravega: a byte 1 and an encoding's id; Confluent: a byte 0 and a schema's id, both big-endian integers of 32 bits.

Avro: ``c3 01`` and the schema's fingerprint (`avro.fingerprint`), or an Avro file of one record, which has its schema.
"""


def has_header(framing: Framing, payloads: pa.Array) -> pa.Array:
    """Return which payloads have the header of a framing."""
    header = HEADERS[framing]
    return pc.and_(_begin_with(payloads, header.marks), pc.greater_equal(pc.binary_length(payloads), header.size))


def sample_records(framing: Framing, payloads: Iterable[bytes]) -> list[bytes]:
    """Return the payloads of a sample without their headers; those without one are left out."""
    if framing == "none":
        return list(payloads)
    header = HEADERS[framing]
    return [one[header.size :] for one in payloads if one.startswith(header.marks) and len(one) >= header.size]


def guess(framing: Framing, payloads: pa.Array) -> pa.Array:
    """Return, for each payload, which header it seems to have, other than that of a framing; null if none."""
    found = pa.nulls(len(payloads), pa.string())
    for other, header in HEADERS.items():
        if other != framing:
            text = f"seems to have a {header.name} (--framing {other})"
            seen = pc.and_(_begin_with(payloads, header.seen), has_header(other, payloads))
            found = pc.coalesce(found, pc.if_else(seen, pa.scalar(text), pa.scalar(None, pa.string())))
    return found


def with_hints(framing: Framing, payloads: pa.Array, parsed: Parsed) -> pa.Array:
    """Return the reasons of payloads; where no value was decoded, they begin with the header that there seems to be."""
    wrong = parsed.reasons.is_valid()
    for column in parsed.columns:
        wrong = pc.and_(wrong, column.is_null())
    if not pc.any(wrong).as_py():
        return parsed.reasons
    hints = spread(guess(framing, payloads.filter(wrong)), wrong)
    return pc.coalesce(pc.binary_join_element_wise(hints, parsed.reasons, pa.scalar(": ")), parsed.reasons)


def _begin_with(payloads: pa.Array, marks: Iterable[bytes]) -> pa.Array:
    found = pa.scalar(False)
    for mark in marks:
        found = pc.or_(found, pc.starts_with(payloads, mark))
    return found


class FramedPayloads:
    """A `lake.payloads.PayloadParser` of records with a header of Pravega or Confluent.

    Args:
        framing: whose header.
        records: parses the records.
    """

    def __init__(self, framing: Framing, records: PayloadParser) -> None:
        self._framing, self._records = framing, records

    def parse(self, payloads: pa.Array) -> Parsed:
        """See `PayloadParser.parse`."""
        header = HEADERS[self._framing]
        framed = has_header(self._framing, payloads)
        reasons = pc.if_else(framed, pa.scalar(None, pa.string()), pa.scalar(f"no {header.name}"))
        return completed(self._parsed(payloads.filter(framed), header.size), reasons)

    def _parsed(self, payloads: pa.Array, size: int) -> Parsed:
        """Decode payloads that all have the header, of a size."""
        return self._records.parse(without_header(payloads, size))
