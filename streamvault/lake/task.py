"""Write one file of a table: one task, with the memory of a row group.

Sources of a table's bytes, for tasks: the objects of an archive, or the stream itself.

An origin (`lake.plan`) decides which ranges a table gets.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import mmap
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import IO, ClassVar, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from streamvault.common.errors import Conflict, Failed, Usage
from streamvault.lake.decoding import decoded_columns
from streamvault.lake.payloads import binaries, integers
from streamvault.lake.read import batch_of, event_blocks
from streamvault.lake.reports import ERROR
from streamvault.lake.table import EVENT_TIME, GENERATION, GENERATION_DAY, TableOptions
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.isolated import NotDecodable
from streamvault.layouts.keys import PlaceAddress, table_file_key
from streamvault.layouts.table import read_facts
from streamvault.layouts.table_decoder import RANGES, ROW_GROUP_BYTES
from streamvault.manifests.damage import ArchivedPart, damaged_range, read_verified
from streamvault.manifests.manifest import SchemaGroup
from streamvault.manifests.spans import SegmentSpan, Span
from streamvault.objectstore.store import AlreadyExists, NoSuchObject, ObjectStore
from streamvault.sources.reader import LargeEventReader, RunReader, SegmentReader, not_events
from streamvault.streamstore.errors import InvalidName
from streamvault.streamstore.events import EventBlock
from streamvault.streamstore.framing import NotAnEvent
from streamvault.streamstore.model import LARGEST_EVENT_BYTES, Range, SegmentId, StreamName
from streamvault.streamstore.uri import StoreAddress


@dataclass(frozen=True, slots=True)
class TableRange(Range):
    """A range of the table, which begins and ends between events.

    Attributes:
        parts: the archive's ranges that contain it, in order and without a hole; none if it is read from a stream.
    """

    parts: tuple[ArchivedPart, ...] = ()

    @property
    def known(self) -> ArchivedRange | None:
        """Its row in the index; None if it is not a range of the archive, so that its digest is not known yet."""
        if len(self.parts) != 1 or (self.parts[0].start, self.parts[0].end) != (self.start, self.end):
            return None
        # these belong to the archive's objects
        return replace(self.parts[0].row, frames=(), crc64nvme="", block_checksums="")


class EventSource(Protocol):
    """Reads the bytes of a task's ranges; small, to be sent to tasks."""

    is_whole: ClassVar[bool]
    """Whether it has every byte of every range. If not, missing bytes are a gap."""

    def runs(self, planned: TableRange) -> Iterator[ArchivedRun | RunReader | LargeEventReader]:
        """Yield the range's events, in order, usually as one run; read each run completely before the next.

        Bytes before, between and after the runs are gone at the source.
        """


@dataclass(frozen=True, slots=True)
class ArchivedEvents:
    """A `EventSource` that reads an archive and checks every range's digest, before the last block's iteration ends.

    Attributes:
        window: maximum data buffered in memory (bytes).
    """

    window: int
    is_whole: ClassVar[bool] = True

    def runs(self, planned: TableRange) -> Iterator[ArchivedRun]:
        """See `EventSource.runs`."""
        yield ArchivedRun(planned, self.window)


class ArchivedRun:
    """Consecutive events of a segment, to be read once from an archive; of a stream, `RunReader` is the same.

    Attributes:
        start: offset of the first event (bytes).
        end: offset after the last event so far (bytes).
        count: number of events so far.
    """

    def __init__(self, planned: TableRange, window: int) -> None:
        self._range = planned
        self._window = window
        self._digest = hashlib.sha256()
        self.start = self.end = planned.start
        self.count = 0

    @property
    def digest(self) -> str:
        """SHA-256 of the events' bytes, headers included, hexadecimal; valid after all blocks were read."""
        known = self._range.known
        return known.digest if known else self._digest.hexdigest()

    def blocks(self) -> Iterator[EventBlock]:
        """Yield blocks of complete events, each valid until the next one is requested.

        Raises:
            Damaged: the bytes differ from the archived ones; the yielded events must not be used.
        """
        planned, known, first = self._range, self._range.known, self._range.parts[0]
        try:
            for events in event_blocks(planned.start, str(planned.segment), self._bytes()):
                self.count += events.count
                self.end = events.end
                yield events
        except NotAnEvent:
            raise damaged_range(first) from None
        if known and (self.end, self.count) != (planned.end, known.events):
            raise damaged_range(first)

    def _bytes(self) -> Iterator[bytes | memoryview]:
        """Yield the range's bytes. A partly used archived range is read completely, to check its digest."""
        planned, known = self._range, self._range.known
        for part in planned.parts:
            at = part.start
            for block in read_verified(part, self._window):  # a file is published whole
                low, high = max(planned.start - at, 0), min(planned.end - at, len(block))
                if low < high:
                    inside = memoryview(block)[low:high]
                    if not known:  # a whole archived range's digest is compared while it is read
                        self._digest.update(inside)
                    yield inside
                at += len(block)


