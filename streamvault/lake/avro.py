"""Avro: a table's columns from a schema, and payloads that are single records of it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Context, Decimal
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa

from streamvault.common.errors import Usage
from streamvault.lake.avro_resolution import Resolved, ResolvedField, alone, branch_name, branches, resolved_fields
from streamvault.lake.compressed import expanded, of_bzip2, of_deflate, of_summed_snappy, of_zstandard
from streamvault.lake.payloads import NotDecoded, Parsed, all_reasons, also, checked_times, decoded_each
from streamvault.lake.table import (
    MOST_DIGITS,
    MOST_TYPES,
    Nesting,
    TableColumn,
    arrow_type,
    check_type,
    columns_for,
    has_decimals,
    hive_type,
    misfit,
    unfit,
)

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms"),
    ("long", "timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
"""Logical types with a column type of their own; values of others are what they are without it (times are numbers)."""

_PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_COMPLEX = ("record", "error", "array", "map", "enum", "fixed")

_SINGLE, _FILE, _RECORD_AT = b"\xc3\x01", b"Obj\x01", 10
"""What a record with its schema's fingerprint begins with, and an Avro file; where the record follows the former."""

_SYNC: dict[str, Any] = {"type": "fixed", "name": "sync", "size": 16}
_FILE_HEADER = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": _SYNC},
    ],
}
_FILE_BLOCK = {
    "type": "record",
    "name": "block",
    "fields": [
        {"name": "count", "type": "long"},
        {"name": "data", "type": "bytes"},
        {"name": "sync", "type": _SYNC},
    ],
}
_FILE_CODECS: dict[bytes, Callable[[bytes, int], bytes]] = {
    b"null": lambda data, _: data,
    b"deflate": of_deflate,
    b"snappy": of_summed_snappy,
    b"bzip2": of_bzip2,
    b"zstandard": of_zstandard,
}
_LONGEST_SCHEMA = 1024 * 1024
_MOST_TYPES = 5 * MOST_TYPES
"""Of all fields together."""

_EXACT = Context(prec=100)

_NO_FIELD = ResolvedField(None, Resolved("null"))
_NO_VALUE = (pa.ArrowException, TypeError, ValueError, OverflowError, NotDecoded)


def avro_columns(schema: str) -> tuple[TableColumn, ...]:
    """Return a column for each field of a record schema (JSON text).

    Raises:
        Usage: it is not a record schema, or has a type without a column type.
    """
    types = _types_of(_parsed(schema, expand=True))
    for field, kind in types.items():
        check_type(kind, "avro", field)
    return columns_for({field: hive_type(kind) for field, kind in types.items()})


def avro_types(schema: bytes, _: str = "") -> dict[str, pa.DataType | None]:
    """Return the column type of each field of a registered record schema; None if no column can hold it.

    Raises:
        Usage: it is not a record schema.
    """
    try:
        types = _types_of(_parsed(schema.decode(), expand=True), lenient=True)
    except UnicodeDecodeError:
        raise Usage("not an Avro schema", where=str(schema[:80])) from None
    return {field: None if kind is None or unfit(kind) else kind for field, kind in types.items()}


def _types_of(found: Any, *, lenient: bool = False) -> dict[str, pa.DataType]:
    """Return the type of each field of a record schema; timestamps have the schema's units.

    Args:
        found: the schema, in which only recursive types are still named.
        lenient: fields that no column can hold have the type None.

    Raises:
        Usage: as `avro_columns`.
    """
    if not isinstance(found, dict) or found.get("type") != "record" or not found["fields"]:
        raise Usage("the Avro schema does not describe a record with fields", where=str(found)[:80])
    fields = {str(field["name"]): field["type"] for field in found["fields"]}
    return {name: _column_type(one) if lenient else _type_of(one, Nesting()) for name, one in fields.items()}


def _column_type(schema: Any) -> pa.DataType | None:
    with suppress(Usage):
        return _type_of(schema, Nesting())
    return None


