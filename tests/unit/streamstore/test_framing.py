"""Framing of events; boundaries are guessed in linear time.

Splitting of whole buffers: the fast walk finds the same events as the simple one, wherever blocks are cut.

The bytes of a live segment.

The framing of a queue's entries: entries survive a round trip in any pieces, and invalid bytes are rejected.

A producer with a concurrent append: its entry is in the queue once, whatever the store answered.
"""

from __future__ import annotations

import pickle
import random
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamvault.streamstore.byte_source import LiveSegment
from streamvault.streamstore.errors import OffsetConflict, SegmentTruncated, StreamStoreUnavailable
from streamvault.streamstore.events import EventBlock, EventSplitter, whole_event_blocks
from streamvault.streamstore.framing import (
    MAX_APPEND_BYTES,
    MAX_BLOCK_BYTES,
    NotAnEvent,
    filler,
    frame,
    frame_into,
    frame_many,
)
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import MAX_EVENT_BYTES, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.queue import (
    OVERHEAD_BYTES,
    BadEntry,
    Consumer,
    Producer,
    QueueEntry,
    QueueSegment,
    decode_entry,
    encode_entry,
)
from streamvault.streamstore.store import SegmentAppender, StreamStore
from streamvault.streamstore.uri import parse_stream
from streamvault.streamstore.walking import guess_boundary
from testkit.streams import append_events
from testkit.streams import frame as framed

PAYLOADS = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.integers(0, 60).map(bytes),
        st.integers(0, 40).map(lambda n: struct.pack(">ii", 0, n) * 3),
    ),
    max_size=30,
)


def by_definition(data: bytes, base: int, *, at_end: bool) -> int | None:
    """The definition of a boundary, checked for each position."""

    def leads(position: int) -> bool:
        while position < len(data):
            piece = data[position : position + 8]
            (value,) = struct.unpack(">q", piece.ljust(8, b"\0"))
            if not 0 <= value <= MAX_EVENT_BYTES or (len(piece) < 8 and at_end):
                return False
            if len(piece) < 8:
                return True
            position += 8 + value
        return position == len(data) or not at_end

    last = len(data) if at_end else len(data) - 8
    return next((base + position for position in range(last + 1) if leads(position)), None)


def test_frame_is_the_documented_header_and_the_payload() -> None:
    assert frame(b"abc") == struct.pack(">ii", 0, 3) + b"abc"
    assert frame(b"") == bytes(8)


def test_payload_above_the_limit_is_refused() -> None:
    block = bytearray(b"kept")
    with pytest.raises(NotAnEvent, match="exceeds the maximum"):
        frame_into(block, bytes(MAX_EVENT_BYTES + 1))
    assert block == b"kept"


@given(PAYLOADS, st.integers(16, 200))
def test_blocks_hold_all_events_and_are_never_too_large(payloads: list[bytes], block_bytes: int) -> None:
    blocks = [bytes(block) for block in frame_many(payloads, block_bytes)]
    assert b"".join(blocks) == b"".join(map(frame, payloads))
    assert all(0 < len(block) <= block_bytes for block in blocks)


def test_blocks_are_cut_between_events_where_events_fit() -> None:
    payloads = [b"x" * 20, b"y" * 20, b"z" * 200, b"end"]
    blocks = [bytes(block) for block in frame_many(payloads, 60)]
    assert blocks[0] == frame(payloads[0]) + frame(payloads[1])
    assert b"".join(blocks[1:-1]) == frame(payloads[2])
    assert blocks[-1] == frame(payloads[3])


@pytest.mark.parametrize(
    "length",
    [0, *range(8, 25), *(MAX_BLOCK_BYTES + d for d in range(-9, 18)), *(3 * MAX_BLOCK_BYTES + d for d in (0, 1, 7, 8))],
)
def test_filler_fills_exactly_with_whole_events(length: int) -> None:
    blocks = list(filler(length))
    assert sum(map(len, blocks)) == length
    assert all(8 <= len(block) <= MAX_BLOCK_BYTES for block in blocks)
    left = length
    for block in blocks:
        [whole] = EventSplitter(0).feed(block)  # each block alone is whole events
        assert whole.end == len(block)
        left -= len(block)
        assert left == 0 or left >= 8  # so a run stopped after any block can resume


