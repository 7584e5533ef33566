"""Protobuf: a table's columns from a descriptor set, and payloads that are single messages without a header."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from streamvault.common.errors import Usage
from streamvault.lake.avro import ColumnCast, column_of
from streamvault.lake.payloads import NotDecoded, Parsed, PayloadParser, also, decoded_each, parsed_as, varint
from streamvault.lake.table import Nesting, TableColumn, arrow_type, misfit, unfit

_TIMESTAMP = "google.protobuf.Timestamp"
_PLAIN = {
    "double": pa.float64(),
    "float": pa.float32(),
    "int64": pa.int64(),
    "sint64": pa.int64(),
    "sfixed64": pa.int64(),
    "uint64": pa.decimal128(20, 0),
    "fixed64": pa.decimal128(20, 0),
    "int32": pa.int32(),
    "sint32": pa.int32(),
    "sfixed32": pa.int32(),
    "uint32": pa.int64(),
    "fixed32": pa.int64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
}
"""By the names of Protobuf's types. No other type holds all numbers of 64 bits without a sign."""


def protobuf_types(schema: bytes, message: str) -> dict[str, pa.DataType | None]:
    """Return the column type of each field of a message; None if no column can hold it.

    Args:
        schema: a file descriptor set.
        message: the message's full name.

    Raises:
        Usage: the schema is not valid, or has no such message.
    """
    types = {field.name: _type_of(field, Nesting()) for field in _message(schema, message).fields}
    return {name: None if kind is None or unfit(kind) else kind for name, kind in types.items()}


