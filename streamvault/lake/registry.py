"""Payloads of Pravega's Schema Registry: a group's schemas as columns, and records decoded by their encodings' ids."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa

from streamvault.common.errors import Usage
from streamvault.lake.avro import AvroPayloads, avro_types
from streamvault.lake.compressed import expanded, of_gzip, of_snappy
from streamvault.lake.framing import FramedPayloads
from streamvault.lake.json_payloads import JsonPayloads, json_schema_types
from streamvault.lake.payloads import (
    NotDecoded,
    Parsed,
    PayloadParser,
    joined,
    numbers,
    parsed_as,
    texts,
    without_header,
)
from streamvault.lake.protobuf_payloads import ProtobufPayloads, protobuf_types
from streamvault.lake.table import TableColumn, arrow_type, columns_for, hive_type
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup

MOST_PARSERS = 200
"""Parsers that are kept at once."""

_TYPES: dict[str, Callable[[bytes, str], dict[str, pa.DataType | None]]] = {
    "Avro": avro_types,
    "Protobuf": protobuf_types,
    "Json": json_schema_types,
}


def columns_of(group: SchemaGroup) -> tuple[tuple[TableColumn, ...], str, tuple[str, ...], tuple[str, ...]]:
    """Return the columns of a group's types; the schemas to read with, by type; the fields without a column.

    The newest schema of each type that can be understood decides. The last value is a warning for each newer one.

    Raises:
        Usage: there is no field with a column.
    """
    newest: dict[str, SchemaEntry] = {}
    types: dict[str, pa.DataType | None] = {}
    warnings: dict[tuple[str, int], str] = {}
    places = {name: number for number, name in enumerate(dict.fromkeys(one.type for one in group.entries))}
    for one in sorted(group.entries, key=lambda one: (places[one.type], -one.version)):
        if one.type in newest or (one.type, one.version) in warnings:
            continue
        try:
            with _registered():
                found = _types_of(one)
        except Usage as error:
            warnings[one.type, one.version] = f"version {one.version} of {one.type} gives no columns: {error}"
            continue
        newest[one.type] = one
        for field, kind in found.items():
            types[field] = kind if types.get(field, kind) == kind else None
    fields = {field: hive_type(kind) for field, kind in types.items() if kind is not None}
    if not fields:
        where = "; ".join((group.group, *list(warnings.values())[:1]))
        raise Usage("the group's schemas have no field with a column", where=where, todo="Omit --decode.")
    readers = {name: _reader(one) for name, one in newest.items() if one.format != "Json"}
    left_out = tuple(field for field in types if field not in fields)
    return columns_for(fields), json.dumps(readers) if readers else "", left_out, tuple(warnings.values())


def _reader(entry: SchemaEntry) -> Any:
    """Return a schema as a table's options have it: Avro as JSON, Protobuf in base64."""
    return json.loads(_schema_of(entry)) if entry.format == "Avro" else entry.data


def knows(group: SchemaGroup, readers: str) -> bool:
    """Return whether a group has all schemas that a table reads with (`TableOptions.avro`), so that its are no older.

    An archive may have noted a group as it was before the table asked the registry.
    """
    known = set[tuple[str, str]]()
    for one in group.entries:
        with suppress(Usage), _registered():
            known.add((one.type, str(_reader(one))))
    return {(name, str(one)) for name, one in json.loads(readers or "{}").items()} <= known


@contextmanager
def _registered() -> Iterator[None]:
    """Use a schema of a registry, which may have accepted any.

    Raises:
        Usage: the schema is malformed.
    """
    try:
        yield
    except (TypeError, ValueError, AttributeError, LookupError, pa.ArrowException) as error:
        where = str(error).encode("ascii", "backslashreplace").decode()[:200]
        raise Usage("a schema that is not valid", where=where) from None


def left_out_warning(fields: Sequence[str]) -> tuple[str, ...]:
    """Return a warning for fields without a column; none if there are none."""
    if not fields:
        return ()
    few = ", ".join(fields[:5]) + (" …" if len(fields) > 5 else "")
    return (f"fields that fit no column stay in the payload only: {few}",)


def _types_of(entry: SchemaEntry) -> dict[str, pa.DataType | None]:
    """Return the type of each field of a schema; None if no column can hold it.

    Raises:
        Usage: the schema is not valid, or of a format without fields.
    """
    if entry.format not in _TYPES:
        raise Usage("a format that is not decoded", where=entry.format)
    return _TYPES[entry.format](_schema_of(entry), entry.type)


def _schema_of(entry: SchemaEntry) -> bytes:
    try:
        return b64decode(entry.data)
    except ValueError:
        raise Usage("a schema that is not base64", where=f"encoding {entry.encoding}") from None


