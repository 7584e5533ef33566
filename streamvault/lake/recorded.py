"""Options that a table was created with; they hold for every generation added later."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, model_validator

from streamvault.common.errors import Conflict, Usage
from streamvault.lake.batches import EVENT_SCHEMA
from streamvault.lake.column_types import arrow_type
from streamvault.lake.options import Decode, TableFormat
from streamvault.layouts.object_keys import table_options_key
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.format.jsonfile import File, Model, decide_file, find_file
from streamvault.streamstore.model import StreamName

TimeUnit = Literal["s", "ms", "us", "ns"]
OriginKind = Literal["archive", "stream"]

GENERATION, ERROR, EVENT_TIME = "generation", "_error", "event_time"
_OF_ICEBERG = ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
"""Names that Spark rejects in an Iceberg table."""

_RESERVED = frozenset({*EVENT_SCHEMA.names, GENERATION, ERROR, EVENT_TIME, *_OF_ICEBERG})


class TableColumn(Model):
    """A column decoded from the payload: the field's name there, the column's name, its type in Hive's notation."""

    field: str
    column: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,127}$")]
    type: str

    @model_validator(mode="after")
    def _has_a_type(self) -> TableColumn:
        try:
            arrow_type(self.type)
        except Usage as error:
            raise ValueError(str(error)) from None
        return self


class TableOptions(File):
    """The file ``table.json`` among a table's records.

    Attributes:
        scope: scope of the stream.
        stream: name of the stream.
        origin: the table's origin: an archive, or the stream itself.
        table: the table's name, which is also its folder's.
        kind: the table's format in catalogs. Files of Iceberg tables have a column `generation`; in Hive's format it is
            the partition and not in the files.
        decode: the format of payloads.
        columns: the columns decoded from payloads.
        avro: the schema of Avro payloads, as JSON text.
        event_time: the field (with dots into structs) for the column `event_time`; empty for none.
        event_time_unit: the unit of a numeric field, since 1970.
        target_size: maximum segment bytes in a file.
    """

    format: Literal[1] = 1
    scope: str
    stream: str
    origin: OriginKind = "archive"
    table: str
    kind: TableFormat
    decode: Decode = "none"
    columns: tuple[TableColumn, ...] = ()
    avro: str = ""
    event_time: str = ""
    event_time_unit: TimeUnit = "ms"
    target_size: Annotated[int, Field(ge=1)]

    @property
    def name(self) -> StreamName:
        """The stream."""
        return StreamName(self.scope, self.stream)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its files."""
        fields = [pa.field(GENERATION, pa.int32())] if self.kind == "iceberg" else []
        fields += list(EVENT_SCHEMA)
        if self.event_time:
            fields.append(pa.field(EVENT_TIME, pa.timestamp("us")))
        fields += [pa.field(column.column, arrow_type(column.type)) for column in self.columns]
        if self.decode != "none":
            fields.append(pa.field(ERROR, pa.string()))
        return pa.schema(fields)


def find_options(table: Archive) -> TableOptions | None:
    """Return the options of a table, or None if the table does not exist.

    Raises:
        Damaged: the file is not valid.
        InvalidKey: the table's name is not valid.
    """
    return find_file(TableOptions, table.store, table.prefix + table_options_key())


def fix_options(table: Archive, options: TableOptions) -> None:
    """Write the options, create-only, so that there is one table at a location.

    Raises:
        Conflict: the table was created with other options.
    """
    key = table.prefix + table_options_key()
    check_same(decide_file(table.store, key, options)[0], options, table.place.at(key))


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


def columns_for(types: Mapping[str, str]) -> tuple[TableColumn, ...]:
    """Return the columns of fields, given each field's type in Hive's notation.

    Their names are valid, unique, and different from those of an event's own columns.
    """
    used, columns = set(_RESERVED), []
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
