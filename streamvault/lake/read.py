"""The *read* command: an archive's events as Arrow record batches, without a restore and without Spark.

Convert events to Arrow record batches: the only place that defines an event's columns.

Columns are made from the offsets of the events and the bytes as they are, without a Python value for each event;
payloads are copied once, from the segment's bytes into a column.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamvault.common.errors import Damaged, Overtaken, Problem, Usage
from streamvault.common.options import verb
from streamvault.common.units import count_text
from streamvault.lake.payloads import integers, numbers, text, texts, without_header
from streamvault.lake.reports import ReadOptions
from streamvault.layouts.layout import WINDOW
from streamvault.manifests import damage
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.history import History, check_boundaries, select_parts
from streamvault.sources.schemas import Encodings, needless_registry
from streamvault.streamstore.cuts import parse_cut, segments_between
from streamvault.streamstore.events import EventBlock, EventSplitter
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import ANY_EVENT_BYTES, HEADER_BYTES, SegmentId, StreamName

EVENT_SCHEMA = pa.schema(
    [
        pa.field("scope", pa.string()),
        pa.field("stream", pa.string()),
        pa.field("epoch", pa.int32()),
        pa.field("segment", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("length", pa.int32()),
        pa.field("pointer", pa.string()),
        pa.field("payload", pa.binary()),
    ]
)
"""An event's columns.

``epoch`` and ``segment`` are creation epoch and number of the segment, ``offset`` that of the event's header in it
(bytes), ``length`` with the 8-byte header as in the event pointer, ``pointer`` the text form
``scope/stream/N.#epoch.E:O-L``, ``payload`` the event without its header. The order of a stream is that of (epoch,
segment, offset).
"""

BATCH_BYTES = 4 * 1024 * 1024
"""Maximum segment bytes of a batch, unless a single event is larger; a range's blocks are rarely larger."""


FIRST_BYTES = 64
"""Segment bytes of the first batch of a reader that may stop early; each further one is twice as large."""


