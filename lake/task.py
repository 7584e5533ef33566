"""Writing one file of a table: one task, in the memory of a row group."""

from __future__ import annotations

import errno
import io
import json
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from common.errors import Conflict, Failed
from exporter.ranges import not_events
from lake.batches import batch_of
from lake.decoding import decoded_columns
from lake.files import file_key
from lake.options import ERROR, GENERATION, TableOptions
from lake.sources import RangeSource, WantedRange
from layouts.table import RANGES, ROW_GROUP_BYTES, ObjectFile
from manifests.range_row import RangeRow
from objectstore.errors import AlreadyExists, NoSuchObject
from objectstore.store import ObjectStore
from objectstore.uri import RootAddress
from streamstore.errors import InvalidName
from streamstore.framing import NotAnEvent
from streamstore.model import SegmentId

__all__ = ["FileTask", "WrittenFile", "blank_file", "write_file"]

_TERSE = ("scope", "stream", "epoch", "segment", GENERATION, "length", ERROR)
"""Columns with few different values, kept as dictionaries."""


@dataclass(frozen=True, slots=True)
class FileTask:
    """All that a task needs to write one file.

    Attributes:
        source: where the ranges' bytes come from.
        target: the table's root. folder: the table in it.
        generation: which. ranges: the file's, in order.
        options: the table's.
    """

    source: RangeSource
    target: RootAddress
    folder: str
    generation: int
    ranges: tuple[WantedRange, ...]
    options: TableOptions

    @property
    def key(self) -> str:
        """The file's key below the target."""
        return self.folder + file_key(self.generation, self.ranges)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is there: what it holds, events that did not decode (-1: not known), segment bytes, the file's size.

    `ranges` are those that were wanted, but for what is gone at the source: a range has no row then, or several. A file
    without any says that all was gone when it was written, which holds for every run. `found` says that an earlier or
    another run had written it.
    """

    ranges: tuple[RangeRow, ...]
    undecoded: int
    moved: int
    size: int
    found: bool = False


def write_file(task: FileTask) -> WrittenFile:
    """Write the file if it is not there. Doing it twice, or in two places at once, leaves one file.

    Raises:
        Damaged: the archive's bytes are not what its manifest says; nothing is written.
        NotEvents: the stream's bytes are no events.
        Conflict: a file of this name holds other ranges.
        Failed: there is no room for the file on the disk for temporary files.
    """
    target = task.target.open()
    held = _find(target, task)
    if held is not None:
        return held
    try:
        with tempfile.TemporaryFile(prefix="streamvault-") as spool:
            ranges, undecoded = _write(task, spool)
            size = spool.tell()
            # Not closed here: the client library lets go of it when it likes. It lives as long as it is referred to.
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
        raise Failed("no room for a table's file on its way", where=where, todo=todo) from None
    return WrittenFile(ranges, undecoded, sum(row.end - row.start for row in ranges), size)


def blank_file(task: FileTask) -> None:
    """Put a file without rows in place of one of a generation that stays empty.

    The name is taken then, so that whoever looks at the folder sees no row of it, however late a task of it is.
    """
    target = task.target.open()
    written = io.BytesIO()
    pq.write_table(task.options.schema.empty_table(), written)
    data = written.getvalue()
    while True:
        try:
            target.put(task.key, data)
        except AlreadyExists:
            if target.size(task.key) != len(data):  # any other file names its ranges, and is larger
                target.delete([task.key])
                continue
        return


def _write(task: FileTask, spool: IO[bytes]) -> tuple[tuple[RangeRow, ...], int]:
    """The file's content; returns its ranges, and how many events did not decode."""
    schema = task.options.schema
    terse = [name for name in _TERSE if name in schema.names]
    undecoded = 0
    ranges: list[RangeRow] = []
    # through a descriptor of its own: Arrow writes to it without asking Python
    with (
        pa.OSFile(f"/dev/fd/{spool.fileno()}", "wb") if os.path.exists("/dev/fd") else pa.PythonFile(spool) as sink,  # noqa: PTH110
        pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            use_dictionary=[*terse, *(column.column for column in task.options.columns)],
            write_statistics=[name for name in schema.names if name != "payload"],
            store_schema=False,
        ) as writer,
    ):
        held: list[pa.RecordBatch] = []
        size = 0
        for batch, length in _batches(task, ranges):
            if held and size + length > ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(held), row_group_size=1 << 30)
                held, size = [], 0
            held.append(batch)
            size += length
            if ERROR in schema.names:
                undecoded += len(batch) - batch[ERROR].null_count
        if held:
            writer.write_table(pa.Table.from_batches(held), row_group_size=1 << 30)
        writer.add_key_value_metadata({RANGES: _ranges_text(task, ranges)})
    spool.seek(0, os.SEEK_END)
    return tuple(ranges), undecoded