def _type_of(schema: Any, place: Nesting) -> pa.DataType:
    """Return the Arrow type for a schema at a place in the types around it; only recursive types are still named.

    Raises:
        Usage: there is no column type for it.
    """
    inside = None if isinstance(schema, str) and schema not in {*_PLAIN, "null"} else place.into()
    if inside is None:
        raise Usage("a column cannot hold a recursive Avro record", where=str(schema)[:100])
    if isinstance(schema, list):
        real = branches(schema)
        if not real:
            raise Usage("a column cannot hold an Avro union without a type", where=str(schema)[:100])
        # of a union of several types, a column holds a record with a member for each branch
        branched = {"type": "record", "fields": [{"name": branch_name(one), "type": one} for one in real]}
        return _type_of(real[0] if len(real) == 1 else branched, place)
    if isinstance(schema, str):
        return _type_of({"type": schema}, place)
    if isinstance(schema["type"], dict | list):
        return _type_of(schema["type"], inside)
    return _plain(schema) or _nested(schema, inside)


def _plain(schema: dict[str, Any]) -> pa.DataType | None:
    kind, logical = schema["type"], schema.get("logicalType")
    if kind == "fixed" and schema["size"] < 1:
        # an array of billions of them would be a few bytes
        raise Usage("a column cannot hold a fixed type without bytes", where=str(schema)[:100])
    if logical == "decimal" and kind in {"bytes", "fixed"}:
        digits = schema.get("precision")
        if not digits:
            return pa.binary()  # as the specification says
        if digits > MOST_DIGITS:
            raise Usage(f"query engines have no decimals of {digits} digits", todo=f"The maximum is {MOST_DIGITS}.")
        return pa.decimal128(digits, schema.get("scale", 0))
    return _LOGICAL.get((str(kind), str(logical))) or _PLAIN.get(kind)


def _nested(schema: dict[str, Any], inside: Nesting) -> pa.DataType:
    if schema["type"] == "array":
        return pa.list_(_type_of(schema["items"], inside))
    if schema["type"] == "map":
        return pa.map_(pa.string(), _type_of(schema["values"], inside))
    if schema["type"] == "record":
        return pa.struct([(field["name"], _type_of(field["type"], inside)) for field in schema["fields"]])
    raise Usage("a column cannot hold this Avro type", where=str(schema)[:100])


def _check_expanded(schema: Any) -> Any:
    """Return a schema with named types in the place of their names, which is read in bounded time and memory.

    Raises:
        Usage: it has too many types, as each name stands for all of one; arrays of values that take no bytes; or
            aliases that are not names.
    """
    for number, one in enumerate(_types_in(schema)):
        if number >= _MOST_TYPES:
            raise Usage(f"the Avro schema has more than {_MOST_TYPES:,} types when its names are replaced by them")
        if isinstance(one, dict):
            for aliases in (named.get("aliases", []) for named in (one, *one.get("fields", ()))):
                if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
                    raise Usage("not an Avro schema", where=f"aliases: {aliases!r}"[:200])
            if one["type"] == "array" and _is_empty(one["items"]):
                raise Usage("a column cannot hold an Avro array of values without bytes", where=str(one["items"])[:100])
    return schema


def _types_in(schema: Any) -> Iterator[Any]:
    """Yield a type and all types in it; of recursive ones, the name."""
    left = [schema]
    while left:
        one = left.pop()
        yield one
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += [field["type"] for field in one.get("fields", ())]
            left += [one[name] for name in ("items", "values") if name in one]
            left += [] if one["type"] in _COMPLEX else [one["type"]]


def _is_recursive(schema: Any) -> bool:
    """Return whether a type in an expanded schema contains itself."""
    return any(isinstance(one, str) and one not in _PRIMITIVE for one in _types_in(schema))


def _is_empty(schema: Any) -> bool:
    """Return whether values of a type take no bytes, so that a few claim billions of them."""
    if not isinstance(schema, dict):
        return bool(schema == "null")
    if schema["type"] == "record":
        return all(_is_empty(field["type"]) for field in schema["fields"])
    return schema.get("size") == 0 if schema["type"] == "fixed" else _is_empty(schema["type"])


def _parsed(schema: str, *, expand: bool = False) -> Any:
    """Parse a schema (JSON text) for the Avro library.

    Args:
        schema: the schema.
        expand: put named types in the place of their names. Without it, the schema is as `_as_read` says.

    Raises:
        Usage: it is not valid, or the library is not installed.
    """
    try:
        from fastavro.schema import SchemaParseException, expand_schema, parse_schema  # noqa: PLC0415  (an extra)
    except ImportError:
        todo = "pip install 'streamvault[lake]'"
        raise Usage("decoding Avro requires a library that is not installed", todo=todo) from None
    try:
        found = json.loads(schema)
        json.dumps(found, ensure_ascii=False).encode()  # no name has half of a surrogate pair
        return _check_expanded(expand_schema(found)) if expand else parse_schema(_as_read(parse_schema(found), count()))
    except Usage:
        raise
    except KeyError as error:
        raise Usage("not an Avro schema", where=f"{error.args[0]} is missing") from None
    except Exception as error:  # noqa: BLE001  (its errors have no common base class)
        where = str(error) if isinstance(error, ValueError | SchemaParseException) else schema
        raise Usage("not an Avro schema", where=where[:200]) from None