@dataclass(frozen=True, slots=True)
class LiveEvents:
    """A `EventSource` that reads the stream itself.

    Attributes:
        address: address of the stream's store.
        stream: the stream.
        largest: the largest payload to accept (bytes).
    """

    address: StoreAddress
    stream: StreamName
    largest: int = LARGEST_EVENT_BYTES
    is_whole: ClassVar[bool] = False

    def runs(self, planned: TableRange) -> Iterator[RunReader | LargeEventReader]:
        """See `EventSource.runs`."""
        with self.address.lend() as store:
            span = Span(planned.start, planned.end, known=True)
            of_segment = SegmentSpan(self.address, self.stream, planned.segment, planned.end, span, self.largest)
            yield from SegmentReader(store, of_segment, planned.start).runs()


MEMORY_BYTES = 2 * ROW_GROUP_BYTES
"""Size of a row group's columns in memory, which may be many times the segment's bytes: an event of ten has a row of a
hundred. A larger batch is a row group by itself."""

_TERSE = ("scope", "stream", "epoch", "segment", GENERATION, GENERATION_DAY, "length", ERROR)
"""Columns with few distinct values, encoded as dictionaries."""


@dataclass(frozen=True, slots=True)
class FileTask:
    """Specification of a task that writes one file.

    Attributes:
        source: source of the ranges' bytes.
        folder: the table's folder.
        generation: number of the file's generation.
        created: when that was made, as in its manifest.
        ranges: the file's ranges, in order.
        options: the table's options.
        schemas: those of the events' group in a Schema Registry.
        file_id: that of the plan, see `TablePlan`.
    """

    source: EventSource
    folder: PlaceAddress
    generation: int
    created: datetime
    ranges: tuple[TableRange, ...]
    options: TableOptions
    schemas: SchemaGroup | None = None
    file_id: str = ""

    @property
    def key(self) -> str:
        """The file's key below the root; it depends only on the plan and the first range."""
        first = self.ranges[0]
        return self.folder.prefix + table_file_key(self.generation, first.segment, first.start, self.file_id)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of a table.

    Attributes:
        ranges: the file's ranges. If bytes are gone at the source, a planned range has no row here, or several; a file
            without any records, for all runs, that everything was gone when it was written.
        undecoded: events with a reason in the column `_error`; -1 if unknown.
        moved: segment bytes that this task wrote.
        size: size of the file (bytes).
    """

    ranges: tuple[ArchivedRange, ...]
    undecoded: int
    moved: int
    size: int


def write_file(task: FileTask) -> WrittenFile:
    """Write the file unless it exists. Repeated or concurrent calls leave one file.

    Raises:
        Damaged: the archive's bytes do not match the manifest; nothing is written.
        NotEvents: the stream's bytes are not events.
        Conflict: a file with this name has other ranges.
        Failed: there is no space for temporary files.
    """
    target = task.folder.root.open()
    held = _find(target, task)
    if held is not None:
        return held
    try:
        with tempfile.TemporaryFile(prefix="streamvault-") as spool:
            ranges, undecoded = _write(task, spool)
            size = spool.tell()
            # Not closed here: the client library may still refer to it, and it is freed with the last reference.
            target.put(task.key, memoryview(mmap.mmap(spool.fileno(), size, access=mmap.ACCESS_READ)))
    except AlreadyExists:
        held = _find(target, task)
        if held is None:
            raise
        return held
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        where, todo = tempfile.gettempdir(), "Free space there, or set TMPDIR."
        raise Failed("no space left for a temporary file", where=where, todo=todo) from None
    return WrittenFile(ranges, undecoded, sum(row.end - row.start for row in ranges), size)


def check_sample(options: TableOptions, payloads: Sequence[bytes], schemas: SchemaGroup | None = None) -> None:
    """Check that payloads of a sample can be decoded and written, before anything of a new table exists.

    Raises:
        Usage: every payload has values that do not fit the options. A schema of Avro or Protobuf is the records' own:
            with it, some fields of all events may have no value that query engines know.
    """
    decoded = decoded_columns(options, binaries(payloads), schemas)
    reasons = decoded[ERROR]
    needed = [EVENT_TIME] if options.event_time else []
    all_null = [name for name, column in decoded.items() if column.null_count == len(column)]
    has_own = options.decode in {"avro", "protobuf", "registry"}
    is_hopeless = not has_own or len(all_null) == len(decoded) - 1 or {*needed} & {*all_null}
    if payloads and not reasons.null_count and is_hopeless:
        what = f"none of the {len(payloads):,} events in a sample can be decoded"
        todo = "Change --decode, --schema or --event-time."
        raise Usage(what, where=str(reasons[0]), todo=todo)
    schema = options.schema
    columns = [decoded.get(field.name, pa.nulls(len(payloads), field.type)) for field in schema]
    with _writer(io.BytesIO(), options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def blank_file(task: FileTask) -> None:
    """Put a file without rows in place of a file of a generation that stays empty.

    The name is then taken, so that even a late task cannot add rows to the folder.
    """
    target = task.folder.root.open()
    written = io.BytesIO()
    pq.write_table(task.options.schema.empty_table(), written)
    data = written.getvalue()
    while True:
        try:
            target.put(task.key, data)
        except AlreadyExists:
            with suppress(NoSuchObject):  # another run deletes it to the same end
                if target.size(task.key) == len(data):  # any other file lists its ranges, and is larger
                    return
            target.delete([task.key])
        else:
            return


def _write(task: FileTask, spool: IO[bytes]) -> tuple[tuple[ArchivedRange, ...], int]:
    """Write the file's content; return its ranges, and how many events have a reason in the column `_error`."""
    written = _attempt(task, spool, ())
    misleading = _misleading(pq.read_metadata(spool))
    if misleading:
        written = _attempt(task, spool, misleading)
    spool.seek(0, os.SEEK_END)
    return written


