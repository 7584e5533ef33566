"""An index of ranges of which a part is read at a time, as a server needs a few of many rows and has little memory.

All of it is compared with the manifest once, when it is opened. What is read of it later is compared with what it was
then, in blocks. The rows come in pages.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamvault.common.errors import Damaged, content_error
from streamvault.layouts.archived_range import ArchivedRange, are_block_checksums, block_checksums_length
from streamvault.layouts.isolated import RemoteFile
from streamvault.layouts.keys import Place
from streamvault.manifests.files import one_line
from streamvault.manifests.index import (
    AS_READ,
    BLOCKS,
    BLOCKS_ROWS,
    DIGEST,
    FRAMES,
    RowReader,
    check_algorithm,
    check_rows,
    chunks_of,
    extent_of,
    footer_of,
)
from streamvault.manifests.manifest import MAX_INDEX_BYTES, Manifest
from streamvault.manifests.noted_blocks import noted_blocks
from streamvault.objectstore.store import NoSuchObject
from streamvault.streamstore.model import SegmentId, StreamName

BLOCK_BYTES = 256 * 1024
READ_BYTES = 8 * 1024 * 1024
PAGE_ROWS = 100
"""Rows of a page: divides `BLOCKS_ROWS`."""

_ROW_BYTES = 700
"""What a row takes in memory besides its checksums and frames, about."""


@dataclass(frozen=True, slots=True)
class IndexPage:
    """Some rows of an index.

    Attributes:
        rows: the rows.
        then: segment and start of the row after them; None at the end.
    """

    rows: tuple[ArchivedRange, ...]
    then: tuple[SegmentId, int] | None

    @property
    def nbytes(self) -> int:
        """What it takes in memory, about."""
        return sum(_ROW_BYTES + len(row.block_checksums) + 36 * len(row.frames) for row in self.rows)

    def find(self, segment: SegmentId, offset: int) -> tuple[ArchivedRange | None, int | None]:
        """Return the range that holds a byte, if there is one, and where the segment's next one begins, if there is."""
        at = bisect_right(self.rows, (segment, offset), key=lambda row: (row.segment, row.start))
        row = self.rows[at - 1] if at else None
        then = (self.rows[at].segment, self.rows[at].start) if at < len(self.rows) else self.then
        found = row if row is not None and row.segment == segment and offset < row.end else None
        return found, then[1] if then is not None and then[0] == segment else None