@pytest.mark.parametrize("length", [-1, 1, 7])
def test_filler_shorter_than_a_header_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="cannot be filled with events"):
        list(filler(length))


@settings(max_examples=300)
@given(
    st.one_of(
        st.binary(max_size=100),
        PAYLOADS.map(lambda payloads: b"".join(map(frame, payloads))),
        st.lists(st.sampled_from([b"\0", b"\0\0\0\0", b"\1", b"\x80", b"\7", b"\xff"]), max_size=60).map(b"".join),
    ),
    st.integers(0, 60),
    st.integers(0, 20),
    st.booleans(),
)
def test_guess_is_the_first_position_whose_chain_leads_through(
    data: bytes, skip: int, short: int, at_end: bool
) -> None:
    buffer = data[skip : len(data) - short if short else None]
    assert guess_boundary(buffer, 1000, at_end_of_segment=at_end) == by_definition(buffer, 1000, at_end=at_end)


def test_guess_in_text_events_is_right() -> None:
    rng = random.Random(4)
    boundaries, data = [], bytearray()
    while len(data) < MAX_EVENT_BYTES + 200_000:
        boundaries.append(len(data))
        frame_into(data, rng.randbytes(rng.randrange(1, 9000)).hex().encode())
    headers = [boundary + rng.randrange(1, 8) for boundary in rng.sample(boundaries[1:20], 5)]
    for skip in [1, 4, 7, 100, 20_000, *headers]:  # some of them inside a header
        guess = guess_boundary(memoryview(data)[skip:], skip, at_end_of_segment=False)
        assert guess == next(boundary for boundary in boundaries if boundary >= skip)


def test_guess_across_windows_follows_the_definition() -> None:
    rng = random.Random(3)
    data = bytearray()
    for _ in range(400):
        frame_into(data, rng.choice([bytes(rng.randrange(3000)), rng.randbytes(rng.randrange(3000)), b""]))
    for skip in (1, 5, 131_072 - 4, 200_001):
        piece = bytes(data[skip:])
        for at_end in (True, False):
            assert guess_boundary(piece, skip, at_end_of_segment=at_end) == by_definition(piece, skip, at_end=at_end)