def _attempt(task: FileTask, spool: IO[bytes], bare: Collection[str]) -> tuple[tuple[ArchivedRange, ...], int]:
    """Write the file's content, without statistics of some columns."""
    schema = task.options.schema
    undecoded = 0
    ranges: list[ArchivedRange] = []
    spool.seek(0)
    spool.truncate()
    # through its own descriptor, so that Arrow writes without calling Python
    with (
        pa.OSFile(f"/dev/fd/{spool.fileno()}", "wb") if os.path.exists("/dev/fd") else pa.PythonFile(spool) as sink,  # noqa: PTH110
        _writer(sink, task.options, bare) as writer,
    ):
        held: list[pa.RecordBatch] = []
        size = memory = 0
        for batch, length in _batches(task, ranges):
            if held and (size + length > ROW_GROUP_BYTES or memory + batch.nbytes > MEMORY_BYTES):
                writer.write_table(pa.Table.from_batches(held), row_group_size=1 << 30)
                held, size, memory = [], 0, 0
            held.append(batch)
            size += length
            memory += batch.nbytes
            if ERROR in schema.names:
                undecoded += len(batch) - batch[ERROR].null_count
        if held:
            writer.write_table(pa.Table.from_batches(held), row_group_size=1 << 30)
        writer.add_key_value_metadata({RANGES: _ranges_text(task, ranges)})
    return tuple(ranges), undecoded


def _writer(sink: object, options: TableOptions, bare: Collection[str] = ()) -> pq.ParquetWriter:
    schema = options.schema
    terse = [name for name in _TERSE if name in schema.names]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=[*terse, *(column.column for column in options.columns)],
        write_statistics=[name for name in schema.names if name != "payload" and name not in bare],
        store_schema=False,
        write_page_checksum=True,
    )


