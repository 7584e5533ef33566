"""Read segments' bytes from a table's Parquet files by putting the headers back before the payloads.

This layout is read-only: `lake` writes tables. Each file of a generation is named after its first range and lists its
ranges in its metadata, so a listing leads to the file of a range, and foreign files are ignored. Files are not trusted:
the rows must be contiguous by their offsets and lengths.
"""

from __future__ import annotations

import io
import json
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamvault.common.errors import Damaged
from streamvault.layouts.extent import Extent
from streamvault.layouts.keys import TableFileKey, parse_table_file, table_data, table_file_key, table_files
from streamvault.layouts.place import Place
from streamvault.objectstore.bulk import WINDOW_BYTES
from streamvault.objectstore.errors import NoSuchObject, WrongSize
from streamvault.objectstore.store import ObjectStore
from streamvault.streamstore.model import HEADER_BYTES, SegmentId

__all__ = ["COLUMNS", "RANGES", "ObjectFile", "TableReader"]

COLUMNS = ("epoch", "segment", "offset", "length", "payload")
"""The columns of a table's file from which the segment's bytes are restored."""

RANGES = b"streamvault.ranges"
"""Key in a file's metadata of the ranges it holds, with their digests (JSON)."""

ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Segment bytes of a row group, which is buffered in memory before it is written; a larger event is one by itself."""

MAX_METADATA_BYTES = 64 * 1024 * 1024
"""Maximum metadata of a file: they take about a hundred bytes for each column of a row group, and for each range."""

BATCH_ROWS = 16 * 1024
READ_BYTES = 1024 * 1024
"""Bytes of a column read by one request."""

_TODO = (
    "Restore from the archive, or hand it off again to a table with another name. An Iceberg table's files are deleted "
    "when it is compacted and its snapshots expire."
)


class TableReader:
    """See `layouts.layout.RangeReader`. Memory: one row group's pages, and one batch of rows.

    Args:
        generation: the generation whose files are read.
    """

    def __init__(self, generation: int) -> None:
        self._generation = generation

    @property
    def name(self) -> str:
        """See `RangeReader.name`."""
        return f"table:{self._generation}"

    def read_range(
        self,
        place: Place,
        extent: Extent,
        start: int,
        end: int,
        window_bytes: int = WINDOW_BYTES,  # noqa: ARG002  (the file's row groups bound the memory)
    ) -> Iterator[bytes | memoryview]:
        """See `Layout.read_range`."""
        at, skip = start, 0
        where = place.at(table_data(place.prefix) + table_files(self._generation))
        for rows in self._rows(place, extent, start, end):
            offsets, lengths = _numbers(rows["offset"]), _numbers(rows["length"])
            if at == start and offsets[0] < start:
                at, skip = int(offsets[0]), start - int(offsets[0])
            sizes = _numbers(pc.binary_length(rows["payload"])) + HEADER_BYTES
            if offsets[0] != at or (lengths != sizes).any() or (offsets[1:] != (offsets + lengths)[:-1]).any():
                raise Damaged(f"the table's rows are not contiguous at or after offset {at}", where=where, todo=_TODO)
            at = int(offsets[-1] + lengths[-1])
            yield _with_headers(rows["payload"], sizes)[skip:]
            skip = 0
        if at != end and start < end:
            raise Damaged(f"the table's rows end at offset {at}, not at {end}", where=where, todo=_TODO)

    def read_event(self, place: Place, extent: Extent, offset: int, length: int) -> bytes:
        """See `Layout.read_event`. Reads the row group of the event."""
        for rows in self._rows(place, extent, offset, offset + 1):
            if rows["offset"][0].as_py() == offset and rows["length"][0].as_py() == length:
                return bytes(_with_headers(rows["payload"][:1], np.array([length])))
        raise WrongSize(f"no event of {length} bytes begins at {offset}", where=place.at(table_data(place.prefix)))

    def find_event(self, place: Place, extent: Extent, offset: int) -> tuple[int, int]:
        """See `Layout.find_event`."""
        for rows in self._rows(place, extent, offset, offset + 1):
            return rows["offset"][0].as_py(), rows["length"][0].as_py()
        raise Damaged(f"the table has no event at {offset}", where=place.at(table_data(place.prefix)), todo=_TODO)

    def _rows(self, place: Place, extent: Extent, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the events that have a byte in ``[start, end)``, as batches that are not empty."""
        if start >= end:
            return
        store, folder, segment = place.store, table_data(place.prefix), extent.segment
        trouble = ""
        for file in _candidates(store, folder, self._generation, extent):
            key = folder + table_file_key(*file)
            try:
                with _open(store, key) as parquet:
                    if not _holds(parquet.metadata, extent):
                        continue
                    metadata = parquet.metadata
                    groups = [
                        group
                        for group in range(metadata.num_row_groups)
                        if _may_hold(metadata.row_group(group), segment, start, end)
                    ]
                    for group in groups:
                        _check_size(metadata.row_group(group), extent)
                    for batch in parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=list(COLUMNS)):
                        yield from _matching(batch, segment, start, end)
                    return
            except (NoSuchObject, WrongSize) as error:
                raise Damaged(error.what, where=error.where, todo=_TODO) from None
            except (pa.ArrowException, OSError, KeyError) as error:
                trouble = trouble or f"not a readable table file: {key}: {' '.join(str(error).split())[:200]}"
        where = place.at(folder + table_file_key(self._generation, segment, extent.start))
        raise Damaged(trouble or "no file of the table holds the range", where=where, todo=_TODO)