def test_guess_in_the_last_event_is_the_end_of_the_segment() -> None:
    inside = b"\xff" * 5000
    assert guess_boundary(inside, 70, at_end_of_segment=True) == 5070
    assert guess_boundary(inside, 70, at_end_of_segment=False) is None
    assert guess_boundary(b"", 70, at_end_of_segment=True) == 70
    assert guess_boundary(b"", 70, at_end_of_segment=False) is None


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(bytes(MAX_EVENT_BYTES), id="zeros that lead through"),
        pytest.param(bytes(MAX_EVENT_BYTES) + b"\xff" * 16, id="zeros that lead nowhere"),
        pytest.param(struct.pack(">q", 1) * (MAX_EVENT_BYTES // 8) + b"\xff" * 16, id="small numbers"),
        pytest.param(
            (bytes(8) + b"\0\0\0\0\0\0\0\1\0") * (MAX_EVENT_BYTES // 17) + b"\xff" * 16, id="a pattern of headers"
        ),
    ],
)
def test_guess_takes_linear_time_whatever_a_payload_holds(content: bytes) -> None:
    def seconds(piece: memoryview) -> float:
        begun = time.process_time()
        guess_boundary(piece, 0, at_end_of_segment=False)
        return time.process_time() - begun

    whole = memoryview(content)
    small = min(seconds(whole[-len(content) // 8 :]) for _ in range(3))
    assert seconds(whole) < 40 * small + 0.2  # 8 times the bytes; quadratic would be 64 times


# the value of the fill bytes matters as well: zeros parse as empty events
payloads = st.builds(lambda size, byte: bytes([byte]) * size, st.integers(0, 40), st.sampled_from([0, 1, 0x7F, 0xFF]))
runs = st.builds(lambda payload, count: [payload] * count, payloads, st.integers(1, 400))
streams = st.lists(st.one_of(runs, payloads.map(lambda payload: [payload])), max_size=12).map(
    lambda parts: [payload for part in parts for payload in part]
)


def naive(data: bytes, base: int) -> list[tuple[int, bytes]]:
    """One header after the other."""
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from(">q", data, at)
        found.append((base + at, data[at + 8 : at + 8 + length]))
        at += 8 + length
    return found


def cut(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts)})
    return [data[low:high] for low, high in pairwise(edges)]


def fed(splitter: EventSplitter, blocks: Sequence[bytes]) -> list[EventBlock]:
    """The event blocks, copied: their data is valid only as long as what was fed."""
    return [
        EventBlock(found.offset, memoryview(bytes(found.data)), found.count)
        for block in blocks
        for found in splitter.feed(block)
    ]


@settings(max_examples=150)
@given(streams, st.lists(st.integers(0, 2**20), max_size=8), st.integers(0, 2**62))
@example([b"x" * 9] * 5000, [], 0)
@example([b"x" * 9] * 5000 + [b""] * 5000 + [b"y"], [7, 20_000, 20_003], 3)
@example(([b"a"] * 17 + [b"bb"]) * 300, [1], 0)
@example(([b""] * 40 + [bytes(16)]) * 100, [333], 0)
def test_events_cut_anywhere_are_those_of_the_plain_walk(payloads: list[bytes], cuts: list[int], offset: int) -> None:
    data = b"".join(map(framed, payloads))
    expected = naive(data, offset)
    assert [payload for _, payload in expected] == payloads
    splitter = EventSplitter(offset)
    found = fed(splitter, cut(data, cuts))
    assert b"".join(block.data for block in found) == data
    assert [(at, bytes(payload)) for block in found for at, payload in block.events()] == expected
    assert sum(block.count for block in found) == len(payloads)
    at = offset
    for block in found:
        assert block.offset == at
        assert block.count == sum(1 for _ in block.events()) > 0
        at = block.end
    assert splitter.finish() == splitter.offset == at == offset + len(data)
    telling = EventSplitter(offset, starts=True)
    told = [block for some in cut(data, cuts) for block in telling.feed(some)]
    assert told == found
    for block in told:
        assert block.starts is not None or block.count == 1
        starts = [0] if block.starts is None else block.starts.tolist()
        assert starts == [at - block.offset for at, _ in block.events()]


def test_whole_events_are_views_into_the_fed_buffer() -> None:
    data = bytearray(b"".join(map(framed, [b"one", b"two" * 50, b""])))
    [block] = EventSplitter(0).feed(data)
    assert (block.offset, block.end, block.count) == (0, len(data), 3)
    data[8:11] = b"uno"
    assert [bytes(payload) for _, payload in block.events()] == [b"uno", b"two" * 50, b""]


WRONG = [
    pytest.param(struct.pack(">ii", 1, 5), id="another type"),
    pytest.param(struct.pack(">q", -1), id="negative"),
    pytest.param(struct.pack(">q", MAX_EVENT_BYTES + 1), id="too long"),
]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 18, 80, 81, 82, 400, 5000])
@pytest.mark.parametrize("wrong", WRONG)
def test_invalid_event_is_refused_with_its_offset_after_a_run(wrong: bytes, count: int) -> None:
    good = framed(b"same size") * count
    splitter = EventSplitter(100, "scope/stream/0.#epoch.0")
    feeding = splitter.feed(good + wrong + bytes(50))
    if count:
        first = next(feeding)
        assert (bytes(first.data), first.count) == (good, count)
    with pytest.raises(NotAnEvent, match=r"no event begins at offset \d+.*: scope/stream/0.#epoch.0") as caught:
        next(feeding)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.offset == splitter.offset == 100 + len(good)
    # whether it may be an event that is merely larger than the limit
    assert again.length == (MAX_EVENT_BYTES + 9 if wrong.endswith(b"\x01") else 0)