def _as_read(schema: Any, numbers: Iterator[int]) -> Any:
    """Return a schema of the same bytes, of which the library says what a value is and not what it takes it for.

    Without logical types, as it would reject a whole record for one value that Python does not have, and round
    decimals. With a record around each branch of a union of several types, which has the bytes of its only field, as
    the library does not tell which branch a value is of. And without defaults, which are only for readers.
    """
    if isinstance(schema, list):
        real, read = branches(schema), [_as_read(one, numbers) for one in schema]
        return [
            {
                "type": "record",
                "name": f"_branch_{next(numbers)}",
                "fields": [{"name": branch_name(one), "type": inner}],
            }
            if len(real) > 1 and one in real
            else inner
            for one, inner in zip(schema, read, strict=True)
        ]
    if not isinstance(schema, dict):
        return schema
    left_out = {"logicalType", "default", "__fastavro_parsed", "__named_schemas"}
    kept = {name: one for name, one in schema.items() if name not in left_out}
    return {
        name: [_as_read(one, numbers) for one in inner]
        if name == "fields"
        else _as_read(inner, numbers)
        if name in {"type", "items", "values"}
        else inner
        for name, inner in kept.items()
    }


def _alone(schema: Any) -> dict[str, Any]:
    """Return a type without the union with null around it; of a union of several types, ``{"type": UNION}``."""
    found = alone(schema)
    real = branches(found["type"]) if isinstance(found["type"], list) else []
    return _alone(real[0]) if len(real) == 1 else found


class AvroPayloads:
    """A `lake.payloads.PayloadParser` for Avro.

    Columns without a field in either schema are null.

    Args:
        schema: the schema that the payloads were written with, as JSON text.
        columns: the table's columns.
        reader: the schema with the aliases and defaults of fields that they lack; empty if it is the same.
        padded: zeros may follow a record.

    Raises:
        Usage: a schema is not valid, or no Avro library is installed.
    """

    def __init__(
        self, schema: str, columns: tuple[TableColumn, ...], reader: str = "", *, padded: bool = False
    ) -> None:
        self._schema, self._padded = _parsed(schema), padded
        own = _parsed(schema, expand=True)
        self._read = _reader(is_recursive=_is_recursive(own))
        other = _parsed(reader, expand=True) if reader else own
        for record in (own, other):
            _types_of(record, lenient=True)  # raises if it is none
        self._columns: list[tuple[str, ResolvedField, ColumnCast]] = []
        fields = resolved_fields(own, other)
        for column in columns:
            kind, field = arrow_type(column.type), fields.get(column.field, _NO_FIELD)
            read_as = (_column_type(field.resolved.schema) if column.field in fields else None) or kind
            mine = _alone(field.resolved.schema)
            is_union = isinstance(mine["type"], list)
            # a plain value cannot be meant for a record; a record that is no branch has its members by name
            branch = "" if is_union or mine["type"] == "record" else branch_name(mine)
            self._columns.append((column.field, field, ColumnCast(read_as, kind, branch, is_union)))

    def parse(self, payloads: pa.Array) -> Parsed:
        """See `PayloadParser.parse`."""
        records, reasons = decoded_each(payloads, self._record)
        columns = []
        for name, (source, resolved), cast in self._columns:
            values: list[Any] = [None if record is None or source is None else record[source] for record in records]
            if resolved.convert is not None:
                whys: list[str | None] = [None] * len(records)
                for row, record in enumerate(records):
                    try:
                        values[row] = None if record is None else resolved.convert(values[row])
                    except ValueError as error:
                        values[row], whys[row] = None, f"{name}: {error}"
                reasons = all_reasons(reasons, pa.array(whys, pa.string()))
            made, wrong = column_of(values, cast)
            columns.append(made)
            if any(wrong):
                reasons = also(reasons, pa.array(wrong, pa.bool_()), misfit(name, cast.kind))
        return Parsed(columns, reasons)

    def _record(self, payload: bytes) -> Mapping[str, Any]:
        """Return the record of one payload.

        Raises:
            NotDecoded: it is not a record of the schema.
        """
        source = io.BytesIO(payload)
        try:
            record = self._read(source, self._schema)
        except Exception as error:  # noqa: BLE001  (its errors have no common base class)
            if isinstance(error, IndexError | EOFError) and not source.read(1):
                raise NotDecoded("not an Avro record of this schema: it ends early") from None
            raise NotDecoded(f"not an Avro record of this schema: {type(error).__name__} {error}") from None
        left = payload[source.tell() :]
        if left and not (self._padded and not any(left)):
            raise NotDecoded(f"{len(left)} bytes follow the Avro record")
        if not isinstance(record, dict):
            raise NotDecoded("not an Avro record")
        return record


