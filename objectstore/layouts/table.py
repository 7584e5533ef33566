"""The segments' bytes out of a table's Parquet files: headers put back before the payloads.

A table is read, not written, as a layout: `lake` writes it. A generation's files are named after the first range that
each holds, so a listing says which one holds a range. All that is taken from a file is checked: rows have to follow
each other as their offsets and lengths say.
"""

# ruff: noqa: PLR0917  (a stretch of a segment is six plain values: store, prefix, epoch, number, start, end)
from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from objectstore.bulk import WINDOW_BYTES
from objectstore.errors import NoSuchObject, WrongSize
from objectstore.keys import HEADER_BYTES, TableFileKey, parse_table_file, table_file_key, table_files
from objectstore.layouts.extent import Extent
from objectstore.store import ObjectStore
from problems import Damaged

__all__ = ["COLUMNS", "TableReader", "file_of"]

COLUMNS = ("epoch", "segment", "offset", "length", "payload")
"""The columns of a table's file that the segment's bytes are made of."""

BATCH_ROWS = 16 * 1024
READ_BYTES = 1024 * 1024
"""How much of a column is read by one request."""

_TODO = "Restore from the archive, or hand it off again to a table of another name."


class TableReader:
    """See `objectstore.layouts.RangeReader`. Memory: one row group's pages, and one batch of rows.

    Args:
        generation: whose files are read.
    """

    def __init__(self, generation: int) -> None:
        self._generation = generation

    @property
    def name(self) -> str:
        """See `RangeReader.name`."""
        return f"table:{self._generation}"

    def read_range(
        self,
        store: ObjectStore,
        prefix: str,
        extent: Extent,
        start: int,
        end: int,
        window_bytes: int = WINDOW_BYTES,  # noqa: ARG002  (what is read at once is bounded by the file's row groups)
    ) -> Iterator[bytes | memoryview]:
        """See `Layout.read_range`."""
        at, skip = start, 0
        where = f"{store.uri}/{prefix}{table_files(self._generation)}"
        for rows in self._rows(store, prefix, extent, start, end):
            offsets, lengths = _numbers(rows["offset"]), _numbers(rows["length"])
            if at == start and offsets[0] < start:
                at, skip = int(offsets[0]), start - int(offsets[0])
            sizes = _numbers(pc.binary_length(rows["payload"])) + HEADER_BYTES
            if offsets[0] != at or (lengths != sizes).any() or (offsets[1:] != (offsets + lengths)[:-1]).any():
                raise Damaged(f"the table's rows have a hole at or after offset {at}", where=where, todo=_TODO)
            at = int(offsets[-1] + lengths[-1])
            yield _framed(rows["payload"], sizes)[skip:]
            skip = 0
        if at != end and start < end:
            raise Damaged(f"the table's rows end at offset {at}, not at {end}", where=where, todo=_TODO)

    def read_event(self, store: ObjectStore, prefix: str, extent: Extent, offset: int, length: int) -> bytes:
        """See `Layout.read_event`. Reads the row group that holds it."""
        for rows in self._rows(store, prefix, extent, offset, offset + 1):
            if rows["offset"][0].as_py() == offset and rows["length"][0].as_py() == length:
                return bytes(_framed(rows["payload"][:1], np.array([length])))
        raise WrongSize(f"no event of {length} bytes begins at {offset}", where=f"{store.uri}/{prefix}")

    def find_event(self, store: ObjectStore, prefix: str, extent: Extent, offset: int) -> tuple[int, int]:
        """See `Layout.find_event`."""
        for rows in self._rows(store, prefix, extent, offset, offset + 1):
            return rows["offset"][0].as_py(), rows["length"][0].as_py()
        raise Damaged(f"the table has no event at {offset}", where=f"{store.uri}/{prefix}", todo=_TODO)

    def _rows(self, store: ObjectStore, prefix: str, extent: Extent, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The events that have a byte in ``[start, end)``, as batches that are not empty."""
        if start >= end:
            return
        file = file_of(store, prefix, self._generation, extent)
        key = prefix + table_file_key(*file)
        segment = extent.epoch, extent.number
        try:
            with pq.ParquetFile(ObjectFile(store, key), pre_buffer=False, buffer_size=READ_BYTES) as parquet:
                groups = [
                    group
                    for group in range(parquet.metadata.num_row_groups)
                    if _may_hold(parquet.metadata.row_group(group), segment, start, end)
                ]
                for batch in parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=list(COLUMNS)):
                    yield from _wanted(batch, segment, start, end)
        except (NoSuchObject, WrongSize) as error:
            raise Damaged(error.what, where=error.where, todo=_TODO) from None
        except (pa.ArrowException, OSError, KeyError) as error:
            raise Damaged("not a readable table file", where=f"{store.uri}/{key}: {error}", todo=_TODO) from None


def file_of(store: ObjectStore, prefix: str, generation: int, extent: Extent) -> TableFileKey:
    """The file that holds a range of a generation that is complete: the last whose first range is not behind it.

    Args:
        store: the root.
        prefix: the table in it.
        generation: which.
        extent: the range.

    Raises:
        Damaged: there is none.
    """
    files = _listed(store, prefix, generation)
    wanted = TableFileKey(generation, extent.epoch, extent.number, extent.start)
    place = bisect_right(files, wanted)
    if not place:
        where = f"{store.uri}/{prefix}{table_file_key(*wanted)}"
        raise Damaged("no file of the table holds the range", where=where, todo=_TODO)
    return files[place - 1]


@lru_cache(maxsize=64)
def _listed(store: ObjectStore, prefix: str, generation: int) -> tuple[TableFileKey, ...]:
    """A generation's files in order. They never change, and a file stands for some hundred MB: a terabyte has 4,000."""
    keys = (parse_table_file(found.key.removeprefix(prefix)) for found in store.list(prefix + table_files(generation)))
    return tuple(sorted(key for key in keys if key is not None))


def _may_hold(group: pq.RowGroupMetaData, segment: tuple[int, int], start: int, end: int) -> bool:
    """Whether rows of a segment's stretch can be in a row group, by its statistics.

    Rows are sorted by (epoch, segment, offset); the statistics of offsets say something only where all rows are of one
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
    if not low <= segment[0] <= high or (low == high and not first <= segment[1] <= last):
        return False
    if (low, first) != (high, last):
        return True
    (lowest, highest), (_, longest) = held["offset"], held["length"]
    return bool(lowest < end and start < highest + longest)


def _wanted(batch: pa.RecordBatch, segment: tuple[int, int], start: int, end: int) -> Iterator[pa.RecordBatch]:
    offset, length = _numbers(batch["offset"]), _numbers(batch["length"])
    mask = (_numbers(batch["epoch"]) == segment[0]) & (_numbers(batch["segment"]) == segment[1])
    mask &= (offset < end) & (offset + length > start)
    found = np.flatnonzero(mask)
    if len(found):
        # rows of a stretch follow each other
        yield batch.slice(int(found[0]), int(found[-1] - found[0]) + 1)


def _numbers(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]] = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _framed(payloads: pa.Array, sizes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> memoryview:
    """The events' bytes: an array of headers and payloads in turn, whose values lie one behind the other."""
    count = len(payloads)
    headers = pa.py_buffer((sizes - HEADER_BYTES).astype(">i8").tobytes())
    ends = pa.py_buffer(np.arange(0, HEADER_BYTES * (count + 1), HEADER_BYTES, dtype=np.int32))
    both = pa.concat_arrays([pa.Array.from_buffers(pa.binary(), count, [None, ends, headers]), payloads])
    order = np.empty(2 * count, np.int32)
    order[0::2], order[1::2] = np.arange(count), np.arange(count, 2 * count)
    framed = both.take(pa.array(order))
    return memoryview(framed.buffers()[2])[: int(sizes.sum())]


class ObjectFile(io.RawIOBase):
    """An object of a store as a file that can be read anywhere, a request for each read."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._size = store.size(key)
        self._at = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to another place."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        data = bytes(self._store.get_range(self._key, self._at, end)) if self._at < end else b""
        self._at += len(data)
        return data