def test_event_of_another_size_ends_a_run() -> None:
    for count in range(14, 90):
        payloads = [b"12345"] * count + [b"other"[: count % 5]] + [b"12345"] * 3
        [block] = EventSplitter(0).feed(b"".join(map(framed, payloads)))
        assert [bytes(payload) for _, payload in block.events()] == payloads


def test_cut_event_is_yielded_with_the_next_block() -> None:
    data = framed(b"same") * 100
    for at in (*range(12 * 50, 12 * 51), len(data) - 1):
        splitter = EventSplitter(0)
        first = fed(splitter, [data[:at]])
        assert splitter.offset == sum(len(block.data) for block in first) == at // 12 * 12
        assert splitter.pending == at % 12
        assert splitter.next_length == (12 if splitter.pending >= 8 else 8)
        if splitter.pending:
            with pytest.raises(NotAnEvent, match=f"offset {at // 12 * 12} is cut off after {at % 12} bytes"):
                splitter.finish()
        assert b"".join(block.data for block in first + fed(splitter, [data[at:]])) == data


def test_invalid_header_across_blocks_is_refused() -> None:
    data = framed(b"good") + struct.pack(">q", -2)
    for at in range(13, len(data)):
        splitter = EventSplitter(7)
        with pytest.raises(NotAnEvent) as caught:
            fed(splitter, [data[:at], data[at:]])
        assert caught.value.offset == 19


def test_events_of_the_largest_size_between_small_ones() -> None:
    largest = random.Random(5).randbytes(MAX_EVENT_BYTES)
    payloads = [b"x"] * 40 + [largest] + [b"x"] * 40
    data = b"".join(map(framed, payloads))
    splitter = EventSplitter(0)
    found = fed(splitter, [data[low : low + 1_000_003] for low in range(0, len(data), 1_000_003)])
    assert [bytes(payload) for block in found for _, payload in block.events()] == payloads
    assert splitter.finish() == len(data)


@settings(max_examples=150)
@given(streams, st.lists(st.integers(0, 2**20), max_size=8), st.binary(max_size=9))
@example([b"x" * (5 * 2**20), b"y", b"z" * MAX_EVENT_BYTES, b"end"], [3, 2**20, 2**21, 2**23], b"")
@example([b"x"], [3], framed(b"z" * (MAX_EVENT_BYTES + 1)) + framed(b"after"))
def test_blocks_of_whole_events(payloads: list[bytes], cuts: list[int], rest: bytes) -> None:
    data = b"".join(map(framed, payloads))
    blocks = [bytes(block) for block in whole_event_blocks(cut(data + rest, cuts))]
    assert b"".join(blocks) == data + rest
    assert all(0 < len(block) <= MAX_APPEND_BYTES for block in blocks)
    boundaries = {0, *accumulate(len(framed(payload)) for payload in payloads)}
    assert {end for end in accumulate(map(len, blocks)) if end <= len(data)} <= boundaries
    if rest.endswith(framed(b"after")):
        assert blocks[-1] == framed(b"after")


NAME = StreamName("scope", "stream")
SEGMENT = SegmentId(0, 0)


def test_blocks_stay_valid(tmp_path: Path) -> None:
    """An appender keeps the blocks that are not acknowledged, and sends them again after a lost connection."""
    events = [bytes([number]) * 1_000_000 for number in range(5)]
    with LocalStore(tmp_path) as store:
        store.create_scope("scope")
        store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=1)))
        end = append_events(store, NAME, SEGMENT, events)
    address, _ = parse_stream(f"local://{tmp_path}/{NAME}")
    blocks = list(LiveSegment(address, NAME, SEGMENT, 0, end).blocks(0, end, 1))
    assert len(blocks) > 2
    assert b"".join(blocks) == b"".join(framed(event) for event in events)


CONTENTS = st.binary(max_size=300)
NAMES = st.uuids()
TIMES = st.floats(min_value=0, max_value=4e9)