def _reader(*, is_recursive: bool) -> Callable[[io.BytesIO, Any], Any]:
    """Return the library's function that reads a record.

    Its compiled one ends the process at some thousand records inside one another. In the other, Python limits them.
    """
    import fastavro  # noqa: PLC0415  (an extra)
    import fastavro._read_py  # noqa: PLC0415

    return fastavro._read_py.schemaless_reader if is_recursive else fastavro.schemaless_reader  # noqa: SLF001


class FramedAvro(AvroPayloads):
    """`AvroPayloads` whose records follow their schema's fingerprint, or are each in an Avro file.

    Args:
        schema: the Avro schema, as JSON text; records of another one are not decoded.
        columns: the table's columns.
        reader: see `AvroPayloads`.
    """

    def __init__(self, schema: str, columns: tuple[TableColumn, ...], reader: str = "") -> None:
        super().__init__(schema, columns, reader)
        self._types, self._mark = _types_of(_parsed(schema, expand=True)), fingerprint(schema)
        self._same_schema = lru_cache(maxsize=64)(self._is_same)

    def _record(self, payload: bytes) -> Mapping[str, Any]:
        """See `AvroPayloads`."""
        if payload.startswith(_SINGLE) and len(payload) >= _RECORD_AT:
            found = payload[len(_SINGLE) : _RECORD_AT]
            if found != self._mark:
                raise NotDecoded(f"written with another Avro schema, with the fingerprint {found.hex()}")
            return super()._record(payload[_RECORD_AT:])
        if not payload.startswith(_FILE):
            raise NotDecoded("no Avro header")
        schema, record = _only_record(payload)
        if len(schema) > _LONGEST_SCHEMA or not self._same_schema(schema):
            raise NotDecoded("an Avro file of another schema")
        return super()._record(record)

    def _is_same(self, schema: bytes) -> bool:
        with suppress(Usage, ValueError):
            text = schema.decode()
            return fingerprint(text) == self._mark and _types_of(_parsed(text, expand=True)) == self._types
        return False


def fingerprint(schema: str) -> bytes:
    """Return the fingerprint of a schema (JSON text) as it is before a record: CRC-64-AVRO, 8 bytes.

    Raises:
        Usage: as `avro_columns`.
    """
    parsed = _parsed(schema)
    import fastavro.schema  # noqa: PLC0415  (an extra)

    canonical = fastavro.schema.to_parsing_canonical_form(parsed)
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def _only_record(payload: bytes) -> tuple[bytes, bytes]:
    """Return the schema and the bytes of the only record in an Avro file.

    Raises:
        NotDecoded: it is no Avro file of one record, or of an unknown codec.
    """
    import fastavro  # noqa: PLC0415  (an extra)

    source = io.BytesIO(payload)
    try:
        header: Any = fastavro.schemaless_reader(source, _FILE_HEADER, None)
        block: Any = fastavro.schemaless_reader(source, _FILE_BLOCK, None)
    except Exception as error:  # noqa: BLE001  (its errors have no common base class)
        raise NotDecoded(f"not an Avro file: {type(error).__name__} {error}") from None
    codec = header["meta"].get("avro.codec", b"null")
    if codec not in _FILE_CODECS:
        raise NotDecoded(f"an Avro file with an unknown codec: {codec[:20]!r}")
    if block["count"] != 1 or block["sync"] != header["sync"] or source.tell() != len(payload):
        raise NotDecoded("not an Avro file of one record")
    return header["meta"].get("avro.schema", b""), expanded(_FILE_CODECS[codec], block["data"])


