"""Layout chunks beyond the contract of all layouts: one object per range, frames, requests, damaged objects."""

from __future__ import annotations

import io
import random
import tracemalloc
from collections import deque
from collections.abc import Iterator
from itertools import pairwise

import pytest
import zstandard

from streamvault.common.errors import Conflict, Damaged
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.chunks import FRAME_BYTES, FRAMED_PART_BYTES, ChunksLayout
from streamvault.layouts.keys import CHUNK_KEYS
from streamvault.layouts.layout import UnknownLayout, open_layout
from streamvault.objectstore.store import ObjectStore, crc64nvme
from streamvault.streamstore.events import EventBlock
from testkit.streams import frame
from tests.metered import MeteredStore
from tests.places import PREFIX, SEGMENT, memory, place_of

RAW, ZSTD = ChunksLayout(), ChunksLayout(compress=True)
START = 1000
MIB = 1024 * 1024


def blocks(raw: bytes, count: int = 1) -> Iterator[EventBlock]:
    yield EventBlock(START, memoryview(raw), count)


def key_of(raw: bytes) -> str:
    return f"{PREFIX}chunks/0000000003.0000000007/{START:019d}-{len(raw):019d}"


def range_of(raw: bytes, frames: tuple[int, ...] = ()) -> ArchivedRange:
    return ArchivedRange(SEGMENT, START, START + len(raw), 0, "", frames)