@given(st.lists(st.tuples(CONTENTS, NAMES, TIMES), max_size=20), st.integers(0, 2**40))
def test_entries_round_trip(put: list[tuple[bytes, uuid.UUID, float]], base: int) -> None:
    buffer = b"".join(encode_entry(*one) for one in put)
    at, found = 0, []
    while (entry := decode_entry(buffer, at, base + at, "s")) is not None:
        assert entry.offset == base + at
        assert entry.end - entry.offset == OVERHEAD_BYTES + len(entry.content)
        found.append(entry)
        at = entry.end - base
    assert at == len(buffer)
    assert [(entry.content, entry.name) for entry in found] == [(content, name) for content, name, _ in put]
    assert all(abs(entry.put_time - when) < 2e-6 for entry, (_, _, when) in zip(found, put, strict=True))


@given(CONTENTS, st.data())
def test_incomplete_entry_is_waited_for(content: bytes, data: st.DataObject) -> None:
    whole = encode_entry(content)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert decode_entry(whole[:cut], 0, 0, "s") is None


@given(CONTENTS, st.data())
def test_any_changed_byte_is_found(content: bytes, data: st.DataObject) -> None:
    whole = bytearray(encode_entry(content))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with suppress(BadEntry):
        # a header that announces more bytes than there are waits for more; anything else is rejected
        assert decode_entry(whole, 0, 0, "s") is None
        assert place < 8


@given(st.binary(max_size=100))
def test_foreign_bytes_are_refused_or_cut(foreign: bytes) -> None:
    with suppress(BadEntry):
        assert decode_entry(foreign, 0, 0, "s") is None


def test_unknown_version_is_named_with_its_offset() -> None:
    later = bytearray(encode_entry(b"x"))
    later[8] = 2
    with pytest.raises(BadEntry, match="unknown entry version 2: s at offset 77"):
        decode_entry(later, 0, 77, "s")


Flush = Callable[[SegmentAppender], int]


class Told:
    """An appender that does one thing and may report another."""

    def __init__(self, real: SegmentAppender, flush: Flush) -> None:
        self._real = real
        self._flush = flush

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def flush(self) -> int:
        return self._flush(self._real)


class Store:
    """The embedded store, in which the flush of the first appender is replaced."""

    def __init__(self, real: StreamStore, flush: Flush) -> None:
        self._real = real
        self._flushes = [flush]

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def appender(self, stream: StreamName, segment: SegmentId, *, in_flight: int = 4) -> object:
        real = self._real.appender(stream, segment, in_flight=in_flight)
        return Told(real, self._flushes.pop()) if self._flushes else real


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueSegment]:
    with LocalStore(tmp_path / "store") as store:
        yield QueueSegment.create(store, StreamName("scope", "queue"))


def contents(queue: QueueSegment) -> list[bytes]:
    found: list[QueueEntry] = []
    with Consumer(queue) as consumer:
        consumer.run(found.extend, idle_seconds=0)
    return [entry.content for entry in found]


def put(queue: QueueSegment, flush: Flush) -> None:
    store: Any = Store(queue.store, flush)
    told = QueueSegment.open(store, queue.name)
    Producer(told).put(b"mine")


def landed_behind_which_another_came(real: SegmentAppender) -> int:
    end = real.flush()
    raise OffsetConflict("another writer appended", write_offset=end + 100)


def somebody_was_faster(real: SegmentAppender) -> int:
    raise OffsetConflict("another writer appended", write_offset=real.offset + 100)


def landed_and_handled(real: SegmentAppender) -> int:
    end = real.flush()
    raise SegmentTruncated("truncated", start_offset=end)


def landed_and_unknown(real: SegmentAppender) -> int:
    real.flush()
    raise StreamStoreUnavailable("it does not answer")


@pytest.mark.parametrize("flush", [landed_behind_which_another_came, somebody_was_faster, landed_and_handled])
def test_put_whose_append_conflicts_lands_once(queue: QueueSegment, flush: Flush) -> None:
    put(queue, flush)
    assert contents(queue) == [b"mine"]


def test_put_raises_if_the_store_goes_away(queue: QueueSegment) -> None:
    """The caller decides; the entry may be in the queue."""
    with pytest.raises(StreamStoreUnavailable):
        put(queue, landed_and_unknown)
    assert contents(queue) == [b"mine"]
