"""The index of a generation's ranges, ``GGGGGGGGGG.ranges.parquet``: one row per range, in the stream's order.

A range has up to the range size (64 MiB), so the index of a terabyte has about 16,000 rows; its size does not depend on
the number of events.

The file is not compressed and stores digests and frame sizes plainly: at least 64 bytes per row and 4 per frame. So the
file's size bounds the size of the decoded rows, and a file that claims more is rejected. Decoders rely on the pages'
headers, not on the footer's totals, so the headers are read first, without decoding the pages. Both are in Thrift's
compact protocol (https://parquet.apache.org/docs/file-format/, parquet.thrift). They are parsed here because pyarrow
does not expose page headers, and terminates the process on an unknown codec.

What earlier releases do not know is in the file's own metadata, as they reject other columns: the algorithm of the
digests, and the checksums of the objects and of the ranges' blocks.
"""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice, pairwise, repeat
from typing import Any, Protocol, overload

import pyarrow as pa
import pyarrow.parquet as pq

from streamvault.common.errors import Damaged, Failed, content_error
from streamvault.layouts.archived_range import ArchivedRange, are_block_checksums, block_checksums_length
from streamvault.layouts.chunks import FRAME_BYTES, MAX_FRAME_BYTES
from streamvault.manifests.files import one_line
from streamvault.manifests.manifest import MAX_INDEX_BYTES
from streamvault.streamstore.errors import InvalidName
from streamvault.streamstore.model import SegmentId, StreamName

PLAIN = 0
DICTIONARY = frozenset({2, 8})
"""The encodings of a page of dictionary indices."""

_DATA, _DICTIONARY_PAGE, _DATA_V2 = 0, 2, 3
# kind of page -> field of its specific header, and the fields in that of the encoding and the number of values
_HEADERS = {_DATA: (5, 2, 1), _DICTIONARY_PAGE: (7, 2, 1), _DATA_V2: (8, 4, 1)}
_MAX_DEPTH = 8
_SKIPPED = {1: 0, 2: 0, 3: 1, 7: 8}  # booleans (the kind is the value), bytes, doubles -> their size

Value = int | dict[int, "Value"] | list["Value"] | None
Fields = dict[int, Value]


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """The part of a column in one row group.

    Attributes:
        column: the column's index among the schema's leaves, from 0.
        rows: number of rows of the row group.
        is_compressed: whether a codec is used.
        values: number of values in its pages, nulls included.
        encodings: the encodings of its pages.
    """

    column: int
    rows: int
    is_compressed: bool
    values: int
    encodings: frozenset[int]


class Data(Protocol):
    """Bytes of a file, which need not be in memory."""

    def __len__(self) -> int:
        """Their number."""
        ...

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> bytes: ...


def column_chunks(data: Data) -> Iterator[ColumnChunk]:
    """Yield the column chunks, by row group. Time and memory are proportional to the file's size.

    Raises:
        ValueError: it is not a Parquet file, or the pages do not fill the extent given by the footer.
    """
    size = int.from_bytes(data[-8:-4], "little")
    if size > len(data) - 12 or data[-4:] != b"PAR1":
        raise ValueError("not a Parquet file")
    footer, _ = _struct(data, len(data) - 8 - size, _MAX_DEPTH)
    for group in _list(footer, 4):
        yield from chunks_of(data, _fields(group))


def chunks_of(data: Data, group: Fields) -> Iterator[ColumnChunk]:
    """Yield the column chunks of one row group; errors as for `column_chunks`."""
    for number, chunk in enumerate(_list(group, 1)):
        about, begin, end = _column(chunk)
        found = list(_pages(data, begin, end))
        yield ColumnChunk(
            column=number,
            rows=_number(group, 3),
            is_compressed=_number(about, 4) != 0,
            values=sum(values for values, _, is_dictionary in found if not is_dictionary),
            encodings=frozenset(encoding for _, encoding, _ in found),
        )