def _batches(task: FileTask, ranges: list[RangeRow]) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The file's rows, and how many segment bytes each batch stands for.

    What a run of events holds is added to `ranges` when its last batch is left; an archive's is proved by then.
    """
    schema, stream = task.options.schema, task.options.name
    for wanted in task.ranges:
        for run in task.source.runs(wanted):
            try:
                for events in run.blocks():
                    yield _batch(task, schema, batch_of(stream, wanted.segment, events)), len(events.data)
            except NotAnEvent as error:
                raise not_events(error, wanted.segment.in_stream(stream)) from None
            if run.count:
                ranges.append(RangeRow(wanted.segment, run.start, run.end, run.count, run.digest))


def _batch(task: FileTask, schema: pa.Schema, events: pa.RecordBatch) -> pa.RecordBatch:
    """The table's columns of some events."""
    columns = dict(zip(events.schema.names, events.columns, strict=True))
    columns |= decoded_columns(task.options, columns["payload"])
    if GENERATION in schema.names:
        columns[GENERATION] = pa.repeat(pa.scalar(task.generation, pa.int32()), len(events))
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _find(target: ObjectStore, task: FileTask) -> WrittenFile | None:
    """The file that is there already; None if there is none.

    A file appears whole or not at all, so its own metadata, which stand at its end, say what it holds. Another release
    of the Parquet library may make other bytes of the same rows.
    """
    where = f"{target.uri}/{task.key}"
    try:
        file = ObjectFile(target, task.key)
    except NoSuchObject:
        return None
    try:
        found = pq.read_metadata(file)
    except (pa.ArrowException, OSError):
        raise Conflict("a file that is no table's is already there", where=where, todo="Remove it.") from None
    ranges = _ranges_in(task, (found.metadata or {}).get(RANGES, b""))
    if ranges is None or sum(row.events for row in ranges) != found.num_rows:
        raise Conflict("a file of other ranges is already there", where=where, todo="Use another --table.")
    return WrittenFile(ranges, -1, 0, file.seek(0, os.SEEK_END), found=True)


def _ranges_text(task: FileTask, rows: Iterable[RangeRow]) -> str:
    ranges = [[str(row.segment), row.start, row.end, row.events, row.digest] for row in rows]
    return json.dumps({"generation": task.generation, "ranges": ranges})


def _ranges_in(task: FileTask, text: bytes) -> tuple[RangeRow, ...] | None:
    """The ranges that a file says it has; None if these are not those that it should have."""
    try:
        found = [
            RangeRow(SegmentId.parse(segment), int(start), int(end), int(events), str(digest))
            for segment, start, end, events, digest in json.loads(text)["ranges"]
        ]
    except (ValueError, KeyError, TypeError, InvalidName):
        return None
    left = list(found)
    for wanted in task.ranges:
        at = wanted.start
        while left and left[0].segment == wanted.segment and at <= left[0].start < left[0].end <= wanted.end:
            row = left.pop(0)
            if task.source.is_whole and (row.start != at or wanted.known not in {None, row}):
                return None
            at = row.end
        if task.source.is_whole and at != wanted.end:
            return None
    return tuple(found) if not left and _ranges_text(task, found).encode() == text else None
