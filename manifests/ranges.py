"""The index of a generation's ranges, ``GGGGGGGGGG.ranges.parquet``: one row a range, in the stream's order.

A row stands for a range of up to the range size (64 MiB), so the index of a terabyte has some 16,000 rows; nothing here
grows with the number of events.

The file is not compressed and stores each digest and each frame's size as it is: at least 64 bytes for a row and 4 for
a frame. So the file's size tells a reader how much decoding may yield, and a file that promises more is refused.
"""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from common.errors import Damaged, Failed
from layouts.frames import FRAME_BYTES, MAX_FRAME_BYTES
from manifests.entries import one_line
from manifests.parquet_pages import DICTIONARY, PLAIN, parts_of_columns
from manifests.range_row import RangeRow
from streamstore.errors import InvalidName
from streamstore.model import SegmentId, StreamName

__all__ = ["MOST_INDEX_BYTES", "decode_ranges", "encode_ranges"]

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
LONGEST_NAME = 1000
AS_READ = SCHEMA.set(0, SCHEMA.field(0).with_type(pa.dictionary(pa.int32(), pa.string())))
FRAMES = pa.field("frames", pa.list_(pa.int32()), nullable=False)
"""A column that only the index of a compressed generation has."""

BATCH_ROWS = 10_000

MOST_INDEX_BYTES = 1024 * 1024 * 1024
"""A larger index is not read: that of half a petabyte, or of a sixth if it is compressed."""


def encode_ranges(stream: StreamName, rows: Iterable[RangeRow]) -> bytes:
    """The rows, in order of (segment, start), as a Parquet file.

    Raises:
        Failed: it is larger than what readers take.
    """
    sink, left = io.BytesIO(), iter(rows)
    batch = list(islice(left, BATCH_ROWS))
    schema = SCHEMA.append(FRAMES) if any(row.frames for row in batch) else SCHEMA
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
            batch = list(islice(left, BATCH_ROWS))
    if sink.tell() > MOST_INDEX_BYTES:
        raise Failed(f"the index of ranges would have {sink.tell()} bytes, more than readers take ({MOST_INDEX_BYTES})")
    return sink.getvalue()


def decode_ranges(stream: StreamName, data: bytes, where: str, *, most_rows: int | None = None) -> Iterator[RangeRow]:
    """The rows of a Parquet file. What the file says of its size is checked before any of it is decoded.

    Args:
        stream: the archive's stream; every row has to name a segment of it.
        data: the file.
        where: the file's name for a message.
        most_rows: how many rows there can be, such as the number of the generation's events.

    Raises:
        Damaged: not such a file, one with more rows, a row that cannot be, or rows that overlap or are not in order.
    """
    try:
        file = pq.ParquetFile(io.BytesIO(data), read_dictionary=["segment"])
        if not (file.schema_arrow.equals(AS_READ) or file.schema_arrow.equals(AS_READ.append(FRAMES))):
            raise Damaged("not an index of ranges (its columns are others)", where=where)
        _check_size(data, most_rows, where)
        last: RangeRow | None = None
        for batch in file.iter_batches(BATCH_ROWS):
            _check_names(batch.column(0), where)
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                row = _row(stream, values, where)
                if last is not None and (last.segment, last.end) > (row.segment, row.start):
                    raise Damaged(f"the ranges are not in order at {row.start} of {row.segment}", where=where)
                yield row
                last = row
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise Damaged("not a readable index of ranges", where=f"{where}: {one_line(error)}") from None


def _check_size(data: bytes, most_rows: int | None, where: str) -> None:
    """Raise `Damaged` unless what the pages promise fits a file of this size."""
    rows, columns = 0, len(SCHEMA)
    for part in parts_of_columns(data):
        is_name, is_frames = part.column == 0, part.column == columns
        rows += part.rows if is_name else 0
        if rows > len(data) // DIGEST_BYTES or (most_rows is not None and rows > most_rows):
            raise Damaged(f"an index of ranges cannot have {rows} rows", where=where)
        if part.is_compressed:
            raise Damaged("the index of ranges is compressed", where=where)
        if part.encodings - {PLAIN} - (DICTIONARY if is_name else frozenset()):
            raise Damaged("the index of ranges is stored in another way than plainly", where=where)
        if is_frames and part.values > max(part.rows, len(data) // FRAME_SIZE_BYTES):
            raise Damaged(f"an index of ranges cannot have {part.values} frames", where=where)
        if not is_frames and part.values != part.rows:
            what = f"a column of the index of ranges has {part.values} values for {part.rows} rows"
            raise Damaged(what, where=where)


def _check_names(column: pa.DictionaryArray, where: str) -> None:
    """Names are kept once each until here: written out for every row, long ones would fill the memory."""
    names = column.dictionary
    ends = memoryview(names.buffers()[1]).cast("i")[names.offset : names.offset + len(names) + 1] if len(names) else [0]
    if any(high - low > LONGEST_NAME for low, high in pairwise(ends)):
        raise Damaged("an index of ranges names no segment", where=where)


# Made of buffers: `pyarrow.array` would load pandas where it is installed, to see whether what it is given is of that
# kind, and most commands have no other use for it.


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


def _row(stream: StreamName, values: Sequence[Any], where: str) -> RangeRow:
    name, start, end, events, digest = values[:5]
    frames = tuple(values[5]) if len(values) > 5 else ()
    owner, _, segment = name.rpartition("/")
    try:
        found = SegmentId.parse(segment)
    except InvalidName as error:
        raise Damaged("an index of ranges names no segment", where=f"{where}: {one_line(error)}") from None
    right = owner == str(stream) and 0 <= start < end and 0 < events <= (end - start) // 8
    if not right or len(digest) != 64 or digest.strip("0123456789abcdef") or not _are_frames(frames, end - start):
        raise Damaged("an impossible row in an index of ranges", where=f"{where}: {one_line(values)}")
    return RangeRow(found, start, end, events, digest, frames)


def _are_frames(frames: tuple[Any, ...], size: int) -> bool:
    """Whether a range of this size can have these frames."""
    return not frames or (
        len(frames) == -(-size // FRAME_BYTES) and all(isinstance(f, int) and 0 < f <= MAX_FRAME_BYTES for f in frames)
    )