def events(size: int, seed: int = 1) -> tuple[list[int], bytes]:
    """Return events of many sizes, each half compressible: their offsets in the segment, and their bytes."""
    rng, offsets, data = random.Random(seed), [], bytearray()
    while len(data) < size:
        offsets.append(START + len(data))
        length = rng.choice([0, 10, 3000, 70_000])
        data += frame(rng.randbytes(length // 2) + bytes(length - length // 2))
    return offsets, bytes(data)


OFFSETS, LARGE = events(9 * MIB + 12_345)
"""Size of more than two parts and more than nine frames (bytes)."""


@pytest.fixture(scope="module", params=["raw", "zstd"])
def layout(request: pytest.FixtureRequest) -> ChunksLayout:
    return ZSTD if request.param == "zstd" else RAW


@pytest.fixture(scope="module")
def held(layout: ChunksLayout) -> tuple[ObjectStore, ArchivedRange]:
    """`LARGE`, archived; tests do not change it."""
    store = memory()
    return store, range_of(LARGE, layout.write_run(place_of(store), SEGMENT, blocks(LARGE)).frames)


def test_range_is_one_object_of_the_segments_own_bytes() -> None:
    store = memory()
    assert RAW.write_run(place_of(store), SEGMENT, blocks(LARGE)).frames == ()
    assert [entry.key for entry in store.list("")] == [key_of(LARGE)]
    assert store.get(key_of(LARGE)) == LARGE


def test_compressed_range_has_the_same_key_and_is_plain_zstd() -> None:
    store = memory()
    frames = ZSTD.write_run(place_of(store), SEGMENT, blocks(LARGE)).frames
    assert [entry.key for entry in store.list("")] == [key_of(LARGE)]
    data = store.get(key_of(LARGE))
    assert len(data) == sum(frames) < 0.8 * len(LARGE)
    assert len(frames) == 10
    reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True)
    assert reader.read() == LARGE
    at = 0
    for number, size in enumerate(frames):
        one = zstandard.ZstdDecompressor().decompress(data[at : at + size])
        assert one == LARGE[number * FRAME_BYTES : (number + 1) * FRAME_BYTES]
        assert zstandard.get_frame_parameters(data[at : at + size]).has_checksum
        at += size


@pytest.mark.parametrize(
    "size", [1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, FRAMED_PART_BYTES, FRAMED_PART_BYTES + 1]
)
def test_any_bytes_of_ranges_of_every_size_are_read(size: int) -> None:
    raw = random.Random(size).randbytes(size)  # reading needs no events
    rng = random.Random(7)
    for layout in (RAW, ZSTD):
        store = memory()
        held = range_of(raw, layout.write_run(place_of(store), SEGMENT, blocks(raw)).frames)
        edges = [0, 1, size - 1, size, *(rng.randrange(size + 1) for _ in range(6))]
        for low in edges:
            for high in edges:
                found = b"".join(layout.read_range(place_of(store), held, START + low, START + high))
                assert found == raw[low:high], (low, high)


def test_part_is_read_in_few_requests(layout: ChunksLayout, held: tuple[ObjectStore, ArchivedRange]) -> None:
    inner, where = held
    low, high = START + 3 * MIB + 17, START + 8 * MIB + 5
    store = MeteredStore(inner)
    assert b"".join(layout.read_range(place_of(store), where, low, high)) == LARGE[low - START : high - START]
    assert store.meter.requests == store.meter.gets == (1 if layout is RAW else 2)
    with_window = layout.read_range(place_of(store), where, low, high, window_bytes=8 * MIB)
    assert sum(map(len, with_window)) == high - low
    assert store.meter.gets == (1 + 1 if layout is RAW else 2 + 2)
    store = MeteredStore(inner)
    deque(layout.read_range(place_of(store), where, low, high), maxlen=0)
    # whole frames at both ends
    assert store.meter.bytes_got <= high - low + 2 * FRAME_BYTES
    store = MeteredStore(inner)
    assert list(layout.read_range(place_of(store), where, low, low)) == []
    assert store.meter.requests == 0


def test_event_is_read_in_one_request_of_a_frame_or_two(
    layout: ChunksLayout, held: tuple[ObjectStore, ArchivedRange]
) -> None:
    inner, where = held
    ends = [*OFFSETS[1:], where.end]
    edge = next(n for n, (low, high) in enumerate(zip(OFFSETS, ends, strict=True)) if low < START + MIB < high)
    for number in (0, 1, edge, len(OFFSETS) // 2, len(OFFSETS) - 1):
        offset, length = OFFSETS[number], ends[number] - OFFSETS[number]
        store = MeteredStore(inner)
        found = layout.read_event(place_of(store), where, offset, length)
        assert found == LARGE[offset - START : offset - START + length]
        assert (store.meter.requests, store.meter.gets) == (1, 1)
        assert store.meter.bytes_got <= (2 * FRAME_BYTES if where.frames else length)
        assert layout.find_event(place_of(store), where, offset + length - 1) == (offset, length)


def test_events_larger_than_a_part_are_read() -> None:
    raw = b"".join(map(frame, [b"small", random.Random(3).randbytes(8 * MIB), b"", b"x" * (5 * MIB), b"end"]))
    for layout in (RAW, ZSTD):
        store = memory()
        held = range_of(raw, layout.write_run(place_of(store), SEGMENT, blocks(raw)).frames)
        second = START + 13 + 8 * MIB + 8
        assert layout.find_event(place_of(store), held, START + 13 + 7 * MIB) == (START + 13, 8 * MIB + 8)
        assert layout.find_event(place_of(store), held, second) == (second, 8)
        assert layout.find_event(place_of(store), held, START + len(raw) - 1) == (START + len(raw) - 11, 11)


@pytest.mark.parametrize("header", [b"\xff" * 8, b"\x7f" * 8])
def test_chunk_without_a_chain_of_events_is_damage(header: bytes) -> None:
    raw = frame(b"first") + header + bytes(100)
    store = memory()
    RAW.write_run(place_of(store), SEGMENT, blocks(raw))
    assert RAW.find_event(place_of(store), range_of(raw), START + 3) == (START, 13)
    for offset in (START + 60, START + len(raw) - 1):
        if header[0] == 0x7F:
            continue  # one event of any length holds the byte; only its end would show the damage
        with pytest.raises(Damaged, match="no event begins at the offset"):
            RAW.find_event(place_of(store), range_of(raw), offset)


def test_existing_large_object_is_compared_in_parts(layout: ChunksLayout) -> None:
    inner = memory()
    first = layout.write_run(place_of(inner), SEGMENT, blocks(LARGE))
    store = MeteredStore(inner)
    assert layout.write_run(place_of(store), SEGMENT, blocks(LARGE)) == first
    if layout is RAW:
        assert (store.meter.sizes, store.meter.gets) == (1, 3)
    for place in (0, 5 * MIB, len(LARGE) - 1):
        changed = bytearray(LARGE)
        changed[place] ^= 1
        with pytest.raises(Conflict, match="a different object already exists"):
            layout.write_run(place_of(inner), SEGMENT, blocks(bytes(changed)))
    assert (
        b"".join(layout.read_range(place_of(inner), range_of(LARGE, first.frames), START, START + len(LARGE))) == LARGE
    )


def test_raw_object_of_a_different_size_is_a_conflict() -> None:
    store = memory()
    store.put(key_of(LARGE), LARGE[:-1])
    with pytest.raises(Conflict):
        RAW.write_run(place_of(store), SEGMENT, blocks(LARGE))


def framed(raw: bytes, size: int = FRAME_BYTES, **options: int) -> list[bytes]:
    squeeze = zstandard.ZstdCompressor(**options).compress
    return [squeeze(raw[low : low + size]) for low in range(0, len(raw), size)]


def test_other_frames_of_the_same_content_are_kept() -> None:
    """Another release of zstd may have made them."""
    raw = LARGE[: 2 * MIB + 99]
    store = memory()
    there = framed(raw, level=12)
    store.put(key_of(raw), b"".join(there))
    written = ZSTD.write_run(place_of(store), SEGMENT, blocks(raw))
    frames, checksum, noted = written
    assert frames == tuple(map(len, there))
    assert checksum == crc64nvme(b"".join(there))
    assert ZSTD.write_large(place_of(store), range_of(raw), [raw], MIB) == written
    ours = ZSTD.write_run(place_of(memory()), SEGMENT, blocks(raw))
    assert frames != ours.frames
    assert noted == ours.block_checksums == RAW.write_run(place_of(memory()), SEGMENT, blocks(raw)).block_checksums
    assert store.get(key_of(raw)) == b"".join(there)
    held = range_of(raw, frames)
    assert b"".join(ZSTD.read_range(place_of(store), held, START, START + len(raw))) == raw


@pytest.mark.parametrize("kind", ["raw", "cut", "empty", "more", "other frames", "unsized", "other content"])
def test_different_compressed_object_is_a_conflict(kind: str) -> None:
    raw = LARGE[: 2 * MIB + 99]
    whole = b"".join(framed(raw))
    other = {
        "raw": raw,
        "cut": whole[:-3],
        "empty": b"",
        "more": whole + framed(b"more")[0],
        "other frames": b"".join(framed(raw, size=FRAME_BYTES // 2)),
        "unsized": zstandard.ZstdCompressor(write_content_size=False).compress(raw),
        "other content": b"".join(framed(raw[:-1] + b"!")),
    }[kind]
    store = memory()
    store.put(key_of(raw), other)
    with pytest.raises(Conflict, match="a different object already exists"):
        ZSTD.write_run(place_of(store), SEGMENT, blocks(raw))
    with pytest.raises(Conflict, match="a different object already exists"):
        ZSTD.write_large(place_of(store), range_of(raw), [raw], MIB)
    assert store.get(key_of(raw)) == other


def test_large_event_with_frames_of_another_size_is_a_conflict() -> None:
    raw = frame(bytes(3 * MIB))
    store = memory()
    store.put(key_of(raw), b"".join(framed(raw, size=FRAME_BYTES // 2)))
    with pytest.raises(Conflict, match="a different object already exists"):
        ZSTD.write_large(place_of(store), range_of(raw), [raw], MIB)


def damaged(store: ObjectStore, held: ArchivedRange) -> str:
    """Check that reading all of it or one event raises `Damaged`; return the message, which is one line."""
    with pytest.raises(Damaged) as caught:
        list(ZSTD.read_range(place_of(store), held, held.start, held.end))
    text = str(caught.value)
    assert text.isprintable()
    assert "memory://archive/scope/stream/chunks/" in text
    with pytest.raises(Damaged):
        ZSTD.read_event(place_of(store), held, held.start, 13)
    with pytest.raises(Damaged):
        ZSTD.find_event(place_of(store), held, held.end - 1)
    return text


def test_any_flipped_bit_of_a_frame_is_damage() -> None:
    raw = frame(b"first") + b"".join(frame(f"{{number: {n}}}".encode()) for n in range(60))
    frames = ZSTD.write_run(place_of(memory()), SEGMENT, blocks(raw)).frames
    [data] = framed(raw, level=3, write_checksum=True)
    assert frames == (len(data),)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        store = memory()
        store.put(key_of(raw), bytes(changed))
        try:
            found = b"".join(ZSTD.read_range(place_of(store), range_of(raw, frames), START, START + len(raw)))
        except Damaged:
            damaged(store, range_of(raw, frames))
        else:
            # unused bits of a frame's header, and those of its window size, change nothing
            assert found == raw


def test_frames_of_the_wrong_size_are_damage() -> None:
    raw = frame(b"first") + bytes(100)
    for content in (raw[:-1], raw + b"x", bytes(5 * MIB)):
        [data] = framed(content, size=len(content))
        store = memory()
        store.put(key_of(raw), data)
        assert "cannot be decompressed" in damaged(store, range_of(raw, (len(data),)))


def bomb(size: int) -> bytes:
    """Return a frame that declares 1 MiB and decompresses to ``size`` bytes."""
    [honest] = framed(bytes(size), size=size, write_content_size=False)
    head = zstandard.frame_header_size(honest)
    # magic, a descriptor for a content size of four bytes in a single segment, the size
    return honest[:4] + bytes([0b1010_0000]) + FRAME_BYTES.to_bytes(4, "little") + honest[head:]


def test_frame_yields_no_more_than_it_declares() -> None:
    data = bomb(300 * MIB)
    assert len(data) < 20_000
    raw = frame(b"first") + bytes(100)
    for frames in ((len(data),), (len(data) // 2, len(data) - len(data) // 2)):
        store = memory()
        store.put(key_of(raw), data)
        held = range_of(raw, frames)
        tracemalloc.start()
        assert "cannot be decompressed" in damaged(store, held)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
        tracemalloc.stop()
    store = memory()
    store.put(key_of(raw), data)
    tracemalloc.start()
    with pytest.raises(Conflict):
        ZSTD.write_run(place_of(store), SEGMENT, blocks(raw))
    assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    tracemalloc.stop()


def test_many_frames_in_place_of_one_are_not_decompressed() -> None:
    raw = frame(b"first") + bytes(100)
    data = framed(bytes(FRAME_BYTES))[0] * 2000
    store = memory()
    store.put(key_of(raw), data)
    tracemalloc.start()
    assert "cannot be decompressed" in damaged(store, range_of(raw, (len(data),)))
    assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    tracemalloc.stop()


def test_frames_that_differ_from_the_index_are_damage() -> None:
    raw = LARGE[: 2 * MIB + 99]
    store = memory()
    sizes = ZSTD.write_run(place_of(store), SEGMENT, blocks(raw)).frames
    assert "cannot be decompressed" in damaged(store, range_of(raw, (sizes[0] - 1, sizes[1] + 1, sizes[2])))
    damaged(store, range_of(raw, (sizes[0] + 1, *sizes[1:])))  # beyond the end of the object
    with pytest.raises(Damaged, match="too few frames"):
        list(ZSTD.read_range(place_of(store), range_of(raw, sizes[:2]), START, START + len(raw)))


def test_chunks_of_wrong_guesses_are_off_the_chain() -> None:
    store = memory()
    first, second = frame(b"x" * 50) * 4, frame(b"y" * 30) * 3
    RAW.write_run(place_of(store), SEGMENT, blocks(first))
    begin = START + len(first)
    RAW.write_run(place_of(store), SEGMENT, iter([EventBlock(begin, memoryview(second), 3)]))
    right = [entry.key for entry in store.list("")]
    wrong = ((START, 58), (START + 9, 100), (START + 60, len(first)), (begin, 40), (begin + 1, 7))
    keys = [f"{PREFIX}chunks/0000000003.0000000007/{offset:019d}-{size:019d}" for offset, size in wrong]
    for key in keys:
        store.put(key, b"z")
    end = begin + len(second)
    assert list(RAW.off_chain(place_of(store), SEGMENT, START, end, [(START, begin), (begin, end)])) == keys
    store.delete(keys)
    assert list(RAW.off_chain(place_of(store), SEGMENT, START, end, [(START, begin), (begin, end)])) == []
    assert list(RAW.off_chain(place_of(store), SEGMENT, START, end, [])) == right


@pytest.mark.parametrize("further", [False, True], ids=["within the ranges", "beyond them"])
def test_chunk_joined_of_ranges_is_not_off_the_chain(further: bool) -> None:
    """Another run merges the generation right now, with itself or with the next one; the joined chunk stays."""
    store = memory()
    bounds = [START, START + 50, START + 90]
    for low, high in pairwise(bounds):
        store.put(f"{PREFIX}{CHUNK_KEYS.key(SEGMENT, low, high - low)}", b"z")
    store.put(f"{PREFIX}{CHUNK_KEYS.key(SEGMENT, START, 90 + 70 * further)}", b"joined")
    assert list(RAW.off_chain(place_of(store), SEGMENT, START, bounds[-1], [*pairwise(bounds)])) == []


def test_range_is_checked_by_one_listing() -> None:
    store = MeteredStore(memory())
    RAW.write_run(place_of(store), SEGMENT, blocks(LARGE))
    before = store.meter
    report = RAW.check_range(place_of(store), range_of(LARGE))
    assert (report.events, report.damage) == (None, ())
    assert store.meter.requests - before.requests == store.meter.lists - before.lists == 1


def test_unknown_layout_and_compression_are_rejected() -> None:
    assert isinstance(open_layout("chunks", "zstd"), ChunksLayout)
    assert open_layout("chunks").name == open_layout("chunks", "zstd").name == "chunks"
    with pytest.raises(UnknownLayout, match="layout events does not support the compression"):
        open_layout("events", "zstd")
    with pytest.raises(UnknownLayout, match=r"'chunky'\. Use events or chunks"):
        open_layout("chunky")
