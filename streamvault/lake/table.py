"""A table's columns and the options that it was created with; they hold for every generation added later.

The types of a table's columns, in Hive's notation, which Athena and Glue accept unchanged.

``boolean int bigint float double string binary date timestamp decimal(P,S) array<T> map<K,V> struct<name:T,…>``. A
``timestamp`` is in UTC and has microseconds: Hive tables have no type with a time zone.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, model_validator

from streamvault.common.errors import Conflict, Overtaken, Usage
from streamvault.lake.read import EVENT_SCHEMA
from streamvault.lake.reports import ERROR, Decode, Framing, TableFormat
from streamvault.manifests.archive import TableArchive, TableRecord
from streamvault.manifests.files import Model, decide_file, find_file
from streamvault.streamstore.model import StreamName

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
_DEEPEST, MOST_TYPES = 20, 10_000
_LONGEST = 131_072
"""Characters of a column's type in Glue."""

MOST_DIGITS = 38
"""Digits of a decimal in every engine."""


def arrow_type(text: str) -> pa.DataType:
    """Parse a type into an Arrow type; `check_type` says whether a new table can have it.

    Raises:
        Usage: it is not a valid type.
    """
    found = _arrow("".join(text.split()), 0)
    if found is None:
        raise Usage("not a valid column type", where=repr(text[:100]), todo=_TODO)
    return found


def check_type(kind: pa.DataType, decode: Decode = "none", field: str = "") -> None:
    """Check that every engine can hold values of a type.

    Args:
        kind: the type.
        decode: also check that payloads of this format can have such values.
        field: the field's name for messages.

    Raises:
        Usage: an engine cannot, or the payloads cannot.
    """
    reason = unfit(kind, decode)
    if reason:
        raise Usage(reason, where=f"{field} {hive_type(kind)}".strip()[:100])


@dataclass(frozen=True, slots=True)
class Nesting:
    """Where a type is in the schema of a field.

    No column can hold a type that contains itself, that is nested too deeply, or in a field with too many types; what
    looks at a schema ends there, however often the schema names its types.

    Attributes:
        outer: the names of the types around it.
        depth: how many types are around it.
        left: an item for each type that the field may still have.
    """

    outer: tuple[str, ...] = ()
    depth: int = 0
    left: Iterator[int] = dataclasses.field(default_factory=lambda: iter(range(MOST_TYPES)))

    def into(self, *names: str) -> Nesting | None:
        """Return the place inside a type of these names, or of none; None if no column can hold it."""
        if next(self.left, None) is None or self.depth > _DEEPEST or {*names} & {*self.outer}:
            return None
        return Nesting((*self.outer, *names), self.depth + 1, self.left)


def unfit(kind: pa.DataType, decode: Decode = "none", depth: int = 0) -> str:
    """Return why there can be no column of a type (see `check_type`); empty if there can."""
    if not pa.types.is_nested(kind):
        return ""
    inner = (kind.field(index).type for index in range(kind.num_fields))
    rules = (
        (depth > _DEEPEST, "the column type is nested too deeply"),
        (decode == "csv", "a value of CSV cannot be a list, a map or a struct"),
        (
            decode == "json" and pa.types.is_map(kind),
            "a column of JSON cannot be a map: declare the members as a struct, or omit the field",
        ),
        (pa.types.is_map(kind) and pa.types.is_nested(kind.key_type), "the key of a map must be a plain type"),
    )
    reason = next((why for is_wrong, why in rules if is_wrong), "") or _unfit_members(kind)
    reason = reason or next(filter(None, (unfit(one, decode, depth + 1) for one in inner)), "")
    if not reason and not depth and len(hive_type(kind)) > _LONGEST:
        return f"the column type has more than {_LONGEST:,} characters"
    return reason


