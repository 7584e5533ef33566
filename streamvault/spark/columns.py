"""The columns of a query: an event's own, and the fields of its payload if a registry's schemas decode it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructType

from streamvault.common.errors import Usage
from streamvault.lake.decoding import decoder_of
from streamvault.lake.read import EVENT_SCHEMA, schema_of
from streamvault.manifests.archive import Archive
from streamvault.manifests.manifest import SchemaGroup
from streamvault.sources.schemas import Encodings
from streamvault.spark.options import PayloadDecoding
from streamvault.streamstore.model import StreamName


def schemas_of(
    decoding: PayloadDecoding | None,
    stream: StreamName,
    archive: Archive | None = None,
    generation: int | None = None,
) -> SchemaGroup | None:
    """Return the encodings of a stream's events; None if they are not decoded.

    Args:
        decoding: how they are decoded.
        stream: the stream.
        archive: its archive.
        generation: the newest generation that is read, which has noted all that the ones before it have; None for all.

    Raises:
        Usage: nothing says how they are encoded.
        RegistryFailed: the registry cannot be reached.
    """
    if decoding is None:
        return None
    noted = [] if archive is None else archive.noted_schemas([archive.manifest(generation)])
    return Encodings.of(stream, noted, decoding.registry, decoding.group).read()


def spark_schema(columns: Sequence[str] | None, schemas: SchemaGroup | None = None) -> StructType:
    """Return the schema of some of an event's own columns, all of them if None, and of all fields of its payload.

    Raises:
        Usage: a column is unknown.
    """
    own = schema_of(columns)
    return from_arrow_schema(own if schemas is None else decoder_of(schemas).schema_with(own))


class EventColumns:
    """The columns that a query requests: a schema from `spark_schema`, or the user's ``.schema(…)``.

    Args:
        requested: the columns.
        schemas: what decodes the payloads; None if they are not decoded.

    Attributes:
        own: those of an event itself that have to be read.

    Raises:
        Usage: a column is unknown or has another type.
    """

    def __init__(self, requested: StructType, schemas: SchemaGroup | None = None) -> None:
        self._requested = to_arrow_schema(requested, timezone="UTC")
        self._schemas = schemas
        names = requested.fieldNames()
        known = EVENT_SCHEMA if schemas is None else decoder_of(schemas).schema_with(EVENT_SCHEMA)
        if not set(names) <= set(known.names):
            schema_of([name for name in names if name in EVENT_SCHEMA.names or name not in known.names])  # raises
        for name in names:
            wanted, kind = requested[name].dataType.simpleString(), from_arrow_type(known.field(name).type)
            if wanted != kind.simpleString():
                raise Usage(
                    f"the column {name} is of type {kind.simpleString()}",
                    where=f"{wanted} in the schema",
                    todo="Declare it with its own type, and cast it in the query.",
                )
        own = [name for name in names if name in EVENT_SCHEMA.names]
        self._decodes = len(own) < len(names)
        self.own = schema_of(own if "payload" in own or not self._decodes else [*own, "payload"])

    def of(self, events: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of events, which are given with the columns `own`."""
        if self._schemas is None or not self._decodes:
            yield from events
            return
        decoder, requested = decoder_of(self._schemas), self._requested
        for batch in events:
            decoded = decoder.decode(batch, requested.names)
            columns = [column.cast(kind) for column, kind in zip(decoded.columns, requested.types, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=requested)