def _misleading(metadata: pq.FileMetaData) -> set[str]:
    """Return the columns whose statistics PyIceberg cannot take, or would understand wrongly.

    It ignores row groups without a least and a greatest value, which Arrow leaves out if they are long, so that queries
    would skip these rows. And it makes an upper bound of a long text by adding one to a character, of which U+D7FF has
    no next.
    """
    found = set()
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            statistics = column.statistics
            if statistics is None or column.physical_type in {"FLOAT", "DOUBLE"}:  # of which NaN is in no bounds
                continue
            if not statistics.has_min_max:
                is_wrong = statistics.null_count < metadata.row_group(group).num_rows
            else:
                is_wrong = isinstance(statistics.max, str) and "\ud7ff" in statistics.max
            if is_wrong:
                found.add(column.path_in_schema)
    return found


def _batches(task: FileTask, ranges: list[ArchivedRange]) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the file's rows, with the segment bytes of each batch.

    A run of events is added to ``ranges`` after its last batch; an archive's run is proved by then.
    """
    schema, stream = task.options.schema, task.options.name
    for planned in task.ranges:
        for run in task.source.runs(planned):
            try:
                for events in run.blocks():
                    yield _batch(task, schema, batch_of(stream, planned.segment, events)), len(events.data)
            except NotAnEvent as error:
                raise not_events(error, planned.segment.in_stream(stream)) from None
            if run.count:
                ranges.append(ArchivedRange(planned.segment, run.start, run.end, run.count, run.digest))


def _batch(task: FileTask, schema: pa.Schema, events: pa.RecordBatch) -> pa.RecordBatch:
    """Return the table's columns for some events."""
    columns = dict(zip(events.schema.names, events.columns, strict=True))
    columns |= decoded_columns(task.options, columns["payload"], task.schemas)
    if GENERATION in schema.names:
        columns[GENERATION] = integers(task.generation, len(events))
    if task.options.generation_day:  # in a table of an earlier release, a column of this name is the payloads'
        columns[GENERATION_DAY] = pa.repeat(pa.scalar(task.created.astimezone(UTC).date()), len(events))
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _find(target: ObjectStore, task: FileTask) -> WrittenFile | None:
    """Return the existing file; None if there is none.

    A file appears completely or not at all, so the metadata at its end describe it. Bytes are not compared, as another
    release of the Parquet library may write the same rows differently.
    """
    where = f"{target.uri}/{task.key}"
    try:
        size = target.size(task.key)
        text, count = read_facts(target, task.key)
    except NoSuchObject:
        return None
    except NotDecodable:
        raise Conflict("an unrelated file already exists", where=where, todo="Remove it.") from None
    ranges = _ranges_in(task, text)
    if ranges is None or sum(row.events for row in ranges) != count:
        raise Conflict("a file with other ranges already exists", where=where, todo="Use another --table.")
    return WrittenFile(ranges, -1, 0, size)


def _ranges_text(task: FileTask, rows: Iterable[ArchivedRange]) -> str:
    ranges = [[str(row.segment), row.start, row.end, row.events, row.digest] for row in rows]
    return json.dumps({"generation": task.generation, "ranges": ranges})


def _ranges_in(task: FileTask, text: bytes) -> tuple[ArchivedRange, ...] | None:
    """Return the ranges in a file's metadata; None if they are not the planned ones."""
    try:
        found = [
            ArchivedRange(SegmentId.parse(segment), int(start), int(end), int(events), str(digest))
            for segment, start, end, events, digest in json.loads(text)["ranges"]
        ]
    except (ValueError, KeyError, TypeError, InvalidName):
        return None
    left = list(found)
    for planned in task.ranges:
        at = planned.start
        while left and left[0].segment == planned.segment and at <= left[0].start < left[0].end <= planned.end:
            row = left.pop(0)
            if task.source.is_whole and (row.start != at or planned.known not in {None, row}):
                return None
            at = row.end
        if task.source.is_whole and at != planned.end:
            return None
    return tuple(found) if not left and _ranges_text(task, found).encode() == text else None