def _unfit_members(kind: pa.DataType) -> str:
    if not pa.types.is_struct(kind):
        return ""
    names = [field.name for field in kind]
    if not names:
        return "query engines have no structs without members"
    wrong = next((name for name in names if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        return f"a member's name is not 1 to 128 of A-Z, a-z, 0-9 and _: {wrong[:20]!r}"
    if len({name.lower() for name in names}) < len(names):
        return "query engines cannot tell members apart whose names differ only in case"
    return ""


def wider_type(held: pa.DataType, new: pa.DataType) -> pa.DataType:
    """Return the type of a column, widened to hold values of another type as far as Iceberg can widen a column.

    That is: ``int`` to ``bigint``, ``float`` to ``double``, decimals to more digits before the point, and structs by
    members. Whatever cannot be widened stays as it is.
    """
    if pa.types.is_struct(held) and pa.types.is_struct(new):
        members = {member.name: member.type for member in held}
        known = {name.lower() for name in members}
        for member in new:
            if member.name in members:
                members[member.name] = wider_type(members[member.name], member.type)
            elif member.name.lower() not in known:  # engines could not tell the two apart
                members[member.name] = member.type
        return pa.struct(list(members.items()))
    if pa.types.is_list(held) and pa.types.is_list(new):
        return pa.list_(wider_type(held.value_type, new.value_type))
    if pa.types.is_map(held) and pa.types.is_map(new) and held.key_type == new.key_type:
        return pa.map_(held.key_type, wider_type(held.item_type, new.item_type))
    if pa.types.is_decimal(held) and pa.types.is_decimal(new) and held.scale == new.scale:
        return max(held, new, key=lambda kind: kind.precision)
    is_wider = (held, new) in {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}
    return new if is_wider else held


def holds(held: pa.DataType, new: pa.DataType) -> bool:
    """Return whether a column of one type holds all values of another type, members by name."""
    if pa.types.is_struct(held) and pa.types.is_struct(new):
        members = {member.name: member.type for member in held}
        return all(member.name in members and holds(members[member.name], member.type) for member in new)
    if pa.types.is_list(held) and pa.types.is_list(new):
        return holds(held.value_type, new.value_type)
    if pa.types.is_map(held) and pa.types.is_map(new):
        return held.key_type == new.key_type and holds(held.item_type, new.item_type)
    return held == new or (not pa.types.is_nested(held) and wider_type(new, held) == held)


def has_decimals(kind: pa.DataType) -> bool:
    """Return whether a type is a decimal, or contains one."""
    if pa.types.is_decimal(kind):
        return True
    return pa.types.is_nested(kind) and any(has_decimals(kind.field(index).type) for index in range(kind.num_fields))


def hive_type(kind: pa.DataType, *, quoted: bool = False) -> str:
    """Return an Arrow type (one that `arrow_type` returns, or with timestamps of another unit) in Hive's notation.

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
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return next(text for text, (arrow, _) in _PLAIN.items() if arrow == kind)


def misfit(field: str, kind: pa.DataType) -> str:
    """Return the reason of a value that its column cannot hold."""
    years = " of the years 1 to 9999" if pa.types.is_temporal(kind) else ""
    return f"{field}: not a {hive_type(kind)}{years}"


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


def _arrow(text: str, depth: int) -> pa.DataType | None:
    if text in _PLAIN:
        return _PLAIN[text][0]
    decimal = _DECIMAL.fullmatch(text)
    if decimal and 1 <= int(decimal[1]) <= MOST_DIGITS and int(decimal[2]) <= int(decimal[1]):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    kind, bracket, rest = text.partition("<")
    if not bracket or not rest.endswith(">") or depth > _DEEPEST:
        return None
    parts = _split(rest[:-1])
    if kind == "struct":
        members = [(name, _arrow(inner, depth + 1)) for name, _, inner in (part.partition(":") for part in parts)]
        is_valid = all(inner is not None and _NAME.fullmatch(name) for name, inner in members)
        return pa.struct(members) if is_valid else None
    types = [_arrow(part, depth + 1) for part in parts]
    if None in types or (kind, len(types)) not in {("array", 1), ("map", 2)}:
        return None
    return pa.list_(types[0]) if kind == "array" else pa.map_(*types)


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts, depth, begin = [], 0, 0
    for index, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            parts.append(text[begin:index])
            begin = index + 1
    return [*parts, text[begin:]]


TimeUnit = Literal["s", "ms", "us", "ns"]
OriginKind = Literal["archive", "stream"]

GENERATION, GENERATION_DAY, EVENT_TIME = "generation", "generation_day", "event_time"
MAX_TEXT = 300
"""Maximum characters of a recorded error."""

_OF_ICEBERG = ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
"""Names that Spark rejects in an Iceberg table."""

_RESERVED = frozenset({*EVENT_SCHEMA.names, GENERATION, GENERATION_DAY, ERROR, EVENT_TIME, *_OF_ICEBERG})


class TableColumn(Model):
    """A column decoded from the payload.

    Attributes:
        field: the field's name there.
        column: the column's name.
        type: its type in Hive's notation.
        added: whether it was added after the table was begun.
    """

    field: str
    column: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,127}$")]
    type: str
    added: bool = False

    @model_validator(mode="after")
    def _has_a_type(self) -> TableColumn:
        try:
            arrow_type(self.type)
        except Usage as error:
            raise ValueError(str(error)) from None
        return self


class Decoding(Model):
    """How the events of a generation become columns. A plan fixes it, as a table's columns may grow in between.

    Attributes:
        columns: the columns; those of the generation before, none of them narrower, and then those that were added.
        avro: the schema that payloads were written with: of Avro, as JSON text, or of Protobuf, in base64.
        reader: the schema that the columns last grew by, of which fields that ``avro`` lacks have their defaults; empty
            if it is the same.
    """

    columns: tuple[TableColumn, ...] = ()
    avro: str = ""
    reader: str = ""


class TableOptions(TableRecord):
    """The file ``table.json`` of a table.

    Attributes:
        scope: scope of the stream.
        stream: name of the stream.
        origin: the table's origin: an archive, or the stream itself.
        table: the table's name, which is also its folder's.
        kind: the table's format in catalogs. Files of Iceberg tables have a column `generation`; in Hive's format it is
            the partition and not in the files.
        decode: the format of payloads.
        framing: the header that payloads have.
        columns: the columns decoded from payloads when the table is begun, or with which a generation was planned.
        avro: the schema of Avro payloads, as JSON text; of Protobuf, a file descriptor set in base64; of a registry, an
            object of those to read with, by type.
        reader: see `Decoding`; empty when the table is begun.
        message: the full name of the payloads' message in a schema of Protobuf; empty for other payloads.
        group: the group in a Schema Registry; empty if there is none.
        event_time: the field (with dots into structs) for the column `event_time`; empty for none.
        event_time_unit: the unit of a numeric field, since 1970.
        target_size: maximum segment bytes in a file.
        generation_day: whether files have a column `generation_day`, which earlier releases do not write: a new
            Iceberg table without an event time has it, and is partitioned by it.
    """

    scope: str
    stream: str
    origin: OriginKind = "archive"
    table: str
    kind: TableFormat
    decode: Decode = "none"
    framing: Framing = "none"
    columns: tuple[TableColumn, ...] = ()
    avro: str = ""
    reader: str = ""
    message: str = ""
    group: str = ""
    event_time: str = ""
    event_time_unit: TimeUnit = "ms"
    target_size: Annotated[int, Field(ge=1)]
    generation_day: bool = False

    @property
    def name(self) -> StreamName:
        """The stream."""
        return StreamName(self.scope, self.stream)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its files."""
        fields = [pa.field(GENERATION, pa.int32())] if self.kind == "iceberg" else []
        if self.generation_day:
            fields.append(pa.field(GENERATION_DAY, pa.date32()))
        fields += list(EVENT_SCHEMA)
        if self.event_time:
            fields.append(pa.field(EVENT_TIME, pa.timestamp("us")))
        fields += [pa.field(column.column, arrow_type(column.type)) for column in self.columns]
        if self.decode != "none":
            fields.append(pa.field(ERROR, pa.string()))
        return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns that a caller's schema has, for a table that exists.

    Attributes:
        columns: the columns.
        avro: the payloads' schema from now on, as in `TableOptions`.
        adds: whether the table's columns grow by them.
        knows: whether these are newer than the schemas that a table reads with, given as in `TableOptions`.
        warnings: what gives no columns.
    """

    columns: tuple[TableColumn, ...]
    avro: str
    adds: bool
    knows: Callable[[str], bool] = lambda _: False
    warnings: tuple[str, ...] = ()


def grown(options: TableOptions, wanted: Wanted | None) -> TableOptions:
    """Return a table's options with what a caller wants: no column is dropped, renamed or narrowed, whoever is late.

    Raises:
        Usage: columns of CSV, which are matched by position, have another order.
    """
    if wanted is None:
        return options
    ours, theirs = ([column.field for column in some] for some in (options.columns, wanted.columns))
    if options.decode == "csv" and any(mine != other for mine, other in zip(ours, theirs, strict=False)):
        todo = f"Begin the schema with the table's own fields: {', '.join(ours)}."
        raise Usage("the schema's fields are not those of the table in their order, by which CSV is read", todo=todo)
    columns = _grown_columns(options.columns, wanted.columns) if wanted.adds else options.columns
    before = options.reader or options.avro
    # A newer schema may differ in what is no column: an enum's symbols, defaults, aliases, or in a field that was
    # removed. A caller's file that lacks columns may be an old one.
    kinds = {column.field: arrow_type(column.type) for column in wanted.columns}
    has_all = all(one.field in kinds and holds(kinds[one.field], arrow_type(one.type)) for one in options.columns)
    is_newer = wanted.knows(before) or has_all or columns != options.columns
    first, reader = (before, wanted.avro) if is_newer else (wanted.avro, before)
    if options.decode == "registry" and first and reader:  # of types that one of them lacks, the other's
        reader = json.dumps({**json.loads(first), **json.loads(reader)})
    avro = wanted.avro or options.avro
    return options.model_copy(update={"columns": columns, "avro": avro, "reader": "" if reader == avro else reader})


def _grown_columns(held: tuple[TableColumn, ...], new: tuple[TableColumn, ...]) -> tuple[TableColumn, ...]:
    types = {column.field: column.type for column in new}
    found = []
    for column in held:
        kind = wider_type(arrow_type(column.type), arrow_type(types.pop(column.field, column.type)))
        is_too_long = bool(unfit(kind))  # for engines, by the members of several schemas
        found.append(column if is_too_long else column.model_copy(update={"type": hive_type(kind)}))
    added = columns_for(types, taken=[column.column for column in held])
    return (*found, *(column.model_copy(update={"added": True}) for column in added))


def find_options(table: TableArchive) -> TableOptions | None:
    """Return the options of the table that now has a table's name, or None if there is none.

    Raises:
        Damaged: the file is not valid.
    """
    return find_file(TableOptions, table.store, table.options_key)


def fix_options(table: TableArchive, options: TableOptions) -> TableOptions:
    """Write the options, create-only, so that there is one table of a name; return those in force.

    Raises:
        Overtaken: another run has begun the table, with other options. The next run compares the caller's with them.
    """
    return as_begun(table, decide_file(table.store, table.options_key, options)[0], options)


def as_begun(table: TableArchive, found: TableOptions, options: TableOptions) -> TableOptions:
    """Return the options that another run has begun a table with, which are the same but for the folder.

    Raises:
        Overtaken: they are not.
    """
    if found != options.model_copy(update={"folder": found.folder}):
        where = table.place.at(table.options_key)
        raise Overtaken("another run has begun this table in the meantime", where=where)
    return found


def removed(where: str) -> Overtaken:
    """Return the error of a run whose table was removed."""
    return Overtaken("the table was removed in the meantime, or created again", where=where)


def check_same(found: TableOptions, ours: TableOptions, where: str) -> None:
    """Check that a table was created with the same options.

    Raises:
        Conflict: it was not; names the options that differ.
    """
    if found == ours:
        return
    theirs = found.document()
    differ = ", ".join(sorted(name for name, value in ours.document().items() if value != theirs.get(name)))
    todo = "Omit these options to continue the table, or give the new one another name (--table)."
    raise Conflict(f"the table was created with other options ({differ})", where=where, todo=todo)


def plain_name(text: str) -> str:
    """Convert a text to a name valid in every catalog: a-z, 0-9 and _, not beginning with a digit."""
    name = re.sub(r"[^a-z0-9_]+", "_", text.lower())[:120]
    return name if re.match(r"[a-z_]", name) else f"_{name}"


def columns_for(types: Mapping[str, str], taken: Iterable[str] = ()) -> tuple[TableColumn, ...]:
    """Return the columns of fields, given each field's type in Hive's notation.

    Their names are valid, unique, and different from those of an event's own columns and of those that are ``taken``.
    """
    used, columns = {*_RESERVED, *taken}, []
    for field, kind in types.items():
        plain = plain_name(field)
        if plain in _RESERVED:
            plain = f"payload_{plain}"
        name, number = plain, 2
        while name in used:
            name, number = f"{plain}_{number}", number + 1
        used.add(name)
        columns.append(TableColumn(field=field, column=name, type=kind))
    return tuple(columns)