def footer_of(data: Data, at: int) -> tuple[list[Fields], int, dict[bytes, tuple[int, int]]]:
    """Read a Parquet file's footer, from ``at`` on.

    Returns:
        The row groups; where the file's own metadata begin; and of each of these, where its value begins, and its
        length.

    Raises:
        ValueError: it is not one.
    """
    footer: Fields = {}
    number, values = 0, dict[bytes, tuple[int, int]]()
    until = 0
    while head := _byte(data, at):
        before = at
        number, at = _field_number(data, at + 1, head, number)
        if number < 5:
            footer[number], at = _value(data, at, head & 15, _MAX_DEPTH)
            continue
        until = until or before
        if number > 5 or head & 15 != 9:
            break
        head = _byte(data, at)
        size, at = (head >> 4, at + 1) if head < 0xF0 else _unsigned(data, at + 1)
        for _ in range(size):
            key = b""
            while head := _byte(data, at):  # both fields are texts
                length, at = _unsigned(data, at + 1)
                if head == 0x18 and not key:
                    key = data[at : at + length] if length <= MAX_NAME_BYTES else b""
                else:
                    values[key] = at, length
                at += length
            at += 1
    return [_fields(group) for group in _list(footer, 4)], until or at, values


def extent_of(group: Fields) -> tuple[int, int, int]:
    """Return a row group's number of rows, and where its columns begin and end."""
    columns = [_column(chunk) for chunk in _list(group, 1)]
    begin, end = min((low for _, low, _ in columns), default=0), max((high for *_, high in columns), default=0)
    return _number(group, 3), begin, end


def _column(chunk: Value) -> tuple[Fields, int, int]:
    """Return the metadata of a column chunk, and where its pages begin and end."""
    about = _fields(_fields(chunk).get(3))
    begin = _number(about, 11 if 11 in about else 9)
    return about, begin, begin + _number(about, 7)


def _pages(data: Data, at: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Yield each page's number of values and encoding, and whether it is a dictionary."""
    if not 0 <= at <= end <= len(data):
        raise ValueError("a column is outside the file")
    while at < end:
        header, at = _struct(data, at, _MAX_DEPTH)
        kind = _number(header, 1)
        if kind not in _HEADERS:
            raise ValueError("a page is of an unknown kind")
        field, encoding, count = _HEADERS[kind]
        own = _fields(header.get(field))
        yield _number(own, count), _number(own, encoding), kind == _DICTIONARY_PAGE
        at += _number(header, 3)
    if at != end:
        raise ValueError("a page is truncated")


def _number(fields: Fields, field: int) -> int:
    value = fields.get(field)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"field {field} is not a number")
    return value


def _fields(value: Value) -> Fields:
    return value if isinstance(value, dict) else {}


def _list(fields: Fields, field: int) -> list[Value]:
    value = fields.get(field)
    return value if isinstance(value, list) else []


def _struct(data: Data, at: int, depth: int) -> tuple[Fields, int]:
    """Return a struct's fields by number, and its end; values that are not numbers, structs or lists are None."""
    fields: Fields = {}
    number = 0
    while head := _byte(data, at):
        number, at = _field_number(data, at + 1, head, number)
        fields[number], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _field_number(data: Data, at: int, head: int, before: int) -> tuple[int, int]:
    """Return a field's number, given the byte that it begins with and the number of the field before it."""
    return (before + (head >> 4), at) if head >> 4 else _integer(data, at)


def _value(data: Data, at: int, kind: int, depth: int) -> tuple[Value, int]:
    if kind in _SKIPPED:
        return None, at + _SKIPPED[kind]
    if kind in {4, 5, 6}:
        return _integer(data, at)
    if kind == 8:  # binary: names and statistics
        size, at = _unsigned(data, at)
        return None, at + size
    if kind in {9, 10} and depth:
        return _values(data, at, depth - 1)
    if kind == 12 and depth:
        return _struct(data, at, depth - 1)
    raise ValueError("a header has a field of an unknown type")


def _values(data: Data, at: int, depth: int) -> tuple[Value, int]:
    """Return a list's values, and its end."""
    head = _byte(data, at)
    size, at = (head >> 4, at + 1) if head < 0xF0 else _unsigned(data, at + 1)
    values: list[Value] = []
    for _ in range(size):
        if head & 15 in {1, 2}:  # in a list, a boolean takes a byte
            value, at = None, at + 1
        else:
            value, at = _value(data, at, head & 15, depth)
        if at > len(data):
            raise ValueError("a list is truncated")
        values.append(value)
    return values, at