def declared_schema(text: str, message: str | None) -> tuple[bytes, str]:
    """Return the file descriptor set that a caller's schema is, and the full name of the message in it.

    Args:
        text: in base64 a descriptor set, as protoc writes it, or the descriptor of one file, as Confluent's registry
            returns it (``format=serialized``); or that registry's answer, which is JSON.
        message: the message's full name; None for the first one of the (last) file.

    Raises:
        Usage: it is none of these, or has no message.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from google.protobuf.unknown_fields import UnknownFieldSet  # noqa: PLC0415

    with suppress(ValueError):
        answer = json.loads(text)
        text = str(answer["schema"]) if isinstance(answer, dict) and "schema" in answer else text
    try:
        data = b64decode("".join(text.split()), validate=True)
        with suppress(DecodeError):
            found = FileDescriptorSet.FromString(data)
            if found.file and not UnknownFieldSet(found) and all(one.name for one in found.file):
                return data, message or _first(found.file[-1])
        file = FileDescriptorProto.FromString(data)
    except (ValueError, DecodeError):
        todo = (
            "Give what protoc --include_imports --descriptor_set_out=FILE writes, or what Confluent's registry "
            "returns for /schemas/ids/ID/schema?format=serialized."
        )
        raise Usage("the schema is not a Protobuf descriptor", where=text[:80], todo=todo) from None
    file.name = file.name or "schema.proto"
    return FileDescriptorSet(file=[file]).SerializeToString(), message or _first(file)


def _first(file: Any) -> str:
    """Return the full name of the first message of a file."""
    if not file.message_type:
        raise Usage("the schema has no message", where=file.name)
    name = file.message_type[0].name
    return f"{file.package}.{name}" if file.package else name


def _message(schema: bytes, message: str) -> Any:
    """Return the descriptor of a message. Files of Protobuf itself, which sets usually lack, are added."""
    from google.protobuf import (  # noqa: PLC0415  (they take a moment)
        any_pb2,
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        empty_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    known = (any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    files = {module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb for module in known}
    pool = descriptor_pool.DescriptorPool()
    try:
        left = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(schema).file}
        for name, data in files.items():
            left.setdefault(name, descriptor_pb2.FileDescriptorProto.FromString(data))
        _check_imports(left)
        while left:
            ready = [file for file in left.values() if not left.keys() & {*file.dependency}]
            for file in ready:
                pool.AddSerializedFile(file.SerializeToString())
                del left[file.name]
            if not ready:
                break  # files that import each other
        return pool.FindMessageTypeByName(message)
    except Usage:
        raise
    except KeyError:
        raise Usage("the Protobuf schema has no such message", where=message) from None
    except Exception as error:  # noqa: BLE001  (its errors have no common base class)
        raise Usage("not a Protobuf schema", where=f"{message}: {error}"[:200]) from None


def _check_imports(files: dict[str, Any]) -> None:
    lost = {one for file in files.values() for one in file.dependency} - files.keys()
    if lost:
        todo = "Give a schema with all files (protoc --include_imports)."
        raise Usage("the Protobuf schema imports files that it lacks", where=", ".join(sorted(lost))[:200], todo=todo)


def _type_of(field: Any, place: Nesting) -> pa.DataType | None:
    """Return the type of a field's values at a place in the messages around it.

    None if there is none, as it contains itself or has too many members.
    """
    inner = field.message_type
    inside = place.into() if inner is None else place.into(inner.full_name)
    if inside is None:
        return None
    if inner is not None and inner.GetOptions().map_entry:
        key, value = (_type_of(inner.fields_by_name[name], inside) for name in ("key", "value"))
        return None if key is None or value is None else pa.map_(key, value)
    kind = _single(field, inside)
    return pa.list_(kind) if kind is not None and field.is_repeated else kind


def _single(field: Any, inside: Nesting) -> pa.DataType | None:
    inner = field.message_type
    if inner is None:
        return _PLAIN[_name_of(field)]
    if inner.full_name == _TIMESTAMP:
        return pa.timestamp("us")
    members = [(member.name, _type_of(member, inside)) for member in inner.fields]
    return None if any(kind is None for _, kind in members) else pa.struct(members)


def _name_of(field: Any) -> str:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto  # noqa: PLC0415

    return str(FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_").lower()


class ProtobufPayloads:
    """A `lake.payloads.PayloadParser` for Protobuf.

    A field that is not set, and whose being set is not recorded, has its default value; others are null.

    Args:
        schema: a file descriptor set: the writer's.
        message: the message's full name.
        columns: the table's columns; those without a field of the same name are null.
        reader: the file descriptor set to read with, by the fields' numbers; what it lacks is read with the writer's.
        padded: zeros may follow a message.

    Raises:
        Usage: as `protobuf_types`.
    """

    def __init__(
        self,
        schema: bytes,
        message: str,
        columns: tuple[TableColumn, ...],
        reader: bytes = b"",
        *,
        padded: bool = False,
    ) -> None:
        from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415

        types = [_message(one, message) for one in (reader, schema) if one]
        self._make: list[Any] = [GetMessageClass(one) for one in types]
        self._padded = padded
        self._columns = []
        for column in columns:
            which, field = _read_with(types, column.field)
            kind = arrow_type(column.type)
            own = None if field is None else _type_of(field, Nesting())
            self._columns.append((which, field, column.field, ColumnCast(kind if own is None else own, kind)))
        self._make = self._make[: 1 + max((one[0] for one in self._columns), default=0)]

    def parse(self, payloads: pa.Array) -> Parsed:
        """See `PayloadParser.parse`."""
        messages, reasons = decoded_each(payloads, self._messages)
        columns = []
        for which, field, name, cast in self._columns:
            values = [None if some is None or field is None else _value(some[which], field) for some in messages]
            made, wrong = column_of(values, cast)
            columns.append(made)
            reasons = also(reasons, pa.array(wrong, pa.bool_()), misfit(name, cast.kind))
        return Parsed(columns, reasons)

    def _messages(self, payload: bytes) -> list[Any]:
        """Return the message of one payload, by each of the schemas that columns are read with."""
        try:
            content = payload[: _end_of(payload)] if self._padded else payload
            return [make.FromString(content) for make in self._make]
        except Exception as error:  # noqa: BLE001  (of the library, or of a text that is none)
            raise NotDecoded(f"not a Protobuf message of this schema: {error}") from None


class IndexedMessages:
    """A `lake.payloads.PayloadParser` of messages that follow their type's indexes, as Confluent's serializers write.

    They are the places of the type and of those around it, each in the one around it or in the file: how many there
    are, then each, as zigzag numbers of variable length; a single 0 is short for the file's first type.

    Args:
        schema: a file descriptor set.
        message: the message's full name; others are not decoded.
        records: parses the messages.

    Raises:
        Usage: as `protobuf_types`.
    """

    def __init__(self, schema: bytes, message: str, records: PayloadParser) -> None:
        self._message, self._records = _message(schema, message), records

    def parse(self, payloads: pa.Array) -> Parsed:
        """See `PayloadParser.parse`."""
        return parsed_as(payloads, self._record, self._records)

    def _record(self, payload: bytes) -> bytes:
        """Return a payload's message.

        Raises:
            NotDecoded: it has no indexes, or is of another type.
        """
        count, at = _index(payload, 0)
        if count > len(payload):
            raise NotDecoded("the indexes of the message are incomplete")
        path = []
        for _ in range(count):
            index, at = _index(payload, at)
            path.append(index)
        types = [*_types_at(self._message.file, tuple(path) or (0,))]
        mine = self._message.full_name
        if not types:
            raise NotDecoded(f"the schema has no message at {path or [0]}")
        if {*types} != {mine}:
            raise NotDecoded(f"a message {' or '.join(dict.fromkeys(types))}, not {mine}")
        return payload[at:]


def _index(payload: bytes, at: int) -> tuple[int, int]:
    try:
        value, at = varint(payload, at)
    except NotDecoded:
        raise NotDecoded("the indexes of the message are incomplete") from None
    if value & 1:
        raise NotDecoded("the indexes of the message are negative")
    return value >> 1, at


def _types_at(file: Any, path: tuple[int, ...]) -> Iterator[str]:
    """Yield the full names of the types that indexes may stand for: some clients count the entries of maps as types."""
    for counts_entries in (False, True):
        types, found = [*file.message_types_by_name.values()], None
        for index in path:
            kinds = [one for one in types if counts_entries or not one.GetOptions().map_entry]
            found = kinds[index] if index < len(kinds) else None
            types = [] if found is None else [*found.nested_types]
        if found is not None:
            yield str(found.full_name)


_WIDER = {("int32", "int64"), ("sint32", "sint64"), ("uint32", "uint64"), ("uint32", "int64"), ("string", "bytes")}


def _read_with(types: list[Any], name: str) -> tuple[int, Any]:
    """Return with which of the message types, the newest and the writer's, a field is read, and the field there."""
    newest = types[0].fields_by_name.get(name)
    if newest is None:
        return len(types) - 1, types[-1].fields_by_name.get(name)
    written = types[-1].fields_by_number.get(newest.number)
    # else Protobuf takes values of another type for others, or for none
    return (0, newest) if written is None or _is_alike(written, newest, ()) else (len(types) - 1, written)