def _candidates(store: ObjectStore, folder: str, generation: int, extent: Extent) -> Iterator[TableFileKey]:
    """Yield the files that may hold a range, the most likely first: from the last whose first range is not after it.

    Other files are ignored later, since a file's metadata list its ranges.
    """
    files = _listed(store, folder, generation)
    wanted = TableFileKey(generation, extent.segment, extent.start)
    yield from reversed(files[: bisect_right(files, wanted)])


def _open(store: ObjectStore, key: str) -> pq.ParquetFile:
    """Open a table's file, of which only the metadata are read, if they are not too large.

    Raises:
        NoSuchObject, WrongSize, ArrowException, OSError: it cannot be opened.
    """
    file = ObjectFile(store, key)
    file.seek(-8, io.SEEK_END)
    if int.from_bytes(file.read(4), "little") > MAX_METADATA_BYTES:
        raise OSError("its metadata is too large")
    return pq.ParquetFile(file, pre_buffer=False, buffer_size=READ_BYTES)


def _holds(metadata: pq.FileMetaData, extent: Extent) -> bool:
    """Check whether a file's metadata list a range."""
    wanted = str(extent.segment), extent.start, extent.end
    return wanted in _ranges_in((metadata.metadata or {}).get(RANGES, b""))


@lru_cache(maxsize=4)
def _ranges_in(text: bytes) -> frozenset[tuple[str, int, int]]:
    """Return the ranges that a file lists as (segment, start, end); empty if it is not a table's."""
    try:
        return frozenset((segment, start, end) for segment, start, end, *_ in json.loads(text)["ranges"])
    except (ValueError, KeyError, TypeError):
        return frozenset()


def _check_size(group: pq.RowGroupMetaData, extent: Extent) -> None:
    """Reject a row group that claims to decompress to more than a table's may: `ROW_GROUP_BYTES` or one larger event.

    Raises:
        OSError: it is too large.
    """
    most = max(ROW_GROUP_BYTES, extent.end - extent.start) + READ_BYTES
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema not in COLUMNS:
            continue
        repeats = column.path_in_schema == "payload" and column.has_dictionary_page
        if repeats or column.total_uncompressed_size > most or column.num_values * HEADER_BYTES > most:
            raise OSError("a row group is larger than in any table")


@lru_cache(maxsize=64)
def _listed(store: ObjectStore, folder: str, generation: int) -> tuple[TableFileKey, ...]:
    """Return a generation's files in order. They never change, and there are few: about 4,000 for a terabyte."""
    keys = (parse_table_file(found.key.removeprefix(folder)) for found in store.list(folder + table_files(generation)))
    return tuple(sorted(key for key in keys if key is not None))


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
    offset, length = _numbers(batch["offset"]), _numbers(batch["length"])
    mask = (_numbers(batch["epoch"]) == segment.epoch) & (_numbers(batch["segment"]) == segment.number)
    mask &= (offset < end) & (offset + length > start)
    found = np.flatnonzero(mask)
    if len(found):
        # matching rows are contiguous
        yield batch.slice(int(found[0]), int(found[-1] - found[0]) + 1)


def _numbers(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]] = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _with_headers(payloads: pa.Array, sizes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> memoryview:
    """Return the events' bytes: the values of an array of alternating headers and payloads, which are contiguous."""
    count = len(payloads)
    headers = pa.py_buffer((sizes - HEADER_BYTES).astype(">i8").tobytes())
    ends = pa.py_buffer(np.arange(0, HEADER_BYTES * (count + 1), HEADER_BYTES, dtype=np.int32))
    both = pa.concat_arrays([pa.Array.from_buffers(pa.binary(), count, [None, ends, headers]), payloads])
    order = np.empty(2 * count, np.int32)
    order[0::2], order[1::2] = np.arange(count), np.arange(count, 2 * count)
    framed = both.take(pa.array(order))
    return memoryview(framed.buffers()[2])[: int(sizes.sum())]


class ObjectFile(io.RawIOBase):
    """A seekable file over an object of a store; each read is a request."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._size = store.size(key)
        self._at = 0

    def readable(self) -> bool:
        """See the base class."""
        return True

    def seekable(self) -> bool:
        """See the base class."""
        return True

    def tell(self) -> int:
        """See the base class."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See the base class."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes at the current position; all that follow if it is negative."""
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        data = bytes(self._store.get_range(self._key, self._at, end)) if self._at < end else b""
        self._at += len(data)
        return data