def _integer(data: Data, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(data: Data, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = _byte(data, at)
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number is too long")


def _byte(data: Data, at: int) -> int:
    if at >= len(data):
        raise ValueError("a header is truncated")
    return data[at]


SCHEMA = pa.schema(
    [
        pa.field("segment", pa.string(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("events", pa.int64(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
    ]
)
DIGEST_BYTES = 64
FRAME_SIZE_BYTES = 4
MAX_NAME_BYTES = 1000
AS_READ = SCHEMA.set(0, SCHEMA.field(0).with_type(pa.dictionary(pa.int32(), pa.string())))
FRAMES = pa.field("frames", pa.list_(pa.int32()), nullable=False)
"""Additional column in the index of a compressed generation."""

BATCH_ROWS = 10_000

DIGEST = b"streamvault.digest"
"""Metadata: the algorithm of the digests; SHA-256 if there is none, as earlier releases wrote none."""
SHA256 = b"sha256"

CHECKSUMS = "streamvault.crc64nvme.{}"
"""Metadata N: the checksums of the objects of the ranges from row N * `BATCH_ROWS` on, in base64."""
UNKNOWN_CHECKSUM = "." * 12
BLOCKS = "streamvault.blocks.{}"
"""Metadata N: the checksums of the blocks of each of the `BLOCKS_ROWS` ranges from row N * `BLOCKS_ROWS` on."""
BLOCKS_ROWS = 1000
MAX_TEXT = 64 * 1024 * 1024
"""Characters of one such text; Parquet's readers accept at most 100,000,000."""
MAX_WITH_BLOCKS = 256 * 1024 * 1024
"""Largest index (bytes, without its footer) that has them, of some 20 TiB: every command reads it whole."""
_CHECKSUM = re.compile(r"[A-Za-z0-9+/]{11}=")


def encode_ranges(stream: StreamName, rows: Iterable[ArchivedRange]) -> bytes:
    """Encode rows, in order of (segment, start), as a Parquet file.

    Checksums of blocks are left out if readers would not accept a file with them.

    Raises:
        Failed: the file would be larger than readers accept.
    """
    sink, left, number = io.BytesIO(), iter(rows), 0
    batch = list(islice(left, BATCH_ROWS))
    schema = SCHEMA.append(FRAMES) if any(row.frames for row in batch) else SCHEMA
    metadata, blocks = {DIGEST.decode(): SHA256.decode()}, dict[str, str]()
    with pq.ParquetWriter(sink, schema, compression="none", use_dictionary=["segment"]) as writer:
        while batch:
            columns = [
                _texts(row.segment.in_stream(stream) for row in batch),
                _numbers("q", (row.start for row in batch)),
                _numbers("q", (row.end for row in batch)),
                _numbers("q", (row.events for row in batch)),
                _texts(row.digest for row in batch),
            ]
            if schema is not SCHEMA:
                columns.append(_lists(row.frames for row in batch))
            writer.write_batch(pa.record_batch(columns, schema=schema))
            if any(row.crc64nvme for row in batch):
                metadata[CHECKSUMS.format(number)] = "".join(row.crc64nvme or UNKNOWN_CHECKSUM for row in batch)
            for first in range(0, len(batch), BLOCKS_ROWS):
                some = batch[first : first + BLOCKS_ROWS]
                lengths = [block_checksums_length(row.end - row.start) for row in some]
                if any(row.block_checksums for row in some) and sum(lengths) <= MAX_TEXT:
                    held = (row.block_checksums or "." * length for row, length in zip(some, lengths, strict=True))
                    blocks[BLOCKS.format((number * BATCH_ROWS + first) // BLOCKS_ROWS)] = "".join(held)
            batch = list(islice(left, BATCH_ROWS))
            number += 1
        if sink.tell() + sum(map(len, blocks.values())) <= MAX_WITH_BLOCKS:
            metadata.update(blocks)
        writer.add_key_value_metadata(metadata)
    if sink.tell() > MAX_INDEX_BYTES:
        raise Failed(f"the index of ranges would have {sink.tell()} bytes; readers accept at most {MAX_INDEX_BYTES}")
    return sink.getvalue()


def decode_ranges(
    stream: StreamName, data: bytes, where: str, *, max_rows: int | None = None
) -> Iterator[ArchivedRange]:
    """Decode the rows of an index. The sizes it claims are checked before anything is decoded.

    Args:
        stream: the archive's stream; every row must name a segment of it.
        data: the file's content.
        where: the file's name for messages.
        max_rows: maximum number of rows, such as the number of the generation's events.

    Raises:
        Damaged: the file is not an index, has more rows, an invalid row, or rows that overlap or are not in order; or
            its digests are of an algorithm that this release does not know.
    """
    try:
        file = pq.ParquetFile(io.BytesIO(data), read_dictionary=["segment"], pre_buffer=False)
        if not (file.schema_arrow.equals(AS_READ) or file.schema_arrow.equals(AS_READ.append(FRAMES))):
            raise Damaged("not an index of ranges (wrong columns)", where=where)
        metadata = file.metadata.metadata or {}
        check_algorithm(metadata.get(DIGEST, SHA256), where)
        check_rows(column_chunks(data), len(data), max_rows, where)
        checksums, blocks = _checksums(metadata, file.metadata.num_rows, where), _Blocks(metadata, where)
        read = RowReader(stream, where)
        last: ArchivedRange | None = None
        for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
            _check_names(batch.column(0), where)
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                row = read.row(values, next(checksums), blocks)
                if last is not None and (last.segment, last.end) > (row.segment, row.start):
                    raise Damaged(f"the ranges are not in order at {row.start} of {row.segment}", where=where)
                yield row
                last = row
        blocks.check_end()
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise content_error(error, "not a readable index of ranges", where=f"{where}: {one_line(error)}") from None


def check_algorithm(name: bytes, where: str) -> None:
    """Raise `Damaged` unless the digests are of the algorithm that this release knows."""
    if name != SHA256:
        what = f"the index of ranges has digests of an unsupported algorithm ({one_line(name.decode())})"
        raise Damaged(what, where=where, todo="Use a newer release.")


def check_rows(parts: Iterable[ColumnChunk], size: int, max_rows: int | None, where: str) -> None:
    """Raise `Damaged` unless the numbers in the page headers fit so many bytes of a file."""
    rows, columns = 0, len(SCHEMA)
    for part in parts:
        is_name, is_frames = part.column == 0, part.column == columns
        rows += part.rows if is_name else 0
        if rows > size // DIGEST_BYTES or (max_rows is not None and rows > max_rows):
            raise Damaged(f"an index of ranges cannot have {rows} rows", where=where)
        if part.is_compressed:
            raise Damaged("the index of ranges is compressed", where=where)
        if part.encodings - {PLAIN} - (DICTIONARY if is_name else frozenset()):
            raise Damaged("the index of ranges has an unsupported encoding", where=where)
        if is_frames and part.values > max(part.rows, size // FRAME_SIZE_BYTES):
            raise Damaged(f"an index of ranges cannot have {part.values} frames", where=where)
        if not is_frames and part.values != part.rows:
            what = f"a column of the index of ranges has {part.values} values for {part.rows} rows"
            raise Damaged(what, where=where)


def _check_names(column: pa.DictionaryArray, where: str) -> None:
    """Raise `Damaged` if a name is too long: so far each is stored once, but every decoded row has a copy."""
    names = column.dictionary
    ends = memoryview(names.buffers()[1]).cast("i")[names.offset : names.offset + len(names) + 1] if len(names) else [0]
    if any(high - low > MAX_NAME_BYTES for low, high in pairwise(ends)):
        raise Damaged("an index of ranges names an invalid segment", where=where)


def _checksums(metadata: Mapping[bytes, bytes], rows: int, where: str) -> Iterator[str]:
    """Yield the checksum of each of so many rows."""
    for first in range(0, rows, BATCH_ROWS):
        size = min(rows - first, BATCH_ROWS)
        held = metadata.get(CHECKSUMS.format(first // BATCH_ROWS).encode(), b"").decode()
        if len(held) not in {0, size * len(UNKNOWN_CHECKSUM)}:
            raise Damaged("an index of ranges has invalid checksums", where=where)
        for at in range(0, len(held), len(UNKNOWN_CHECKSUM)):
            one = held[at : at + len(UNKNOWN_CHECKSUM)]
            if one != UNKNOWN_CHECKSUM and not _CHECKSUM.fullmatch(one):
                raise Damaged("an index of ranges has an invalid checksum", where=f"{where}: {one_line(one)}")
            yield "" if one == UNKNOWN_CHECKSUM else one
        if not held:
            yield from repeat("", size)


class _Blocks:
    """The checksums of the ranges' blocks, to be taken in the order of the rows."""

    def __init__(self, metadata: Mapping[bytes, bytes], where: str) -> None:
        self._metadata, self._where = metadata, where
        self._row, self._text, self._at = 0, "", 0

    def take(self, size: int) -> str:
        """Return those of the next row, a range of this size (bytes); empty if they are not known."""
        if not self._row % BLOCKS_ROWS:
            self.check_end()
            self._text, self._at = self._metadata.get(BLOCKS.format(self._row // BLOCKS_ROWS).encode(), b"").decode(), 0
        self._row += 1
        if not self._text:
            return ""
        length = block_checksums_length(size)
        text = self._text[self._at : self._at + length]
        self._at += length
        if len(text) == length and not text.strip("."):
            return ""
        if not are_block_checksums(text, size):
            raise self._damaged()
        return text

    def check_end(self) -> None:
        """Raise `Damaged` if there are more than were taken."""
        if self._at < len(self._text):
            raise self._damaged()

    def _damaged(self) -> Damaged:
        return Damaged("an index of ranges has invalid checksums of blocks", where=f"{self._where}, row {self._row}")


# Built from buffers: `pyarrow.array` imports pandas, where it is installed, to test whether its argument is of pandas,
# and most commands have no other use for it.


def _numbers(code: str, values: Iterable[int]) -> pa.Array:
    held = array(code, values)
    kind = pa.int64() if code == "q" else pa.int32()
    return pa.Array.from_buffers(kind, len(held), [None, pa.py_buffer(held)])


def _texts(values: Iterable[str]) -> pa.Array:
    encoded = [value.encode() for value in values]
    ends = pa.py_buffer(array("i", accumulate(map(len, encoded), initial=0)))
    return pa.Array.from_buffers(pa.string(), len(encoded), [None, ends, pa.py_buffer(b"".join(encoded))])


def _lists(values: Iterable[Sequence[int]]) -> pa.Array:
    held = list(values)
    ends = _numbers("i", accumulate(map(len, held), initial=0))
    return pa.ListArray.from_arrays(ends, _numbers("i", chain.from_iterable(held)))


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads rows of a stream's index, whose name is for messages."""

    stream: StreamName
    where: str

    def segment(self, name: str) -> SegmentId:
        """Return the segment that a row names.

        Raises:
            Damaged: the name is not valid.
        """
        try:
            return SegmentId.parse(name.rpartition("/")[2])
        except InvalidName as error:
            where = f"{self.where}: {one_line(error)}"
            raise Damaged("an index of ranges names an invalid segment", where=where) from None

    def row(self, values: Sequence[Any], checksum: str, blocks: _Blocks | str) -> ArchivedRange:
        """Return a row.

        Args:
            values: of the columns.
            checksum: its `ArchivedRange.crc64nvme`.
            blocks: the checksums of its blocks, or of this and later rows.

        Raises:
            Damaged: it is not valid.
        """
        name, start, end, events, digest = values[:5]
        frames = tuple(values[5]) if len(values) > 5 else ()
        segment = self.segment(name)
        right = name.rpartition("/")[0] == str(self.stream) and 0 <= start < end and 0 <= events <= (end - start) // 8
        if not right or len(digest) != 64 or digest.strip("0123456789abcdef") or not _are_frames(frames, end - start):
            raise Damaged("an index of ranges has an invalid row", where=f"{self.where}: {one_line(values)}")
        if isinstance(blocks, str):
            noted = "" if not blocks.strip(".") else blocks
            if noted and not are_block_checksums(noted, end - start):
                raise Damaged("an index of ranges has invalid checksums of blocks", where=self.where)
        else:
            noted = blocks.take(end - start)
        return ArchivedRange(segment, start, end, events, digest, frames, crc64nvme=checksum, block_checksums=noted)


def _are_frames(frames: tuple[Any, ...], size: int) -> bool:
    """Check whether frames are valid for a range of this size."""
    return not frames or (
        len(frames) == -(-size // FRAME_BYTES) and all(isinstance(f, int) and 0 < f <= MAX_FRAME_BYTES for f in frames)
    )
