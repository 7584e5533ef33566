"""Framing of events; boundaries are guessed in linear time."""

from __future__ import annotations

import random
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.framing import (
    MAX_BLOCK_BYTES,
    NotAnEvent,
    filler,
    frame,
    frame_into,
    frame_many,
)
from streamvault.streamstore.model import MAX_EVENT_BYTES
from streamvault.streamstore.walking import guess_boundary

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
