"""Decode payloads into typed columns. What cannot be decoded is null, and an error column says why.

An event decodes the same whatever stands beside it.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from streamvault.lake.avro import AvroPayloads, FramedAvro
from streamvault.lake.csv_payloads import CsvPayloads
from streamvault.lake.framing import FramedPayloads, with_hints
from streamvault.lake.json_payloads import JsonPayloads
from streamvault.lake.payloads import PayloadParser, also, as_time, convert_each, not_times
from streamvault.lake.protobuf_payloads import IndexedMessages, ProtobufPayloads
from streamvault.lake.registry import RegisteredPayloads, columns_of, left_out_warning
from streamvault.lake.reports import ERROR
from streamvault.lake.table import EVENT_TIME, MAX_TEXT, TableColumn, TableOptions, arrow_type, misfit
from streamvault.manifests.manifest import SchemaGroup


@lru_cache(maxsize=8)
def parser_of(options: TableOptions, schemas: SchemaGroup | None = None) -> PayloadParser | None:
    """Return the parser of the table's payloads; None if they are not decoded.

    Args:
        options: the table's options.
        schemas: those of the events' group in a Schema Registry.

    Raises:
        Usage: the schema is not valid, or the library for it is not installed.
    """
    if options.decode == "registry":
        return RegisteredPayloads(options.columns, options.reader or options.avro, schemas)
    records = _record_parser(options)
    if records is None or options.framing in {"none", "avro"}:
        return records
    return FramedPayloads(options.framing, records)


def _record_parser(options: TableOptions) -> PayloadParser | None:
    if options.decode == "json":
        return JsonPayloads(options.columns)
    if options.decode == "csv":
        return CsvPayloads(options.columns)
    if options.decode == "protobuf":
        schema, newest = b64decode(options.avro), b64decode(options.reader)
        messages = ProtobufPayloads(schema, options.message, options.columns, newest)
        is_indexed = options.framing == "confluent"
        return IndexedMessages(schema, options.message, messages) if is_indexed else messages
    if options.decode == "avro":
        kind = FramedAvro if options.framing == "avro" else AvroPayloads
        return kind(options.avro, options.columns, options.reader)
    return None


def decoded_columns(
    options: TableOptions, payloads: pa.Array, schemas: SchemaGroup | None = None
) -> dict[str, pa.Array]:
    """Return the columns decoded from payloads: the event time, the fields, and the error column.

    Args:
        options: the table's options.
        payloads: the payloads.
        schemas: as for `parser_of`.

    Raises:
        Usage: as `parser_of`.
    """
    parser = parser_of(options, schemas)
    if parser is None:
        return {}
    parsed = parser.parse(payloads)
    columns, reasons = parsed.columns, with_hints(options.framing, payloads, parsed)
    decoded = dict(zip([column.column for column in options.columns], columns, strict=True))
    if options.event_time:
        unit = options.event_time_unit
        times, wrong = convert_each(
            _field(options, decoded), lambda some: as_time(some, unit), lambda some: not_times(some, unit)
        )
        reasons = also(reasons, wrong, misfit(options.event_time, times.type))
        decoded[EVENT_TIME] = times
    return {**decoded, ERROR: pc.utf8_slice_codeunits(reasons, 0, MAX_TEXT)}


def _field(options: TableOptions, columns: dict[str, pa.Array]) -> pa.Array:
    """Return the values of the event time's field: a column, or a member of a struct (with dots)."""
    column, path, _ = time_field(options.columns, options.event_time)
    found = columns[column.column]
    for name in path:
        found = pc.struct_field(found, name)
    return found


def time_field(columns: tuple[TableColumn, ...], field: str) -> tuple[TableColumn, list[str], pa.DataType]:
    """Return the column of a field, the path from there to the field, and the field's type.

    Raises:
        KeyError: there is no such field.
    """
    for column in columns:
        if column.field == field:
            return column, [], arrow_type(column.type)
    first, _, rest = field.partition(".")
    column = next((column for column in columns if column.field == first), None)  # type: ignore[assignment]
    if column is None or not rest:
        raise KeyError(field)
    kind, path = arrow_type(column.type), rest.split(".")
    for name in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            raise KeyError(field)
        kind = kind.field(name).type
    return column, path, kind


class EventDecoder:
    """Decodes events without a table: adds a column for each field of a group's schemas, and `ERROR`.

    The latter says what is not decoded.

    Args:
        group: the encodings of the events.

    Attributes:
        fields: the added columns.
        warnings: what of the schemas gives no columns.

    Raises:
        Usage: no schema of the group has a field with a column.
    """

    def __init__(self, group: SchemaGroup) -> None:
        columns, readers, left_out, self.warnings = columns_of(group)
        self.warnings += left_out_warning(left_out)
        self.fields = [*(pa.field(one.column, arrow_type(one.type)) for one in columns), pa.field(ERROR, pa.string())]
        self._parser = RegisteredPayloads(columns, readers, group)

    def schema_with(self, events: pa.Schema) -> pa.Schema:
        """Return the schema of events with the added columns."""
        return pa.schema([*events, *self.fields])

    def decode(self, events: pa.RecordBatch, columns: Iterable[str]) -> pa.RecordBatch:
        """Return columns of some events, their own or added ones; the events have a column ``payload``."""
        payloads = events.column("payload")
        parsed = self._parser.parse(payloads)
        reasons = pc.utf8_slice_codeunits(with_hints("pravega", payloads, parsed), 0, MAX_TEXT)
        added = zip(self.fields, [*parsed.columns, reasons], strict=True)
        held = dict(zip(events.schema.names, events.columns, strict=True)) | {one.name: column for one, column in added}
        return pa.RecordBatch.from_arrays([held[name] for name in columns], names=list(columns))


@lru_cache(maxsize=4)
def decoder_of(group: SchemaGroup) -> EventDecoder:
    """Return the decoder of a group's events; raises as `EventDecoder`."""
    return EventDecoder(group)