class ColumnCast(NamedTuple):
    """How a field's values become those of a column.

    Attributes:
        read_as: the values' type.
        kind: the column's type.
        branch: the name of the member that has such values if the column is of a union; empty if it is of the same.
        is_union: whether the values are of a union of several types.
    """

    read_as: pa.DataType
    kind: pa.DataType
    branch: str = ""
    is_union: bool = False

    def of(self, values: list[Any]) -> pa.Array:
        """Return values as those of the column.

        Raises:
            _NO_VALUE: the column cannot hold one of them.
        """
        read_as, kind = self.read_as, self.kind
        if self.branch and pa.types.is_struct(kind) and kind.get_field_index(self.branch) >= 0:
            read_as = pa.struct([(self.branch, read_as)])
            values = [None if value is None else {self.branch: value} for value in values]
        elif self.is_union and not pa.types.is_struct(kind):  # the column is of one of the branches
            branch = next((member for member in read_as if _resolves(member.type, kind)), None)
            if branch is None or any(value is not None and branch.name not in value for value in values):
                raise NotDecoded("of another branch")
            read_as, values = branch.type, [None if value is None else value[branch.name] for value in values]
        if all(value is None for value in values):
            return pa.nulls(len(values), kind)  # not every type can be cast to another one
        if not _resolves(read_as, kind) and any(value is not None for value in values):
            raise NotDecoded("of another type")
        read_as = _held(read_as, kind)
        if has_decimals(read_as):
            values = [_with_decimals(value, read_as) for value in values]
        return checked_times(pa.array(values, read_as)).cast(kind)


def column_of(values: list[Any], cast: ColumnCast) -> tuple[pa.Array, list[bool]]:
    """Return a field's values as a column, and which of them it cannot hold (null in it)."""
    wrong = [False] * len(values)
    try:
        return cast.of(values), wrong
    except _NO_VALUE:
        for row, value in enumerate(values):
            try:
                cast.of([value])
            except _NO_VALUE:
                wrong[row] = True
    kept = [None if is_wrong else value for value, is_wrong in zip(values, wrong, strict=True)]
    return cast.of(kept), wrong


def _held(read_as: pa.DataType, kind: pa.DataType) -> pa.DataType:
    """Return the type without members that a column lacks: a value that only they cannot hold is none of it."""
    if pa.types.is_struct(read_as) and pa.types.is_struct(kind):
        held = [one for one in read_as if kind.get_field_index(one.name) >= 0]
        return pa.struct([(one.name, _held(one.type, kind.field(one.name).type)) for one in held]) if held else read_as
    if pa.types.is_list(read_as) and pa.types.is_list(kind):
        return pa.list_(_held(read_as.value_type, kind.value_type))
    if pa.types.is_map(read_as) and pa.types.is_map(kind):
        return pa.map_(read_as.key_type, _held(read_as.item_type, kind.item_type))
    return read_as


_RESOLVED = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_boolean,
    lambda kind: kind in {pa.string(), pa.binary()},
)
"""Types of which Avro, or a change of a column, makes one of the other."""


def _resolves(read_as: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether values of a type may be those of a column: a text of digits, for example, is no number."""
    if pa.types.is_struct(read_as) and pa.types.is_struct(kind):
        return all(
            _resolves(member.type, kind.field(member.name).type)
            for member in read_as
            if kind.get_field_index(member.name) >= 0
        )
    if pa.types.is_list(read_as) and pa.types.is_list(kind):
        return _resolves(read_as.value_type, kind.value_type)
    if pa.types.is_map(read_as) and pa.types.is_map(kind):
        return _resolves(read_as.key_type, kind.key_type) and _resolves(read_as.item_type, kind.item_type)
    if (read_as, kind) == (pa.float64(), pa.float32()):
        return False  # the value would lose digits
    is_rounded = pa.types.is_integer(read_as) and pa.types.is_floating(kind)
    return is_rounded or any(is_one(read_as) and is_one(kind) for is_one in _RESOLVED)


def _with_decimals(value: Any, kind: pa.DataType) -> Any:
    """Convert the decimals in a value, which are integers or bytes: a big-endian number in units of the last digit."""
    if value is None or isinstance(value, int):
        return value
    if pa.types.is_decimal(kind):
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-kind.scale, _EXACT)
    if pa.types.is_list(kind):
        return [_with_decimals(inner, kind.value_type) for inner in value]
    if pa.types.is_map(kind):
        return [(key, _with_decimals(inner, kind.item_type)) for key, inner in value.items()]
    if pa.types.is_struct(kind):
        return {member.name: _with_decimals(value.get(member.name), member.type) for member in kind}
    return value
