"""Read segments' bytes from a table's Parquet files by putting the headers back before the payloads.

This layout is read-only: `lake` writes tables. Each file of a generation is named after its first range and lists its
ranges in its metadata, so a listing leads to the file of a range, and foreign files are ignored. Files are not trusted:
they are decoded in a process of their own, and the rows must be contiguous by their offsets and lengths.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamvault.common.errors import Damaged
from streamvault.layouts.isolated import NotDecodable, RemoteFile, decoded
from streamvault.layouts.keys import Place, TableFileKey, parse_table_file, table_data, table_file_key, table_files
from streamvault.layouts.layout import RangeReader, table_layout
from streamvault.layouts.table_decoder import numbers_of
from streamvault.objectstore.bulk import WINDOW_BYTES
from streamvault.objectstore.store import NoSuchObject, ObjectStore, WrongSize
from streamvault.streamstore.model import HEADER_BYTES, Range

BATCH_ROWS = 16 * 1024

_TODO = (
    "Restore from the archive, or hand it off again to a table with another name. An Iceberg table's files are deleted "
    "when it is compacted and its snapshots expire."
)


class TableReader(RangeReader):
    """See the base class. Memory: one row group's pages, and one batch of rows.

    Args:
        generation: the generation whose files are read.
    """

    def __init__(self, generation: int) -> None:
        self.name = table_layout(generation)
        self._generation = generation

    def read_range(
        self,
        place: Place,
        stored: Range,
        start: int,
        end: int,
        window_bytes: int = WINDOW_BYTES,  # noqa: ARG002  (the file's row groups bound the memory)
    ) -> Iterator[bytes | memoryview]:
        """See `Layout.read_range`."""
        at, skip = start, 0
        where = place.at(table_data(place.prefix) + table_files(self._generation))
        for rows in self._rows(place, stored, start, end):
            offsets, lengths = numbers_of(rows["offset"]), numbers_of(rows["length"])
            if at == start and offsets[0] < start:
                at, skip = int(offsets[0]), start - int(offsets[0])
            sizes = numbers_of(pc.binary_length(rows["payload"])) + HEADER_BYTES
            if offsets[0] != at or (lengths != sizes).any() or (offsets[1:] != (offsets + lengths)[:-1]).any():
                raise Damaged(f"the table's rows are not contiguous at or after offset {at}", where=where, todo=_TODO)
            at = int(offsets[-1] + lengths[-1])
            yield _with_headers(rows["payload"], sizes)[skip:]
            skip = 0
        if at != end and start < end:
            raise Damaged(f"the table's rows end at offset {at}, not at {end}", where=where, todo=_TODO)

    def read_event(self, place: Place, stored: Range, offset: int, length: int) -> bytes:
        """See `Layout.read_event`. Reads the row group of the event."""
        for rows in list(self._rows(place, stored, offset, offset + 1)):
            if rows["offset"][0].as_py() == offset and rows["length"][0].as_py() == length:
                return bytes(_with_headers(rows["payload"][:1], np.array([length])))
        raise WrongSize(f"no event of {length} bytes begins at {offset}", where=place.at(table_data(place.prefix)))

    def find_event(self, place: Place, stored: Range, offset: int) -> tuple[int, int]:
        """See `Layout.find_event`."""
        for rows in list(self._rows(place, stored, offset, offset + 1)):
            return rows["offset"][0].as_py(), rows["length"][0].as_py()
        raise Damaged(f"the table has no event at {offset}", where=place.at(table_data(place.prefix)), todo=_TODO)

    def _rows(self, place: Place, stored: Range, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the events that have a byte in ``[start, end)``, as batches that are not empty."""
        if start >= end:
            return
        listed = place.store, table_data(place.prefix), self._generation
        began = False
        while True:
            files = _listed(*listed)
            try:
                for rows in self._from_files(place, stored, start, end):
                    began = True
                    yield rows
            except NoSuchObject as error:
                _listed.cache_clear()
                if began or _listed(*listed) == files:
                    raise Damaged(error.what, where=error.where, todo=_TODO) from None
            else:
                return

    def _from_files(self, place: Place, stored: Range, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """As `_rows`, from the files as they were listed.

        Raises:
            NoSuchObject: one of them is gone: the table was made anew, or the file was no part of it.
        """
        store, folder, segment = place.store, table_data(place.prefix), stored.segment
        trouble = ""
        for file in _candidates(store, folder, self._generation, stored):
            key = folder + table_file_key(*file)
            question = {"stored": [str(segment), stored.start, stored.end], "part": [start, end, BATCH_ROWS]}
            is_held = True
            try:
                for found in decoded(ObjectFile(store, key), question):
                    if isinstance(found, pa.RecordBatch):
                        yield found
                    else:
                        is_held = found["holds"]
                if is_held:
                    return
            except WrongSize as error:
                raise Damaged(error.what, where=error.where, todo=_TODO) from None
            except NotDecodable as error:
                trouble = trouble or f"not a readable table file: {key}: {error}"
        where = place.at(folder + table_file_key(self._generation, segment, stored.start))
        raise Damaged(trouble or "no file of the table holds the range", where=where, todo=_TODO)


def _candidates(store: ObjectStore, folder: str, generation: int, stored: Range) -> Iterator[TableFileKey]:
    """Yield the files that may hold a range, the most likely first: from the last whose first range is not after it.

    Other files are ignored later, since a file's metadata list its ranges.
    """
    files = _listed(store, folder, generation)
    wanted = (stored.segment, stored.start)
    yield from reversed(files[: bisect_right(files, wanted, key=lambda file: (file.segment, file.offset))])


@lru_cache(maxsize=64)
def _listed(store: ObjectStore, folder: str, generation: int) -> tuple[TableFileKey, ...]:
    """Return a generation's files in order, as they were once: there are few, about 4,000 for a terabyte."""
    keys = (parse_table_file(found.key.removeprefix(folder)) for found in store.list(folder + table_files(generation)))
    return tuple(sorted(key for key in keys if key is not None))


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


class NotDescribed(NotDecodable):
    """A file has a date or timestamp outside the years 1 to 9999, as earlier releases wrote them."""


def read_facts(store: ObjectStore, key: str) -> tuple[bytes, int]:
    """Return what a table's file says of itself: its ranges (JSON text), and its number of rows.

    Raises:
        NoSuchObject: there is no such file.
        NotDescribed: it has values beyond Python's, which only Parquet's own readers can read.
        NotDecodable: it is no Parquet file.
    """
    # All of the answer is read: a process that has more to say would be ended, and the next file start another one.
    (facts,) = decoded(ObjectFile(store, key), {"stored": None})
    if facts["beyond"]:
        raise NotDescribed(facts["beyond"])
    return facts["ranges"].encode(), facts["rows"]


class ObjectFile(RemoteFile):
    """A file over an object of a store; each read is a request."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__(store.size(key))
        self._store = store
        self._key = key

    def read_at(self, start: int, end: int) -> bytes:
        """See the base class."""
        return bytes(self._store.get_range(self._key, start, end))
