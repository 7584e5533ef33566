"""Select and decode rows of a table's Parquet file. Only `table_decoder` calls it, as the file is not trusted."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamvault.layouts.layout import StoredRange
from streamvault.streamstore.model import HEADER_BYTES, SegmentId

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
    parquet: pq.ParquetFile, stored: StoredRange, start: int, end: int, batch_rows: int
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


def _holds(metadata: pq.FileMetaData, stored: StoredRange) -> bool:
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


def _check_size(group: pq.RowGroupMetaData, stored: StoredRange) -> None:
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
