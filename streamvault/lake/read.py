"""The *read* command: an archive's events as Arrow record batches, without a restore and without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from streamvault.common.errors import Usage
from streamvault.lake.batches import EVENT_SCHEMA, event_batches
from streamvault.layouts.layout import open_reader
from streamvault.layouts.place import Place
from streamvault.manifests.archive import Archive
from streamvault.manifests.selection import RangePart, check_boundaries, select_parts
from streamvault.streamstore.cut_option import parse_cut
from streamvault.streamstore.model import StreamName

__all__ = ["READ_WINDOW", "read_archive", "read_part", "schema_of"]

Cut = str | Mapping[str, int]

READ_WINDOW = 32 * 1024 * 1024
"""Default of the maximum data a reader buffers (bytes)."""


def read_archive(
    archive: str,
    *,
    from_cut: Cut | None = None,
    to_cut: Cut | None = None,
    generation: int | None = None,
    columns: Sequence[str] | None = None,
    window: int = READ_WINDOW,
) -> pa.RecordBatchReader:
    """Return an archive's events in the stream's order: by the segment's creation epoch and number, then offset.

    Anything that accepts Arrow accepts the reader: DuckDB, pandas, polars, PyArrow. Memory is bounded by a few batches
    of about 4 MiB of events plus the window, however long the archive is. A reader can be read once.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        from_cut: skip events before this stream cut (JSON text or a mapping).
        to_cut: skip events after this stream cut.
        generation: read up to this generation; None for the newest.
        columns: which of ``scope, stream, epoch, segment, offset, length, pointer, payload`` to compute, in this order;
            None for all.
        window: maximum data to buffer in memory (bytes).

    Raises:
        NoSuchArchive: there is no archive, or not that generation.
        InvalidCut: a cut is not valid for this archive.
        Usage: an unknown column, or the archive is of a byte stream.
        Damaged: the manifests are not valid; while batches are read: an object is missing or changed.
    """
    schema = schema_of(columns)
    source = Archive.open(archive)
    history = source.history(generation)
    start, end = (
        parse_cut(cut if cut is None or isinstance(cut, str) else dict(cut), source.stream, history.sealed_end)
        for cut in (from_cut, to_cut)
    )
    history.generations[-1].manifest.require_events(source.uri)
    parts = select_parts(history, start, end)
    check_boundaries(source.place, source.stream, parts)

    def batches() -> Iterator[pa.RecordBatch]:
        for part in parts:
            yield from read_part(source.place, source.stream, part, schema=schema, window=window)

    return pa.RecordBatchReader.from_batches(schema, batches())


def read_part(
    place: Place,
    stream: StreamName,
    part: RangePart,
    *,
    schema: pa.Schema = EVENT_SCHEMA,
    window: int = READ_WINDOW,
) -> Iterator[pa.RecordBatch]:
    """Yield a range's events as batches of the schema.

    Raises:
        Damaged: an object is missing or changed.
        NotAnEvent: the stored bytes are not events.
    """
    blocks = open_reader(part.layout).read_range(place, part.row.extent, part.start, part.end, window)
    return event_batches(stream, part.segment, part.start, blocks, schema)


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of some of an event's columns; of all if None.

    Raises:
        Usage: a column is unknown or repeated.
    """
    if columns is None:
        return EVENT_SCHEMA
    wrong = [name for name in columns if name not in EVENT_SCHEMA.names]
    if wrong or not columns or len(set(columns)) != len(columns):
        what = "unknown column" if wrong else "each column must be named once"
        names = ", ".join(wrong or columns) or "none"
        raise Usage(what, where=names, todo=f"Available: {', '.join(EVENT_SCHEMA.names)}.")
    return pa.schema([EVENT_SCHEMA.field(name) for name in columns])
