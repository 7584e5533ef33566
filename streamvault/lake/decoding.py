"""Decode payloads into typed columns. A payload that cannot be decoded is kept; an error column says why.

An event decodes the same whatever stands beside it.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from streamvault.lake.avro import AvroPayloads
from streamvault.lake.column_types import arrow_type
from streamvault.lake.csv_payloads import CsvPayloads
from streamvault.lake.json_payloads import JsonPayloads
from streamvault.lake.payloads import PayloadParser, as_time, because, convert_each, not_times, without
from streamvault.lake.recorded import ERROR, EVENT_TIME, TableColumn, TableOptions

MAX_TEXT = 300
"""Maximum characters of a recorded error."""


@lru_cache(maxsize=8)
def parser_of(options: TableOptions) -> PayloadParser | None:
    """Return the parser of the table's payloads; None if they are not decoded.

    Raises:
        Usage: the schema is not valid, or the library for it is not installed.
    """
    if options.decode == "json":
        return JsonPayloads(options.columns)
    if options.decode == "csv":
        return CsvPayloads(options.columns)
    if options.decode == "avro":
        return AvroPayloads(options.avro, options.columns)
    return None


def decoded_columns(options: TableOptions, payloads: pa.Array) -> dict[str, pa.Array]:
    """Return the columns decoded from payloads: the event time, the fields, and the error column.

    Raises:
        Usage: as `parser_of`.
    """
    parser = parser_of(options)
    if parser is None:
        return {}
    columns, reasons = parser.parse(payloads)
    decoded = dict(zip([column.column for column in options.columns], columns, strict=True))
    if options.event_time:
        times, wrong = convert_each(
            _field(options, decoded), lambda some: as_time(some, options.event_time_unit), not_times
        )
        if pc.any(wrong).as_py():
            reasons = because(reasons, wrong, f"{options.event_time}: not a timestamp")
            decoded = {name: without(column, wrong) for name, column in decoded.items()}
        decoded[EVENT_TIME] = times
    return {**decoded, ERROR: pc.utf8_slice_codeunits(reasons, 0, MAX_TEXT)}


def _field(options: TableOptions, columns: dict[str, pa.Array]) -> pa.Array:
    """Return the values of the event time's field: a column, or a member of a struct (with dots)."""
    column, path = time_field(options.columns, options.event_time)
    found = columns[column.column]
    for name in path:
        found = pc.struct_field(found, name)
    return found


def time_field(columns: tuple[TableColumn, ...], field: str) -> tuple[TableColumn, list[str]]:
    """Return the column of a field, and the path from there to the field.

    Raises:
        KeyError: there is no such field.
    """
    for column in columns:
        if column.field == field:
            return column, []
    first, _, rest = field.partition(".")
    column = next((column for column in columns if column.field == first), None)  # type: ignore[assignment]
    if column is None or not rest:
        raise KeyError(field)
    kind, path = arrow_type(column.type), rest.split(".")
    for name in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            raise KeyError(field)
        kind = kind.field(name).type
    return column, path