def event_batches(
    stream: StreamName,
    segment: SegmentId,
    start: int,
    blocks: Iterable[bytes | bytearray | memoryview],
    schema: pa.Schema = EVENT_SCHEMA,
    first: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the events of a part of a segment, in order, as batches of `EVENT_SCHEMA`.

    Memory: one block and its batch; a batch does not refer to the block's memory.

    Args:
        stream: the events' stream.
        segment: the events' segment.
        start: offset of the first event's header (bytes).
        blocks: the segment's bytes from ``start`` on, cut anywhere; the last event must be complete.
        schema: the columns of `EVENT_SCHEMA` to compute.
        first: segment bytes of the first batch, each further one being twice as large, up to `BATCH_BYTES`; None
            for batches of that size.

    Raises:
        NotAnEvent: the bytes are not events, or the last event is incomplete.
    """
    for events in event_blocks(start, segment.in_stream(stream), blocks, first):
        yield batch_of(stream, segment, events, schema)


def event_blocks(
    start: int, where: str, blocks: Iterable[bytes | bytearray | memoryview], first: int | None = None
) -> Iterator[EventBlock]:
    """Yield the events of a part of a segment, in order, in blocks small enough for one batch each.

    Args:
        start: offset of the first event's header (bytes).
        where: the segment's name for messages.
        blocks: the segment's bytes from ``start`` on, cut anywhere; the last event must be complete.
        first: as in `event_batches`.

    Raises:
        NotAnEvent: the bytes are not events, or the last event is incomplete.
    """
    splitter = EventSplitter(start, where, largest=ANY_EVENT_BYTES, starts=True)
    for block in _gathered(blocks, first):
        yield from splitter.feed(block)
    splitter.finish()


def _gathered(blocks: Iterable[bytes | bytearray | memoryview], first: int | None) -> Iterator[memoryview]:
    """Yield the same bytes in blocks, each valid until the next is requested; the last may be smaller.

    For ``first``, see `event_batches`. The end of each block cuts an
    event in two, whose row becomes a batch of its own.
    """
    held, size, full = memoryview(bytearray(BATCH_BYTES)), 0, first or BATCH_BYTES
    try:
        for block in blocks:
            left = memoryview(block)
            while left:
                some, left = left[: full - size], left[full - size :]
                if len(some) == full:
                    yield some
                else:
                    held[size : size + len(some)] = some
                    size += len(some)
                    if size < full:
                        continue
                    size = 0
                    yield held[:full]
                full = min(2 * full, BATCH_BYTES)
    except Problem:  # damage is found at the end of a range, after its bytes
        yield held[:size]
        raise
    yield held[:size]


def batch_of(
    stream: StreamName, segment: SegmentId, events: EventBlock, schema: pa.Schema = EVENT_SCHEMA
) -> pa.RecordBatch:
    """Return events of one segment as a batch of `EVENT_SCHEMA`, or of some of its columns."""
    starts = _starts(events)
    offset = numbers(starts[:-1].astype(np.int64) + events.offset)
    length = numbers(np.diff(starts))
    whole = pa.Array.from_buffers(pa.binary(), events.count, [None, pa.py_buffer(starts), pa.py_buffer(events.data)])
    makers: dict[str, Callable[[], pa.Array]] = {
        "scope": lambda: texts(stream.scope, events.count),
        "stream": lambda: texts(stream.stream, events.count),
        "epoch": lambda: integers(segment.epoch, events.count),
        "segment": lambda: integers(segment.number, events.count),
        "offset": lambda: offset,
        "length": lambda: length,
        "pointer": lambda: pc.binary_join_element_wise(
            text(f"{segment.in_stream(stream)}:"),
            offset.cast(pa.string()),
            text("-"),
            length.cast(pa.string()),
            text(""),
        ),
        "payload": lambda: without_header(whole, HEADER_BYTES),
    }
    return pa.RecordBatch.from_arrays([makers[name]() for name in schema.names], schema=schema)


def _starts(events: EventBlock) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return the position of each event in the data, followed by the end of the last one."""
    starts, data = events.starts, events.data
    if starts is None and events.count:
        [again] = EventSplitter(0, largest=ANY_EVENT_BYTES, starts=True).feed(data)
        starts = again.starts
    found = np.full(events.count + 1, len(data), np.int32)
    found[:-1] = 0 if starts is None else starts
    return found


class ArrowEvents:
    """An archive's events as Arrow data, which is read anew each time: whole, or batch by batch.

    Anything that accepts Arrow accepts it, by ``__arrow_c_stream__``.

    Args:
        schema: its columns.
        read: returns its batches.
        warnings: what of the events' schemas cannot be used, or that they are not.

    Attributes:
        schema: its columns.
        warnings: as given.
    """

    def __init__(
        self, schema: pa.Schema, read: Callable[[], Iterator[pa.RecordBatch]], warnings: tuple[str, ...] = ()
    ) -> None:
        self.schema = schema
        self.warnings = warnings
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
        decode: ``"registry"`` adds a column for each field of the schemas by which Pravega's serializers have encoded
            the events, and ``_error``, which says what could not be decoded; None adds none.
        registry: URL of Pravega's Schema Registry; None for the schemas that the archive has noted.
        group: the events' group there; None for that of the noted schemas, or the stream's name.
        window: maximum data to buffer in memory (bytes).
        unverified: return events as they are read. A range that is read to its end is compared there, and an error is
            raised if it differs; one that is not is not compared.
        limit: return at most this many events. Without cuts, generations after these are not looked at.

    Raises:
        NoSuchArchive: there is no archive, or not that generation.
        InvalidCut: a cut is not valid for this archive.
        Usage: an unknown column, or the archive is of a byte stream; or nothing says how the events are encoded.
        RegistryFailed: the registry cannot be reached.
        Damaged: the manifests are not valid; while batches are read: an object is missing or changed. The error says
            how many events of the damaged range were returned before.
        Overtaken: while batches are read: a range expired, or was merged after some of its events were returned.
    """
    schema = schema_of(options.columns)
    source = Archive.open(archive)
    history = _history(source, options)
    start, end = (parse_cut(cut, source.stream, history.sealed_end) for cut in (options.from_cut, options.to_cut))
    history.generations[-1].manifest.require_events(source.uri)
    parts = select_parts(source.address, history, start, end)
    check_boundaries(source.stream, parts)

    decoder, wanted = None, schema
    if options.decode is not None:
        from streamvault.lake.decoding import decoder_of  # noqa: PLC0415  (imports what decodes each format)

        noted = source.noted_schemas(one.manifest for one in history.generations)
        decoder = decoder_of(Encodings.of(source.stream, noted, options.registry, options.group).read())
        wanted = decoder.schema_with(schema)
        if "payload" not in schema.names:
            schema = schema.append(EVENT_SCHEMA.field("payload"))

    def batches() -> Generator[pa.RecordBatch, None, None]:
        window, verify, left = options.window, not options.unverified, options.limit
        first: int | None = FIRST_BYTES
        for part in parts:
            if left == 0:
                return
            for batch in read_part(source.stream, part, schema=schema, window=window, verify=verify, first=first):
                yield batch.slice(0, left)
                if left is not None and (left := max(0, left - batch.num_rows)) == 0:
                    return
            first = None

    if decoder is None:
        return ArrowEvents(schema, batches, needless_registry(options.registry, options.group))
    decode, names = decoder.decode, wanted.names
    return ArrowEvents(wanted, lambda: (decode(batch, names) for batch in batches()), decoder.warnings)


def _history(source: Archive, options: ReadOptions) -> History:
    """Return the generations that have the events asked for: the first few are in the first few generations."""
    if options.limit is None or options.from_cut is not None or options.to_cut is not None:
        return source.history(options.generation, keep="none")
    spans, few = source.stable(lambda listing: source.in_force(listing, options.generation)), 1
    while few < len(spans):
        with suppress(NoSuchArchive):  # it has expired since
            history = source.history(spans[few - 1].last, keep="none")
            if _has_first(history, options.limit):
                return history
        few *= 2
    return source.history(options.generation, keep="none")


def _has_first(history: History, count: int) -> bool:
    """Return whether an archive's first events, so many, are in some of its first generations."""
    tail = history.tail.offsets
    for segment in segments_between(history.description, history.head, history.tail):
        end = tail.get(segment)
        count -= sum(row.events for _, row in history.ranges(segment) if end is None or row.end <= end)
        if count <= 0 or end is not None:
            break  # an open segment goes on in the next generation
    return count <= 0


class Expired(Overtaken):
    """A range expired from its archive after it was chosen and before it was read."""


def read_part(
    stream: StreamName,
    part: damage.ArchivedPart,
    *,
    schema: pa.Schema = EVENT_SCHEMA,
    window: int = WINDOW,
    verify: bool = True,
    first: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a range's events as batches of the schema; see `read_archive` for what is verified, and when.

    If generations were merged since the range was chosen, it is read from the merged one. For ``first``, see
    `event_batches`.

    Raises:
        Damaged: an object is missing or changed; says how many of the range's events were yielded before.
        Expired: the range has expired since it was chosen.
        Overtaken: generations were merged after some of the range's events had been yielded.
    """
    count = 0
    try:
        blocks = damage.read_part(part, window, verify=verify)
        for batch in event_batches(stream, part.segment, part.start, blocks, schema, first):
            yield batch
            count += batch.num_rows
    except NotAnEvent:
        raise _naming_returned(damage.damaged_range(part), count) from None
    except Damaged as damaged:
        held = _in_force(stream, part)
        if held == [part]:
            raise _naming_returned(damaged, count) from None
        if count:
            what = f"generations were merged while they were read, after {count_text(count, 'event')} of a range"
            raise Overtaken(what, where=damaged.where, todo="Read again, from the merged generation.") from None
        for one in held:
            yield from read_part(stream, one, schema=schema, window=window, verify=verify, first=first)


def _in_force(stream: StreamName, part: damage.ArchivedPart) -> list[damage.ArchivedPart]:
    """Return where an archive has the bytes of a part now: the part itself, unless it was merged meanwhile.

    Raises:
        Expired: it has expired.
        NoSuchArchive: the archive was deleted.
    """
    archive = Archive(part.address.root, stream)
    held = [
        replace(part, layout=layout, row=row, start=max(part.start, row.start), end=min(part.end, row.end))
        for layout, row in archive.history(keep="none").ranges(part.segment)
        if row.start < part.end and part.start < row.end
    ]
    if sum(one.end - one.start for one in held) < part.end - part.start:
        raise Expired(
            "a range expired from the archive before it was read",
            where=f"{archive.uri}, bytes {part.start} to {part.end} of segment {part.segment}",
            todo="Read again what is left; a hold ('streamvault hold') keeps generations from expiring.",
        )
    return held


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
        what = "unknown column" if wrong else "each column must be named once" if columns else "no column is named"
        names = ", ".join(wrong or columns) or "none"
        raise Usage(what, where=names, todo=f"Available: {', '.join(EVENT_SCHEMA.names)}.")
    return pa.schema([EVENT_SCHEMA.field(name) for name in columns])
