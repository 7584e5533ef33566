"""Whether a handoff's files still fit an Iceberg table that its users have changed (``ALTER TABLE``)."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from streamvault.common.errors import Conflict
from streamvault.lake.column_types import hive_type
from streamvault.lake.location import TablePlace
from streamvault.lake.recorded import GENERATION

_CONSTANT = (GENERATION, "scope", "stream")
"""Columns with one value in a file, so that a file is in one partition by any of them."""


def check_columns(table: Table, place: TablePlace) -> None:
    """Check that a table still has every column of a handoff's files, with a type that can hold its values.

    Columns may have been added, moved, or widened (int to bigint, float to double, decimals to a higher precision).

    Raises:
        Conflict: a column was renamed, dropped or has another type; one without which rows are not valid was added; or
            the table is partitioned so that a file would belong to several partitions. Names the column.
    """
    schema = table.schema()
    ours = place.options.schema
    for field in ours:
        if field.name not in schema.column_names:
            todo = f"Rename it back, or add a column {field.name} {hive_type(field.type)}"
            raise _changed(place, f"the catalog's table no longer has the column {field.name}", todo)
        if not _fits(schema.find_field(field.name), _as_iceberg(field, schema)):
            what = f"the column {field.name} of the catalog's table no longer fits the type {hive_type(field.type)}"
            raise _changed(place, what, "Give it this type again, or a wider one")
    for column in schema.fields:
        if column.required and column.name not in ours.names:
            what = f"the catalog's table has a required column that the table's files lack: {column.name}"
            raise _changed(place, what, "Drop it, or let it be null")
    for part in table.spec().fields:
        source = schema.find_column_name(part.source_id)
        if source not in _CONSTANT and not isinstance(part.transform, VoidTransform):
            what = f"the catalog's table is partitioned by {source} ({part.name}), of which a file has several values"
            raise _changed(place, what, "Remove this partition field")


def _changed(place: TablePlace, what: str, todo: str) -> Conflict:
    return Conflict(what, where=place.name, todo=f"{todo}; or create another table (--table NAME).")


def _as_iceberg(field: pa.Field, schema: Schema) -> NestedField | None:
    """Return a column of the files with the identifiers of a table's columns; None if it has unknown members."""
    try:
        return pyarrow_to_schema(pa.schema([field]), name_mapping=schema.name_mapping).fields[0]
    except ValueError:
        return None


def _fits(theirs: NestedField, ours: NestedField | None) -> bool:
    if ours is None or (theirs.required and not ours.required):
        return False
    return _type_fits(theirs.field_type, ours.field_type)


def _type_fits(theirs: IcebergType, ours: IcebergType) -> bool:
    """Return whether values of a column in the files can be read as those of a table's column."""
    match theirs, ours:
        case StructType(), StructType():
            held = {member.field_id: member for member in ours.fields}
            return all(
                _fits(member, held[member.field_id]) if member.field_id in held else not member.required
                for member in theirs.fields
            )
        case ListType(), ListType():
            return _fits(theirs.element_field, ours.element_field)
        case MapType(), MapType():
            return _fits(theirs.key_field, ours.key_field) and _fits(theirs.value_field, ours.value_field)
        case PrimitiveType(), PrimitiveType():
            with suppress(ResolveError):
                return ours == theirs or bool(promote(ours, theirs))
    return False
