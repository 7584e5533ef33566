"""The verb *read*: an archive's events as Arrow record batches, without restoring and without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from common.errors import Usage
from lake.batches import EVENT_SCHEMA, event_batches
from layouts.layout import open_reader
from layouts.place import Place
from manifests.archive import Archive
from manifests.selection import RangePart, check_boundaries, select_parts
from streamstore.model import StreamCut, StreamName

__all__ = ["READ_WINDOW", "open_parts", "read_archive", "read_part", "schema_of"]

Cut = str | Mapping[str, int]

READ_WINDOW = 32 * 1024 * 1024
"""What a reader holds (bytes) of what is on its way."""


def read_archive(
    archive: str,
    *,
    from_cut: Cut | None = None,
    to_cut: Cut | None = None,
    generation: int | None = None,
    columns: Sequence[str] | None = None,
    window: int = READ_WINDOW,
) -> pa.RecordBatchReader:
    """An archive's events in the stream's order: creation epoch and number of the segment, then offset.

    Anything that takes Arrow takes the reader: DuckDB, pandas, polars, PyArrow. Memory is bounded: a few batches of
    some 4 MiB of events and the window, however long the archive is. A reader is read once.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        from_cut: only what lies behind this cut of the archived stream (JSON text or a mapping).
        to_cut: only what lies before this cut.
        generation: up to this generation; None for the newest.
        columns: some of ``scope, stream, epoch, segment, offset, length, pointer, payload``, in the order wanted; None
            for all. What is not asked for is not made.
        window: bytes to hold of what is on its way.

    Raises:
        NoSuchArchive: there is none, or not that generation. InvalidCut, Usage: a cut or a column that cannot be
            meant. Damaged: the manifests are not valid; while batches are read also, that an object is missing or
            changed.
    """
    schema = schema_of(columns)
    source, parts = open_parts(archive, from_cut=from_cut, to_cut=to_cut, generation=generation)

    def batches() -> Iterator[pa.RecordBatch]:
        for part in parts:
            yield from read_part(source.place, source.stream, part, schema=schema, window=window)

    return pa.RecordBatchReader.from_batches(schema, batches())


def open_parts(
    archive: str, *, from_cut: Cut | None = None, to_cut: Cut | None = None, generation: int | None = None
) -> tuple[Archive, list[RangePart]]:
    """An archive and what of it lies between two cuts; arguments and errors as for `read_archive`."""
    source = Archive.open(archive)
    start, end = (
        None if cut is None else StreamCut.from_json(_plain(cut), source.stream) for cut in (from_cut, to_cut)
    )
    parts = select_parts(source.history(generation), start, end)
    check_boundaries(source.place, source.stream, parts)
    return source, parts


def read_part(
    place: Place,
    stream: StreamName,
    part: RangePart,
    *,
    schema: pa.Schema = EVENT_SCHEMA,
    window: int = READ_WINDOW,
) -> Iterator[pa.RecordBatch]:
    """A range's events, as batches of the schema.

    Raises:
        Damaged: an object is missing or changed. NotAnEvent: what is stored is not events.
    """
    blocks = open_reader(part.layout).read_range(place, part.row.extent, part.start, part.end, window)
    return event_batches(stream, part.segment, part.start, blocks, schema)


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Some of an event's columns, all if None.

    Raises:
        Usage: there is no such column, or one is named twice.
    """
    if columns is None:
        return EVENT_SCHEMA
    wrong = [name for name in columns if name not in EVENT_SCHEMA.names]
    if wrong or not columns or len(set(columns)) != len(columns):
        what = "no such column" if wrong else "columns have to be named once each"
        names = ", ".join(wrong or columns) or "none"
        raise Usage(what, where=names, todo=f"There are {', '.join(EVENT_SCHEMA.names)}.")
    return pa.schema([EVENT_SCHEMA.field(name) for name in columns])


def _plain(cut: Cut) -> str | dict[str, int]:
    return cut if isinstance(cut, str) else dict(cut)
