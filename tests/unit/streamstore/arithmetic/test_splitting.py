"""Splitting of whole buffers: the fast walk finds the same events as the simple one, wherever blocks are cut."""

from __future__ import annotations

import pickle
import random
import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamvault.streamstore.events import EventBlock, EventSplitter, whole_event_blocks
from streamvault.streamstore.framing import MAX_APPEND_BYTES, NotAnEvent
from streamvault.streamstore.model import MAX_EVENT_BYTES
from testkit.streams import frame

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
    data = b"".join(map(frame, payloads))
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
    data = bytearray(b"".join(map(frame, [b"one", b"two" * 50, b""])))
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
    good = frame(b"same size") * count
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
        [block] = EventSplitter(0).feed(b"".join(map(frame, payloads)))
        assert [bytes(payload) for _, payload in block.events()] == payloads


def test_cut_event_is_yielded_with_the_next_block() -> None:
    data = frame(b"same") * 100
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
    data = frame(b"good") + struct.pack(">q", -2)
    for at in range(13, len(data)):
        splitter = EventSplitter(7)
        with pytest.raises(NotAnEvent) as caught:
            fed(splitter, [data[:at], data[at:]])
        assert caught.value.offset == 19


def test_events_of_the_largest_size_between_small_ones() -> None:
    largest = random.Random(5).randbytes(MAX_EVENT_BYTES)
    payloads = [b"x"] * 40 + [largest] + [b"x"] * 40
    data = b"".join(map(frame, payloads))
    splitter = EventSplitter(0)
    found = fed(splitter, [data[low : low + 1_000_003] for low in range(0, len(data), 1_000_003)])
    assert [bytes(payload) for block in found for _, payload in block.events()] == payloads
    assert splitter.finish() == len(data)


@settings(max_examples=150)
@given(streams, st.lists(st.integers(0, 2**20), max_size=8), st.binary(max_size=9))
@example([b"x" * (5 * 2**20), b"y", b"z" * MAX_EVENT_BYTES, b"end"], [3, 2**20, 2**21, 2**23], b"")
@example([b"x"], [3], frame(b"z" * (MAX_EVENT_BYTES + 1)) + frame(b"after"))
def test_blocks_of_whole_events(payloads: list[bytes], cuts: list[int], rest: bytes) -> None:
    data = b"".join(map(frame, payloads))
    blocks = [bytes(block) for block in whole_event_blocks(cut(data + rest, cuts))]
    assert b"".join(blocks) == data + rest
    assert all(0 < len(block) <= MAX_APPEND_BYTES for block in blocks)
    boundaries = {0, *accumulate(len(frame(payload)) for payload in payloads)}
    assert {end for end in accumulate(map(len, blocks)) if end <= len(data)} <= boundaries
    if rest.endswith(frame(b"after")):
        assert blocks[-1] == frame(b"after")
