"""The *read* command: an archive's events as Arrow record batches, without a restore and without Spark."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import pyarrow as pa

from streamvault.common.errors import Damaged, Usage
from streamvault.common.sizes import count_text
from streamvault.common.verb import verb
from streamvault.lake.batches import EVENT_SCHEMA, FIRST_BYTES, event_batches
from streamvault.lake.options import ReadOptions
from streamvault.layouts.place import Place
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.archive import range_bytes
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.selection import RangePart, check_boundaries, select_parts
from streamvault.streamstore.arithmetic.cut_option import parse_cut
from streamvault.streamstore.arithmetic.framing import NotAnEvent
from streamvault.streamstore.model import StreamName


class ArrowEvents:
    """An archive's events as Arrow data, which is read anew each time: whole, or batch by batch.

    Anything that accepts Arrow accepts it, by ``__arrow_c_stream__``.

    Args:
        schema: its columns.
        read: returns its batches.

    Attributes:
        schema: its columns.
    """

    def __init__(self, schema: pa.Schema, read: Callable[[], Generator[pa.RecordBatch, None, None]]) -> None:
        self.schema = schema
        self._read = read

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of events."""
        return self._read()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the events for other libraries."""
        return self._reader().__arrow_c_stream__(requested_schema)

    def read_all(self) -> pa.Table:
        """Return all events at once, in memory."""
        return self._reader().read_all()

    def read_pandas(self, **options: Any) -> Any:
        """Return all events at once as a data frame; takes the options of ``pyarrow.Table.to_pandas``."""
        return self._reader().read_pandas(**options)

    def _reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self._read())


@verb(ReadOptions)
def read_archive(archive: str, options: ReadOptions) -> ArrowEvents:
    """Return an archive's events in the stream's order: by the segment's creation epoch and number, then offset.

    Iterate over the result for batches, or call its ``read_all()`` for a table, its ``read_pandas()`` for a data frame.
    Anything that accepts Arrow accepts it: DuckDB, pandas, polars, PyArrow. Each time, the archive is read anew.
    Memory is bounded by a few batches of at most about 4 MiB of events plus the window, however long the archive is.

    Each range is compared with its digest before the first of its events is returned, also if a cut leaves out a part.
    A range that is larger than the window (and an event of 8 MiB) is read twice for that.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        from_cut: skip events before this stream cut (JSON text or a mapping).
        to_cut: skip events after this stream cut.
        generation: read up to this generation; None for the newest.
        columns: which of ``scope, stream, epoch, segment, offset, length, pointer, payload`` to compute, in this order;
            None for all.
        window: maximum data to buffer in memory (bytes).
        unverified: return events as they are read. A range that is read to its end is compared there, and an error is
            raised if it differs; one that is not is not compared.

    Raises:
        NoSuchArchive: there is no archive, or not that generation.
        InvalidCut: a cut is not valid for this archive.
        Usage: an unknown column, or the archive is of a byte stream.
        Damaged: the manifests are not valid; while batches are read: an object is missing or changed. The error says
            how many events of the damaged range were returned before.
    """
    schema = schema_of(options.columns)
    source = Archive.open(archive)
    history = source.history(options.generation)
    start, end = (parse_cut(cut, source.stream, history.sealed_end) for cut in (options.from_cut, options.to_cut))
    history.generations[-1].manifest.require_events(source.uri)
    parts = select_parts(history, start, end)
    check_boundaries(source.place, source.stream, parts)

    def batches() -> Generator[pa.RecordBatch, None, None]:
        window, verify = options.window, not options.unverified
        first: int | None = FIRST_BYTES
        for part in parts:
            yield from read_part(
                source.place, source.stream, part, schema=schema, window=window, verify=verify, first=first
            )
            first = None

    return ArrowEvents(schema, batches)


def read_part(  # noqa: PLR0913  (the place, and how it is read)
    place: Place,
    stream: StreamName,
    part: RangePart,
    *,
    schema: pa.Schema = EVENT_SCHEMA,
    window: int = WINDOW,
    verify: bool = True,
    first: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a range's events as batches of the schema; see `read_archive` for what is verified, and when.

    For ``first``, see `event_batches`.

    Raises:
        Damaged: an object is missing or changed; says how many of the range's events were yielded before.
    """
    count = 0
    try:
        blocks = range_bytes.read_part(place, part.layout, part.row, (part.start, part.end), window, verify=verify)
        for batch in event_batches(stream, part.segment, part.start, blocks, schema, first):
            yield batch
            count += batch.num_rows
    except NotAnEvent:
        raise _naming_returned(range_bytes.damaged_range(place, part.row), count) from None
    except Damaged as damaged:
        raise _naming_returned(damaged, count) from None


def _naming_returned(damaged: Damaged, count: int) -> Damaged:
    """Return the error with what was returned of the range before it."""
    if not count:
        return damaged
    todo = f"{count_text(count, 'event')} of this range came before this error and may be wrong. {damaged.todo}"
    return type(damaged)(damaged.what, where=damaged.where, todo=todo)


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
