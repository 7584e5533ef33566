"""Events whose payloads are decoded by the schemas of a registry, without a table: their fields are further columns."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from streamvault.lake.framing import with_hints
from streamvault.lake.registry import RegisteredPayloads, columns_of, left_out_warning
from streamvault.lake.reports import ERROR, Framing
from streamvault.lake.table import MAX_TEXT, arrow_type
from streamvault.manifests.manifest import SchemaGroup

FRAMING: Framing = "pravega"


class EventDecoder:
    """Adds columns to events: one for each field of a group's schemas, and `ERROR`, which says what is not decoded.

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
        reasons = pc.utf8_slice_codeunits(with_hints(FRAMING, payloads, parsed), 0, MAX_TEXT)
        added = zip(self.fields, [*parsed.columns, reasons], strict=True)
        held = dict(zip(events.schema.names, events.columns, strict=True)) | {one.name: column for one, column in added}
        return pa.RecordBatch.from_arrays([held[name] for name in columns], names=list(columns))


@lru_cache(maxsize=4)
def decoder_of(group: SchemaGroup) -> EventDecoder:
    """Return the decoder of a group's events; raises as `EventDecoder`."""
    return EventDecoder(group)