class RegisteredPayloads(FramedPayloads):
    """A `lake.payloads.PayloadParser` of records that Pravega's serializers wrote with a Schema Registry.

    Args:
        columns: the table's columns.
        readers: the schemas to read with, by type, as JSON text: of Avro, and of Protobuf in base64; empty for none.
        group: what the encodings' ids mean.
    """

    def __init__(self, columns: tuple[TableColumn, ...], readers: str, group: SchemaGroup | None) -> None:
        super().__init__("pravega", self)
        self._columns = columns
        self._encodings = {one.encoding: one for one in group.entries} if group else {}
        self._readers: dict[str, Any] = json.loads(readers) if readers else {}
        self._parsers: dict[int, PayloadParser] = {}

    def _parsed(self, payloads: pa.Array, size: int) -> Parsed:
        """See `FramedPayloads`."""
        if not len(payloads):
            return Undecodable(self._columns, "").parse(payloads)
        _, ends, data = payloads.buffers()
        starts = np.frombuffer(ends, np.int32)[payloads.offset : payloads.offset + len(payloads)]
        every = np.frombuffer(data, np.uint8)
        ids = sum(every[starts + at].astype(np.int64) << (8 * (size - 1 - at)) for at in range(1, size))
        ids = np.where(np.isin(ids, list(self._encodings)), ids, -1)  # all unknown ones are one part
        sorted_rows = np.argsort(ids, kind="stable")
        present, firsts = np.unique(ids[sorted_rows], return_index=True)
        parts = []
        for number, rows in zip(present.tolist(), np.split(sorted_rows, firsts[1:]), strict=True):
            parts.append(self._parser(number).parse(without_header(payloads.take(numbers(rows)), size)))
        order = numbers(np.argsort(sorted_rows))
        columns, reasons = joined(parts)
        return Parsed([column.take(order) for column in columns], reasons.take(order))

    def _parser(self, number: int) -> PayloadParser:
        if (parser := self._parsers.get(number)) is None:
            try:
                with _registered():
                    parser = self._made(number)
            except Usage as error:
                parser = Undecodable(self._columns, str(error))
            if len(self._parsers) >= MOST_PARSERS:
                self._parsers.clear()
            self._parsers[number] = parser
        return parser

    def _made(self, number: int) -> PayloadParser:
        """Return the parser for an encoding.

        Raises:
            Usage: no record of it can be decoded.
        """
        if (found := self._encodings.get(number)) is None:
            raise Usage("no schema is known for its encoding id, neither recorded in the archive nor from the registry")
        padded, schema = bool(found.codec), _schema_of(found)
        parser: PayloadParser
        if found.format != "Json":  # of which an event says what its fields are
            _types_of(found)  # what it raises is the reason
        newest = self._readers.get(found.type)  # which may be of the other format
        if found.format == "Avro":
            reader = json.dumps(newest) if isinstance(newest, dict) else ""
            parser = AvroPayloads(schema.decode(), self._columns, reader, padded=padded)
        elif found.format == "Protobuf":
            reader = newest if isinstance(newest, str) else ""
            parser = ProtobufPayloads(schema, found.type, self._columns, b64decode(reader), padded=padded)
        else:
            parser = JsonPayloads(self._columns)
        if found.codec not in _CODECS:
            raise Usage("an unknown codec", where=found.codec)
        return CompressedPayloads(found.codec, parser) if padded else parser


class Undecodable:
    """A `lake.payloads.PayloadParser` that decodes nothing.

    Args:
        columns: the table's columns.
        reason: why.
    """

    def __init__(self, columns: tuple[TableColumn, ...], reason: str) -> None:
        self._columns, self._reason = columns, reason

    def parse(self, payloads: pa.Array) -> Parsed:
        """See `PayloadParser.parse`."""
        count = len(payloads)
        return Parsed([pa.nulls(count, arrow_type(one.type)) for one in self._columns], texts(self._reason, count))


class CompressedPayloads:
    """A `lake.payloads.PayloadParser` of records that Pravega's serializers compressed.

    They compress the buffer that a record is in, with the zeros behind it.

    Args:
        codec: the codec's name.
        records: parses the records, and ignores zeros that follow one.
    """

    def __init__(self, codec: str, records: PayloadParser) -> None:
        self._expand, self._records = _CODECS[codec], records

    def parse(self, payloads: pa.Array) -> Parsed:
        """See `PayloadParser.parse`."""
        return parsed_as(payloads, self._record, self._records)

    def _record(self, payload: bytes) -> bytes:
        try:
            record = expanded(self._expand, payload)
        except NotDecoded as error:
            raise NotDecoded(f"not compressed as its encoding says: {error}") from None
        return record.rstrip(b"\0") if isinstance(self._records, JsonPayloads) else record


_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "": lambda data, _: data,
    "application/x-gzip": of_gzip,
    "application/x-snappy-framed": of_snappy,
}
"""By the names of the serializers. What they call framed is Snappy's plain format."""
