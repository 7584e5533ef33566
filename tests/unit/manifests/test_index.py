"""The index of ranges: the round trip through Parquet, and every invalid row."""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.common.errors import Damaged
from streamvault.layouts.archived_range import BLOCK_BYTES, ArchivedRange, segment_digest
from streamvault.layouts.chunks import MAX_FRAME_BYTES
from streamvault.manifests.index import FRAMES, SCHEMA, decode_ranges, encode_ranges
from streamvault.streamstore.model import SegmentId
from tests.archives import LEFT, NAME, RIGHT, two_generations
from tests.told import damage

WHERE = "s3://bucket/scope/stream/_manifest/0000000001.ranges.parquet"
DIGEST = "ab" * 32


def rows_of(count: int) -> Iterator[ArchivedRange]:
    return (
        ArchivedRange(SegmentId(number // 5000, 7), number * 64, number * 64 + 64, 8, DIGEST) for number in range(count)
    )


@given(st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=5), st.integers(0, 2**62))
def test_rows_round_trip(numbers: list[int], start: int) -> None:
    rows = [
        ArchivedRange(SegmentId(number, number), start + i * 100, start + i * 100 + 100, 3, f"{number:064x}")
        for number in sorted(numbers)
        for i in range(3)
    ]
    assert list(decode_ranges(NAME, encode_ranges(NAME, rows), WHERE)) == rows


def test_many_rows_go_in_batches_both_ways() -> None:
    data = encode_ranges(NAME, rows_of(25_000))
    file = pq.ParquetFile(io.BytesIO(data))
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [10_000, 10_000, 5_000]
    assert sum(1 for _ in decode_ranges(NAME, data, WHERE)) == 25_000
    assert len(data) < 25_000 * 100


def checksum_at(number: int) -> str:
    return "" if number % 3 == 0 else base64.b64encode(number.to_bytes(8)).decode()


@pytest.mark.parametrize("first", [0, 12_000])
def test_checksums_round_trip_beside_the_columns(first: int) -> None:
    """Earlier releases reject an index with other columns, and have no checksums."""
    known = {number: checksum_at(number) for number in range(first, 25_000)}
    rows = [replace(row, crc64nvme=known.get(number, "")) for number, row in enumerate(rows_of(25_000))]
    data = encode_ranges(NAME, rows)
    found = list(decode_ranges(NAME, data, WHERE))
    assert found == rows == list(rows_of(25_000))
    assert [row.crc64nvme for row in found] == [row.crc64nvme for row in rows]
    file = pq.ParquetFile(io.BytesIO(data))
    assert file.schema_arrow.equals(SCHEMA)
    assert len(file.metadata.metadata[b"streamvault.crc64nvme.2"]) == 5_000 * 12
    assert (b"streamvault.crc64nvme.0" in file.metadata.metadata) == (first == 0)


def blocks_at(number: int) -> str:
    return "" if number % 3 == 0 else base64.b64encode(number.to_bytes(16)).decode()


def two_blocks_each(count: int, first: int = 0) -> list[ArchivedRange]:
    size = BLOCK_BYTES + 9
    return [
        ArchivedRange(SegmentId(0, 7), at * size, (at + 1) * size, 8, DIGEST, block_checksums=blocks_at(at))
        for at in range(first, first + count)
    ]


def test_checksums_of_blocks_round_trip_beside_the_columns() -> None:
    rows = two_blocks_each(12_500)
    rows[2000:3000] = [replace(row, block_checksums="") for row in rows[2000:3000]]
    data = encode_ranges(NAME, rows)
    assert [row.block_checksums for row in decode_ranges(NAME, data, WHERE)] == [row.block_checksums for row in rows]
    file = pq.ParquetFile(io.BytesIO(data))
    assert file.schema_arrow.equals(SCHEMA)
    held = {key for key in file.metadata.metadata if key.startswith(b"streamvault.blocks.")}
    assert held == {f"streamvault.blocks.{number}".encode() for number in range(13) if number != 2}
    assert len(file.metadata.metadata[b"streamvault.blocks.12"]) == 500 * 24


@pytest.mark.parametrize("limit", ["MAX_TEXT", "MAX_WITH_BLOCKS"])
def test_checksums_of_blocks_are_left_out_of_an_index_that_becomes_too_large(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    rows = two_blocks_each(3, first=1)
    assert blocks_at(1) in {row.block_checksums for row in decode_ranges(NAME, encode_ranges(NAME, rows), WHERE)}
    monkeypatch.setattr(f"streamvault.manifests.index.{limit}", 71)
    found = list(decode_ranges(NAME, encode_ranges(NAME, rows), WHERE))
    assert found == rows
    assert {row.block_checksums for row in found} == {""}


@pytest.mark.parametrize(
    "text", ["x", "A" * 11, "A" * 11 + "=A", "." * 11 + "A", "A" * 12, "A" * 10 + "==", "A" * 11 + "=" + "." * 12]
)
def test_invalid_checksums_of_blocks_are_damage(text: str) -> None:
    assert "invalid checksums of blocks" in refusal(with_metadata({"streamvault.blocks.0": text}))


def with_metadata(metadata: dict[str, str]) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, SCHEMA, compression="none", use_dictionary=["segment"]) as writer:
        writer.write_table(pq.read_table(io.BytesIO(file_of()), schema=SCHEMA))
        writer.add_key_value_metadata(metadata)
    return sink.getvalue()


@pytest.mark.parametrize(
    "text", ["x", "AAAAAAAAAAA", "AAAAAAAAAAA=A", "\x1b[31mAAAAAA=", "AAAAAAAAAAAA", "." * 12 * 10_001, "ä" * 6]
)
def test_invalid_checksums_are_damage(text: str) -> None:
    assert "invalid checksum" in refusal(with_metadata({"streamvault.crc64nvme.0": text}))


def test_index_names_the_algorithm_of_its_digests() -> None:
    data = encode_ranges(NAME, rows_of(1))
    assert pq.ParquetFile(io.BytesIO(data)).metadata.metadata[b"streamvault.digest"] == b"sha256"
    assert len(list(decode_ranges(NAME, with_metadata({}), WHERE))) == 1  # of an earlier release
    with pytest.raises(Damaged) as caught:
        list(decode_ranges(NAME, with_metadata({"streamvault.digest": "blake3\n"}), WHERE))
    assert caught.value.what == "the index of ranges has digests of an unsupported algorithm (blake3 )"
    assert (caught.value.where, caught.value.todo) == (WHERE, "Use a newer release.")


def test_index_is_plain_parquet() -> None:
    made = two_generations()[0]
    table = pq.read_table(io.BytesIO(encode_ranges(NAME, made.rows)))
    assert table.column_names == ["segment", "start", "end", "events", "digest"]
    assert table.to_pylist()[0] == {
        "segment": "scope/stream/0.#epoch.0",
        "start": 0,
        "end": 19,
        "events": 2,
        "digest": made.rows[0].digest,
    }


def test_segment_digest_is_that_of_its_ranges_digests() -> None:
    one, two = hashlib.sha256(b"1"), hashlib.sha256(b"2")
    assert segment_digest([one.hexdigest(), two.hexdigest()]) == hashlib.sha256(one.digest() + two.digest()).hexdigest()
    assert segment_digest([]) == hashlib.sha256(b"").hexdigest()


def file_of(
    schema: pa.Schema = SCHEMA, *, rows: int = 1, options: dict[str, Any] | None = None, **changes: Any
) -> bytes:
    """A file of equal rows."""
    row = {"segment": "scope/stream/0.#epoch.0", "start": 0, "end": 64, "events": 2, "digest": DIGEST} | changes
    sink = io.BytesIO()
    table = pa.table([[row.get(name)] * rows for name in schema.names], schema=schema)
    pq.write_table(table, sink, **{"compression": "none", "use_dictionary": ["segment"], **(options or {})})
    return sink.getvalue()


def refusal(data: bytes) -> str:
    return damage(lambda: list(decode_ranges(NAME, data, WHERE)), WHERE)


@pytest.mark.parametrize(
    "changes",
    [
        {"segment": "../../x"},
        {"segment": "/scope/stream/0.#epoch.0"},
        {"segment": "scope/other/0.#epoch.0"},
        {"segment": "scope/stream/0.#epoch.0\x1b[31m"},
        {"segment": "0.#epoch.0"},
        {"segment": ""},
        {"start": -1},
        {"start": 64},
        {"start": 65},
        {"end": -(2**63)},
        {"events": -1},
        {"events": 9},  # no room for nine headers
        {"digest": ""},
        {"digest": "AB" * 32},
        {"digest": "xy" * 32},
        {"digest": "ab" * 33},
    ],
)
def test_invalid_row_is_damage(changes: dict[str, Any]) -> None:
    assert "index of ranges" in refusal(file_of(**changes))


def test_rows_that_overlap_or_are_out_of_order_are_damage() -> None:
    first, second = ArchivedRange(LEFT, 0, 64, 2, DIGEST), ArchivedRange(LEFT, 64, 128, 2, DIGEST)
    other = ArchivedRange(RIGHT, 0, 64, 2, DIGEST)
    assert list(decode_ranges(NAME, encode_ranges(NAME, [first, second, other]), WHERE)) == [first, second, other]
    for rows in ([second, first], [first, first], [other, first], [first, ArchivedRange(LEFT, 63, 128, 2, DIGEST)]):
        assert "not in order" in refusal(encode_ranges(NAME, rows))


def test_other_columns_are_damage() -> None:
    for schema in (
        SCHEMA.remove(4),
        SCHEMA.append(pa.field("more", pa.int64())),
        SCHEMA.set(1, pa.field("start", pa.int32(), nullable=False)),
        SCHEMA.set(0, pa.field("segment", pa.string())),
        pa.schema(list(itertools.islice(iter(SCHEMA), 4, None)) + list(SCHEMA)[:4]),
    ):
        assert "wrong columns" in refusal(file_of(schema))


@pytest.mark.parametrize("options", [{"compression": "zstd", "use_dictionary": True}, {"use_dictionary": True}])
def test_small_file_that_claims_millions_of_rows_is_damage(options: dict[str, Any]) -> None:
    data = file_of(rows=2_000_000, options=options)
    assert len(data) < 100_000
    before = pa.total_allocated_bytes()
    assert re.search("cannot have [12][0-9]{6} rows", refusal(data))
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_compressed_index_is_damage() -> None:
    assert "is compressed" in refusal(file_of(rows=10, options={"compression": "zstd"}))
    assert "unsupported encoding" in refusal(file_of(rows=10, options={"use_dictionary": True}))


def many_frames(**options: Any) -> bytes:
    # they occupy no space in the file
    return file_of(SCHEMA.append(FRAMES), options=options, frames=[None] * 2_000_000)


def test_small_file_that_claims_millions_of_frames_is_damage() -> None:
    data = many_frames()
    assert len(data) < 100_000
    assert "cannot have 2000000 frames" in refusal(data)


def varint(number: int, size: int = 0) -> bytes:
    """A Thrift integer, encoded in a minimum number of bytes."""
    number <<= 1
    digits = [number >> shift & 127 for shift in range(0, max(7 * size, number.bit_length()), 7)]
    return bytes([*(digit | 128 for digit in digits[:-1]), digits[-1]])


def test_footer_that_claims_less_than_the_pages_hold_is_damage() -> None:
    data = many_frames(data_page_size=1 << 30, write_batch_size=1 << 24)
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    true = varint(2_000_000)
    lying = data[:begin] + data[begin:].replace(true, varint(100, len(true)))
    footer = pq.ParquetFile(io.BytesIO(lying)).metadata
    assert footer.row_group(0).column(5).num_values == 100
    before = pa.default_memory_pool().max_memory()
    assert "cannot have 2000000 frames" in refusal(lying)
    assert pa.default_memory_pool().max_memory() == before


def test_long_names_are_not_written_out_for_every_row() -> None:
    data = file_of(rows=1000, segment="x" * 100_000)
    assert len(data) < 400_000
    assert "names an invalid segment" in refusal(data)


def test_more_rows_than_events_are_damage() -> None:
    data = encode_ranges(NAME, rows_of(3))
    assert len(list(decode_ranges(NAME, data, WHERE, max_rows=3))) == 3
    with pytest.raises(Damaged, match="cannot have 3 rows"):
        list(decode_ranges(NAME, data, WHERE, max_rows=2))


def test_truncated_or_changed_index_is_damage() -> None:
    data = encode_ranges(NAME, rows_of(3))
    for size in range(0, len(data), 7):
        refusal(data[:size])
    refusal(b"x" * 100)
    refusal(b"")
    for place in range(len(data)):
        for other in (data[place] ^ 0xFF, 42):  # pyarrow crashes the process at a codec with this number
            changed = bytearray(data)
            changed[place] = other
            # Some changes result in a readable file that disagrees with the manifest; none may cause a traceback.
            with suppress(Damaged):
                list(decode_ranges(NAME, bytes(changed), WHERE))


def compressed_rows() -> list[ArchivedRange]:
    mib = 1024 * 1024
    return [
        ArchivedRange(LEFT, 0, 2 * mib + 8, 3, DIGEST, (500, 700, 21)),
        ArchivedRange(LEFT, 2 * mib + 8, 2 * mib + 16, 1, DIGEST, (17,)),
        ArchivedRange(RIGHT, 0, mib, 2, DIGEST, (MAX_FRAME_BYTES,)),
    ]


def test_frame_sizes_round_trip() -> None:
    rows = compressed_rows()
    assert list(decode_ranges(NAME, encode_ranges(NAME, rows), WHERE)) == rows
    table = pq.read_table(io.BytesIO(encode_ranges(NAME, rows)))
    assert table.column_names == ["segment", "start", "end", "events", "digest", "frames"]
    assert table.column("frames").to_pylist() == [[500, 700, 21], [17], [MAX_FRAME_BYTES]]
    assert rows[0].frames == (500, 700, 21)


@pytest.mark.parametrize("frames", [[0], [-1], [5, 5], [1, 2, 3], [None]])
def test_invalid_frames_are_damage(frames: list[int | None]) -> None:
    assert "has an invalid row" in refusal(file_of(SCHEMA.append(FRAMES), frames=frames))


def test_frames_column_of_another_type_is_damage() -> None:
    for kind in (pa.list_(pa.int64()), pa.list_(pa.string()), pa.int32()):
        schema = SCHEMA.append(pa.field("frames", kind, nullable=False))
        value: Any = 5 if kind == pa.int32() else ["5"] if kind == pa.list_(pa.string()) else [5]
        assert "wrong columns" in refusal(file_of(schema, frames=value))
    nullable = SCHEMA.append(pa.field("frames", pa.list_(pa.int32())))
    assert "wrong columns" in refusal(file_of(nullable, frames=None))