def _is_alike(written: Any, newest: Any, outer: tuple[str, ...]) -> bool:
    """Return whether all values that were written as one field's can be read as another one's."""
    kinds, inner, other = (_name_of(written), _name_of(newest)), written.message_type, newest.message_type
    if (written.is_repeated and not newest.is_repeated) or (kinds[0] != kinds[1] and kinds not in _WIDER):
        return False
    if inner is None or inner.full_name in outer:
        return True
    if inner.GetOptions().map_entry != other.GetOptions().map_entry or _TIMESTAMP in {inner.full_name, other.full_name}:
        return bool(inner.full_name == other.full_name)
    members = ((one, other.fields_by_number.get(one.number)) for one in inner.fields)
    return all(its is None or _is_alike(one, its, (*outer, inner.full_name)) for one, its in members)


def _value(message: Any, field: Any) -> Any:
    """Return a field's value, as Arrow takes it; None if it is not set."""
    if field.has_presence and not message.HasField(field.name):
        return None
    value, inner = getattr(message, field.name), field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        entry = inner.fields_by_name["value"]
        return {key: _plain(value[key], entry) for key in sorted(value)}
    return [_plain(one, field) for one in value] if field.is_repeated else _plain(value, field)


def _plain(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        return value.seconds * 1_000_000 + value.nanos // 1_000
    return {member.name: _value(value, member) for member in field.message_type.fields}


def _end_of(payload: bytes) -> int:
    """Return where a message ends that zeros follow; no field's tag begins with a zero.

    Raises:
        NotDecoded: a field is incomplete.
    """
    at = 0
    while at < len(payload) and payload[at]:
        tag, at = varint(payload, at)
        if tag & 7 == 2:
            length, at = varint(payload, at)
            at += length
        elif tag & 7 == 0:
            _, at = varint(payload, at)
        else:
            at += {1: 8, 5: 4}.get(tag & 7, 0)
    if at > len(payload) or any(payload[at:]):
        raise NotDecoded("a field is incomplete")
    return at