class IndexPages:
    """The index of a generation. Thread-safe.

    Args:
        place: the archive.
        key: the index's key below it.
        manifest: the generation's manifest.
        fingerprint: SHA-256 of the manifest's file.

    Raises:
        Damaged: it is missing, or not that of the manifest.
    """

    def __init__(self, place: Place, key: str, manifest: Manifest, fingerprint: str) -> None:
        self._store, self._key, self._manifest = place.store, place.prefix + key, manifest
        self._place, self._fingerprint, self._is_noted = place, fingerprint, False
        self.where = place.at(self._key)
        self._stream: StreamName = manifest.name
        self._blocks = tuple(self._compare())
        try:
            self._open()
            self._firsts = list(self._first_rows())
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> Exception:
        return content_error(error, "not a readable index of ranges", where=f"{self.where}: {one_line(error)}")

    def page_of(self, segment: SegmentId, offset: int) -> int | None:
        """Return the number of the page that has the range of a byte, if there is one; None if there is no page."""
        found = bisect_right(self._firsts, (segment, offset)) - 1
        return max(found, 0) if self._firsts else None

    def page(self, number: int) -> IndexPage:
        """Read a page.

        Memory: a row group, about 1 MB as Streamvault writes it.

        Raises:
            Damaged: the index is not what it was when it was opened.
        """
        first = number * PAGE_ROWS
        base = first // BLOCKS_ROWS * BLOCKS_ROWS
        try:
            table = pa.concat_tables(self._tables(base, min(first + PAGE_ROWS, self._rows)))
            sizes = [end - start for start, end in zip(*(table.column(n).to_pylist() for n in (1, 2)), strict=True)]
            texts = self._texts(first, base, sizes)
            read = RowReader(self._stream, self.where)
            columns = [column.to_pylist() for column in table.slice(first - base).columns]
            rows = tuple(
                read.row(values, "", text) for values, text in zip(zip(*columns, strict=True), texts, strict=True)
            )
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise self._unreadable(error) from None
        return IndexPage(rows, self._firsts[number + 1] if number + 1 < len(self._firsts) else None)

    def use_noted(self) -> None:
        """Use the checksums of blocks that were noted beside the index, where it has none.

        Raises:
            Damaged: they cannot be used.
        """
        if all(BLOCKS.format(n).encode() in self._values for n in range(-(-self._rows // BLOCKS_ROWS))):
            return
        noted = noted_blocks(self._place, self._manifest, self._fingerprint)
        self._is_noted = noted is not None and len(noted.ranges) == self._rows

    def _texts(self, first: int, base: int, sizes: list[int]) -> list[str]:
        """Return the checksums of the blocks of rows from ``first`` on; ``sizes`` are of rows from ``base`` on."""
        ends = list(accumulate(map(block_checksums_length, sizes), initial=0))
        own = range(first - base, len(sizes))
        texts = [""] * len(own)
        if (found := self._values.get(BLOCKS.format(base // BLOCKS_ROWS).encode())) is not None:
            at, low = found[0], ends[own.start]
            text = self._read(at + low, at + ends[-1]).decode()
            texts = [text[ends[n] - low : ends[n + 1] - low].strip(".") for n in own]
        if self._is_noted and not all(texts):
            noted = noted_blocks(self._place, self._manifest, self._fingerprint)
            if noted is not None:  # else it was deleted
                more = noted.ranges[first : first + len(own)]
                fit = [text if are_block_checksums(text, sizes[n]) else "" for n, text in zip(own, more, strict=True)]
                texts = [one or other for one, other in zip(texts, fit, strict=True)]
        return texts

    def _compare(self) -> Iterator[bytes]:
        """Read all of it; yield the SHA-256 of each block once all of it is known to be the manifest's."""
        entry = self._manifest.index
        if entry is None:
            raise Damaged("the manifest names no index of ranges", where=self.where)
        self._size, digest, found = min(entry.bytes, MAX_INDEX_BYTES), hashlib.sha256(), list[bytes]()
        try:
            size = self._store.size(self._key)
            for at in range(0, self._size if size == entry.bytes else 0, READ_BYTES):
                data = self._store.get_range(self._key, at, min(at + READ_BYTES, self._size))
                digest.update(data)
                found += [hashlib.sha256(data[n : n + BLOCK_BYTES]).digest() for n in range(0, len(data), BLOCK_BYTES)]
        except NoSuchObject:
            raise Damaged("the index of ranges is missing", where=self.where) from None
        if size != entry.bytes or digest.hexdigest() != entry.digest:
            raise Damaged("the index of ranges is not that of the manifest (size or SHA-256 differs)", where=self.where)
        yield from found

    def _read(self, start: int, end: int) -> bytes:
        low = start // BLOCK_BYTES * BLOCK_BYTES
        high = min(-(-end // BLOCK_BYTES) * BLOCK_BYTES, self._size)
        try:
            data = self._store.get_range(self._key, low, high)
        except NoSuchObject:
            raise Damaged("the index of ranges is missing", where=self.where) from None
        for number, at in enumerate(range(0, high - low, BLOCK_BYTES), low // BLOCK_BYTES):
            if hashlib.sha256(data[at : at + BLOCK_BYTES]).digest() != self._blocks[number]:
                raise Damaged("the index of ranges was changed", where=self.where)
        return bytes(data[start - low : end - low])

    def _open(self) -> None:
        """Read the footer: what is in it besides texts, and where they are."""
        size = int.from_bytes(self._read(self._size - 8, self._size - 4), "little")
        begin = self._size - 8 - size
        if begin < 0:
            raise ValueError("not a Parquet file")
        groups, until, values = footer_of(_Lazy(self._read, self._size), begin)
        self._parts, self._groups, self._values = groups, [extent_of(one) for one in groups], values
        short = self._read(begin, until) + b"\0"
        self._begin, self._tail = begin, short + len(short).to_bytes(4, "little") + b"PAR1"
        self._metadata = pq.read_metadata(_Part(b"", 0, self._begin, self._tail))
        schema = self._metadata.schema.to_arrow_schema()
        plain = [AS_READ.names, [*AS_READ.names, FRAMES.name]]
        if schema.names not in plain:
            raise Damaged("not an index of ranges (wrong columns)", where=self.where)
        if DIGEST in values:
            at, length = values[DIGEST]
            check_algorithm(self._read(at, at + max(length, 1))[:length], self.where)
        self._rows = sum(rows for rows, _, _ in self._groups)
        most = self._manifest.max_ranges
        if self._rows > self._size // 64 or (most is not None and self._rows > most):
            raise Damaged(f"an index of ranges cannot have {self._rows} rows", where=self.where)

    def _first_rows(self) -> Iterator[tuple[SegmentId, int]]:
        """Yield segment and start of the first row of each page."""
        read, skip = RowReader(self._stream, self.where), 0
        for number, (rows, _, _) in enumerate(self._groups):
            table = self._group(number, [0, 1])
            for at in range(skip, rows, PAGE_ROWS):
                yield read.segment(table.column(0)[at].as_py()), table.column(1)[at].as_py()
            skip = (skip - rows) % PAGE_ROWS

    def _tables(self, first: int, last: int) -> Iterator[pa.Table]:
        begin = 0
        for number, (rows, _, _) in enumerate(self._groups):
            low, high = max(first - begin, 0), min(last - begin, rows)
            if low < high:
                yield self._group(number, list(range(len(self._metadata.schema)))).slice(low, high - low)
            begin += rows

    def _group(self, number: int, columns: list[int]) -> pa.Table:
        _, start, end = self._groups[number]
        part = _Part(self._read(start, end), start, self._begin, self._tail)
        check_rows(chunks_of(part, self._parts[number]), end - start, None, self.where)
        file = pq.ParquetFile(part, metadata=self._metadata, read_dictionary=["segment"], pre_buffer=False)
        return file.read_row_group(
            number, columns=[AS_READ.append(FRAMES).names[n] for n in columns], use_threads=False
        )


class _Lazy:
    """Bytes that are read when they are asked for, in order."""

    def __init__(self, read: Any, size: int) -> None:
        self._read, self._size = read, size
        self._low, self._data = 0, b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return self._read(at.start, at.stop)
        if not self._low <= at < self._low + len(self._data):
            self._low = at // BLOCK_BYTES * BLOCK_BYTES
            self._data = self._read(self._low, min(self._low + BLOCK_BYTES, self._size))
        return self._data[at - self._low]


class _Part(RemoteFile):
    """A Parquet file of which one row group and a footer are there; also as bytes, for `column_chunks`."""

    def __init__(self, data: bytes, start: int, footer: int, tail: bytes) -> None:
        super().__init__(footer + len(tail))
        self._data, self._start, self._footer, self._tail = data, start, footer, tail

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            start, stop, _ = at.indices(len(self))
            return self.read_at(start, stop)
        inside = at - self._start
        return self._data[inside] if 0 <= inside < len(self._data) else self.read_at(at, at + 1)[0]

    def read_at(self, start: int, end: int) -> bytes:
        """Return bytes, with zeros for those that are not there."""
        found = bytearray(end - start)
        for base, data in ((self._start, self._data), (self._footer, self._tail)):
            low, high = max(start, base), min(end, base + len(data))
            if low < high:
                found[low - start : high - start] = data[low - base : high - base]
        return bytes(found)
