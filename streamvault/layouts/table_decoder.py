"""The process that decodes tables' files for `isolated`."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamvault.common.errors import shortage
from streamvault.layouts.isolated import BATCH, DONE, ERROR, FACTS, READ, SHORT, RemoteFile, receive, send
from streamvault.streamstore.model import HEADER_BYTES, Range, SegmentId

COLUMNS = ("epoch", "segment", "offset", "length", "payload")
"""The columns of a table's file from which the segment's bytes are restored."""

RANGES = b"streamvault.ranges"
"""Key in a file's metadata of the ranges it holds, with their digests (JSON)."""

ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Segment bytes of a row group, which is buffered in memory before it is written; a larger event is one by itself."""

MAX_METADATA_BYTES = 64 * 1024 * 1024
"""Maximum metadata of a file: they take about a hundred bytes for each column of a row group, and for each range."""

READ_BYTES = 1024 * 1024
"""Bytes of a column read by one request."""


def open_file(file: io.RawIOBase) -> pq.ParquetFile:
    """Open a table's file, of which only the metadata are read, if they are not too large.

    Raises:
        ArrowException, OSError: it cannot be opened.
    """
    file.seek(-8, io.SEEK_END)
    if int.from_bytes(file.read(4), "little") > MAX_METADATA_BYTES:
        raise OSError("its metadata is too large")
    return pq.ParquetFile(file, pre_buffer=False, buffer_size=READ_BYTES, page_checksum_verification=True)


def rows_in(
    parquet: pq.ParquetFile, stored: Range, start: int, end: int, batch_rows: int
) -> Iterator[pa.RecordBatch] | None:
    """Return the events that have a byte in ``[start, end)``, as batches that are not empty.

    Returns:
        None if the file does not hold the range.

    Raises:
        ArrowException, OSError, KeyError: it cannot be decoded.
    """
    metadata = parquet.metadata
    if not _holds(metadata, stored):
        return None
    groups = [
        group
        for group in range(metadata.num_row_groups)
        if _may_hold(metadata.row_group(group), stored.segment, start, end)
    ]
    for group in groups:
        _check_size(metadata.row_group(group), stored)
    return (
        part
        for batch in parquet.iter_batches(batch_rows, row_groups=groups, columns=list(COLUMNS))
        for part in _matching(batch, stored.segment, start, end)
    )


def _holds(metadata: pq.FileMetaData, stored: Range) -> bool:
    """Check whether a file's metadata list a range."""
    wanted = str(stored.segment), stored.start, stored.end
    return wanted in _ranges_in((metadata.metadata or {}).get(RANGES, b""))


@lru_cache(maxsize=4)
def _ranges_in(text: bytes) -> frozenset[tuple[str, int, int]]:
    """Return the ranges that a file lists as (segment, start, end); empty if it is not a table's."""
    try:
        return frozenset((segment, start, end) for segment, start, end, *_ in json.loads(text)["ranges"])
    except (ValueError, KeyError, TypeError):
        return frozenset()


def _check_size(group: pq.RowGroupMetaData, stored: Range) -> None:
    """Reject a row group that claims to decompress to more than a table's may: `ROW_GROUP_BYTES` or one larger event.

    Raises:
        OSError: it is too large.
    """
    most = max(ROW_GROUP_BYTES, stored.end - stored.start) + READ_BYTES
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema not in COLUMNS:
            continue
        repeats = column.path_in_schema == "payload" and column.has_dictionary_page
        if repeats or column.total_uncompressed_size > most or column.num_values * HEADER_BYTES > most:
            raise OSError("a row group is larger than in any table")


def _may_hold(group: pq.RowGroupMetaData, segment: SegmentId, start: int, end: int) -> bool:
    """Check, by its statistics, whether a row group may hold rows of a segment's bytes ``[start, end)``.

    Rows are sorted by (epoch, segment, offset); the statistics of offsets are meaningful only if all rows are of one
    segment.
    """
    held = {}
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema in COLUMNS and column.statistics is not None and column.statistics.has_min_max:
            held[column.path_in_schema] = column.statistics.min, column.statistics.max
    if not {"epoch", "segment", "offset", "length"} <= held.keys():
        return True
    (low, high), (first, last) = held["epoch"], held["segment"]
    if not low <= segment.epoch <= high or (low == high and not first <= segment.number <= last):
        return False
    if (low, first) != (high, last):
        return True
    (lowest, highest), (_, longest) = held["offset"], held["length"]
    return bool(lowest < end and start < highest + longest)


def _matching(batch: pa.RecordBatch, segment: SegmentId, start: int, end: int) -> Iterator[pa.RecordBatch]:
    offset, length = numbers_of(batch["offset"]), numbers_of(batch["length"])
    mask = (numbers_of(batch["epoch"]) == segment.epoch) & (numbers_of(batch["segment"]) == segment.number)
    mask &= (offset < end) & (offset + length > start)
    found = np.flatnonzero(mask)
    if len(found):
        # matching rows are contiguous
        yield batch.slice(int(found[0]), int(found[-1] - found[0]) + 1)


def numbers_of(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a column as numbers."""
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]] = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def serve() -> None:
    """Answer questions until there are no more."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write there
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            _, content = receive(requests)
            question = json.loads(content)
            try:
                _answer(question, _Asked(requests, answers, question["size"]), answers)
            except (pa.ArrowException, OSError, KeyError, ValueError, MemoryError) as error:
                if isinstance(error, BrokenPipeError):
                    raise
                short = shortage(error)
                text = f"{type(error).__name__} {error}" if short else f"{error}"
                send(answers, SHORT if short else ERROR, " ".join(text.split())[:200].encode())
            else:
                send(answers, DONE)


def _answer(question: dict[str, Any], file: io.RawIOBase, answers: IO[bytes]) -> None:
    with open_file(file) as parquet:
        if missing := set(COLUMNS) - set(parquet.schema_arrow.names):
            raise KeyError(f"the file has no column {min(missing)}")
        ranges = (parquet.metadata.metadata or {}).get(RANGES, b"")
        if question["stored"] is None:
            beyond = ""
            try:
                parquet.metadata.to_dict()  # with the columns' statistics, which Iceberg's library reads
            except OverflowError as error:
                beyond = str(error)
            facts = {"beyond": beyond, "ranges": ranges.decode(errors="replace"), "rows": parquet.metadata.num_rows}
            send(answers, FACTS, json.dumps(facts).encode())
            return
        segment, *bounds = question["stored"]
        stored = Range(SegmentId.parse(segment), *bounds)
        start, end, batch_rows = question["part"]
        rows = rows_in(parquet, stored, start, end, batch_rows)
        send(answers, FACTS, json.dumps({"holds": rows is not None}).encode())
        for batch in rows or ():
            send(answers, BATCH, _encoded(batch))
            if end == start + 1:
                return  # one event was asked for


def _encoded(batch: pa.RecordBatch) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue())


class _Asked(RemoteFile):
    """A file that another process reads."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes], size: int) -> None:
        super().__init__(size)
        self._requests, self._answers = requests, answers

    def read_at(self, start: int, end: int) -> bytes:
        send(self._answers, READ, json.dumps([start, end]).encode())
        return receive(self._requests)[1]
