"""Cuts compared with a simple model: for each key a stream is a sequence of segments, and a cut a position in it."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamvault.streamstore.cuts import earlier_of, is_before, later_of, segments_between, validate_cut
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import (
    Epoch,
    KeyRange,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)

STREAM = StreamName("scope", "stream")


@dataclass(frozen=True)
class Past:
    """A random stream: its description, and the end of each segment."""

    described: StreamDescription
    ends: dict[SegmentId, int]

    def sample_keys(self) -> list[float]:
        """One key of each interval between boundaries."""
        edges = sorted({edge for r in self.described.ranges().values() for edge in (r.low, r.high)})
        return [(low + high) / 2 for low, high in pairwise(edges)]

    def sequence(self, key: float) -> list[SegmentId]:
        """The segments that owned a key, in order."""
        found: list[SegmentId] = []
        for epoch in self.described.epochs:
            (owner,) = (s for s, r in epoch.segments.items() if r.low <= key < r.high)
            if not found or found[-1] != owner:
                found.append(owner)
        return found

    def place(self, cut: StreamCut, key: float) -> tuple[int, int]:
        """A cut's position in a key's sequence: segment and offset."""
        sequence = self.sequence(key)
        (segment,) = (s for s in cut.offsets if s in sequence)
        return sequence.index(segment), cut.offsets[segment]


def past(rng: random.Random, scales: int) -> Past:
    width = rng.randrange(1, 5)
    current = {SegmentId(0, n): KeyRange(n / width, (n + 1) / width) for n in range(width)}
    epochs, number = [Epoch(0, current)], width
    for epoch in range(1, scales + 1):
        ordered = sorted(current, key=lambda s: current[s].low)
        sealed: list[SegmentId] = []
        for _ in range(rng.randrange(1, 3)):  # sometimes two runs that are not adjacent
            begin = rng.randrange(len(ordered))
            sealed += ordered[begin : begin + rng.randrange(1, 4)]
        opened: list[KeyRange] = []
        for segment in dict.fromkeys(sealed):
            r = current[segment]
            edges = [
                r.low,
                *sorted({r.low + (r.high - r.low) * i / 4 for i in rng.sample([1, 2, 3], rng.choice([0, 0, 1, 2]))}),
                r.high,
            ]
            for low, high in pairwise(edges):
                previous = next((o for o in opened if o.high == low), None)
                if previous is not None and rng.random() < 0.5:
                    opened[opened.index(previous)] = KeyRange(previous.low, high)
                else:
                    opened.append(KeyRange(low, high))
        rng.shuffle(opened)
        kept = {s: r for s, r in current.items() if s not in sealed}
        current = kept | {SegmentId(epoch, number + i): r for i, r in enumerate(opened)}
        number += len(opened)
        epochs.append(Epoch(epoch, current))
    every = {s for e in epochs for s in e.segments}
    ends = {segment: rng.choice([0, 10, 100]) for segment in every}
    head = StreamCut(STREAM, dict.fromkeys(epochs[0].segments, 0))
    tail = StreamCut(STREAM, {segment: ends[segment] for segment in current})
    return Past(StreamDescription(STREAM, StreamConfiguration(), tuple(epochs), head, tail, sealed=False), ends)


def advance(rng: random.Random, past: Past, cut: StreamCut, steps: int) -> StreamCut:
    """A later cut: it advances in some segments, and moves from others to all of their successors."""
    offsets = dict(cut.offsets)
    ranges = past.described.ranges()
    for _ in range(steps):
        segment = rng.choice(sorted(offsets))
        offsets[segment] = rng.randint(offsets[segment], past.ends[segment])
        leave, enter = {segment}, set[SegmentId]()
        while True:  # segments joined with it by a common successor must be left too
            more = {
                _next(past, s, key)
                for s in leave
                for key in past.sample_keys()
                if ranges[s].low <= key < ranges[s].high
            }
            back = {
                _before(past, s, key)
                for s in more
                if s
                for key in past.sample_keys()
                if ranges[s].low <= key < ranges[s].high
            }
            if None in more or not back <= set(offsets):
                enter = set()
                break
            if {s for s in more if s} == enter and back <= leave:
                break
            enter |= {s for s in more if s}
            leave |= {s for s in back if s}
        if enter and rng.random() < 0.7:
            for s in leave:
                del offsets[s]
            for s in enter:
                offsets[s] = rng.randint(0, past.ends[s])
    return StreamCut(STREAM, offsets)


def _next(past: Past, segment: SegmentId, key: float) -> SegmentId | None:
    sequence = past.sequence(key)
    at = sequence.index(segment) + 1
    return sequence[at] if at < len(sequence) else None


def _before(past: Past, segment: SegmentId, key: float) -> SegmentId | None:
    sequence = past.sequence(key)
    at = sequence.index(segment) - 1
    return sequence[at] if at >= 0 else None


PASTS = st.builds(lambda seed, scales: past(random.Random(seed), scales), st.integers(0, 2**32), st.integers(0, 6))
RANDOMS = st.builds(random.Random, st.integers(0, 2**32))
often = settings(max_examples=150, deadline=None)


def some_cut(rng: random.Random, history: Past, after: StreamCut | None = None) -> StreamCut:
    return advance(rng, history, after or history.described.head, rng.randrange(8))


@often
@given(PASTS, RANDOMS)
def test_segments_between_cuts_are_those_each_key_sees(history: Past, rng: random.Random) -> None:
    a = some_cut(rng, history)
    b = some_cut(rng, history, a)
    validate_cut(history.described, a)
    validate_cut(history.described, b)
    between = segments_between(history.described, a, b)
    assert list(between) == sorted(between)
    seen: set[SegmentId] = set()
    for key in history.sample_keys():
        sequence = history.sequence(key)
        (first, start), (last, end) = history.place(a, key), history.place(b, key)
        for at, segment in enumerate(sequence):
            if first <= at <= last:
                seen.add(segment)
                assert between[segment] == (start if at == first else 0, end if at == last else None)
            else:
                assert segment not in between
    assert set(between) == seen


@often
@given(PASTS, RANDOMS)
def test_later_of_two_cuts_is_the_later_for_each_key(history: Past, rng: random.Random) -> None:
    a, b = some_cut(rng, history), some_cut(rng, history)
    later = later_of(history.described, a, b)
    assert later == later_of(history.described, b, a)
    validate_cut(history.described, later)
    for key in history.sample_keys():
        assert history.place(later, key) == max(history.place(a, key), history.place(b, key))
    assert is_before(history.described, a, later)
    assert (later == b) == is_before(history.described, a, b)


@often
@given(PASTS, RANDOMS)
def test_earlier_of_two_cuts_is_the_earlier_for_each_key(history: Past, rng: random.Random) -> None:
    a, b = some_cut(rng, history), some_cut(rng, history)
    earlier = earlier_of(history.described, a, b)
    assert earlier == earlier_of(history.described, b, a)
    validate_cut(history.described, earlier)
    for key in history.sample_keys():
        assert history.place(earlier, key) == min(history.place(a, key), history.place(b, key))
    assert is_before(history.described, earlier, a)
    assert (earlier == a) == is_before(history.described, a, b)


@often
@given(PASTS, RANDOMS)
def test_cut_is_before_another_if_it_is_at_every_key(history: Past, rng: random.Random) -> None:
    a, b = some_cut(rng, history), some_cut(rng, history)
    expected = all(history.place(a, key) <= history.place(b, key) for key in history.sample_keys())
    assert is_before(history.described, a, b) == expected
    if not expected:
        with pytest.raises(InvalidCut, match="the first cut lies after the second"):
            segments_between(history.described, a, b)


@often
@given(PASTS, RANDOMS)
def test_cut_before_the_head_is_refused(history: Past, rng: random.Random) -> None:
    a = some_cut(rng, history)
    b = some_cut(rng, history, a)
    truncated = replace(history.described, head=b)
    if is_before(truncated, b, a):
        validate_cut(truncated, a)
    else:
        with pytest.raises(InvalidCut, match="before the stream's head"):
            validate_cut(truncated, a)
    validate_cut(truncated, b)
    validate_cut(truncated, truncated.tail)


@often
@given(PASTS, RANDOMS)
def test_exactly_the_possible_sets_of_segments_are_valid(history: Past, rng: random.Random) -> None:
    """A set is possible if each key has one segment in it, and no segment in it is a successor of another."""
    every = sorted(history.described.ranges())
    chosen = set(rng.sample(every, rng.randrange(1, min(len(every), 6) + 1)))
    sequences = [history.sequence(key) for key in history.sample_keys()]
    possible = all(len(chosen.intersection(sequence)) == 1 for sequence in sequences)
    after: dict[SegmentId, set[SegmentId]] = {
        s: {b for q in sequences for a, b in pairwise(q) if a == s} for s in every
    }
    for segment in reversed(every):
        after[segment] |= {far for near in after[segment] for far in after[near]}
    possible = possible and not any(after[s] & chosen for s in chosen)
    cut = StreamCut(STREAM, dict.fromkeys(chosen, 0))
    if possible:
        validate_cut(history.described, cut)
    else:
        with pytest.raises(InvalidCut):
            validate_cut(history.described, cut)


A, B, M, L, R = SegmentId(0, 0), SegmentId(0, 1), SegmentId(1, 2), SegmentId(2, 3), SegmentId(2, 4)
LEFT, RIGHT, WHOLE = KeyRange(0.0, 0.5), KeyRange(0.5, 1.0), KeyRange(0.0, 1.0)
MERGED_AND_SPLIT = StreamDescription(
    STREAM,
    StreamConfiguration(),
    (Epoch(0, {A: LEFT, B: RIGHT}), Epoch(1, {M: WHOLE}), Epoch(2, {L: LEFT, R: RIGHT})),
    head=StreamCut(STREAM, {A: 10, B: 0}),
    tail=StreamCut(STREAM, {L: 50, R: 60}),
    sealed=False,
)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ({A: 10, SegmentId(0, 7): 0}, "never had: offset 0 of scope/stream/7.#epoch.0"),
        ({A: 10}, "names no segment for the keys from 0.5 to 1.0"),
        ({B: 10}, "names no segment for the keys from 0.0 to 0.5"),
        ({A: 10, M: 0}, "two segments for the same keys: "),
        ({A: 10, R: 0}, "names 0.#epoch.0 and its successor 4.#epoch.2"),
        ({A: 9, B: 0}, r"before the stream's head \(offset 10 of 0.#epoch.0\): offset 9 of scope/stream/0.#epoch.0"),
        ({L: 51, R: 60}, r"beyond the stream's tail \(offset 50 of 3.#epoch.2\): offset 51 of scope/stream/3.#epoch.2"),
        ({L: -1, R: 60}, "negative offset"),
    ],
)
def test_invalid_cut_is_refused_in_one_line(offsets: dict[SegmentId, int], message: str) -> None:
    with pytest.raises(InvalidCut, match=message) as caught:
        validate_cut(MERGED_AND_SPLIT, StreamCut(STREAM, offsets))
    assert "\n" not in str(caught.value)


def test_cut_of_another_stream_is_refused() -> None:
    other = StreamCut(StreamName("scope", "other"), {A: 10, B: 0})
    for check in (
        lambda: validate_cut(MERGED_AND_SPLIT, other),
        lambda: is_before(MERGED_AND_SPLIT, other, MERGED_AND_SPLIT.tail),
        lambda: segments_between(MERGED_AND_SPLIT, MERGED_AND_SPLIT.head, other),
    ):
        with pytest.raises(InvalidCut, match="the stream cut belongs to scope/other, not to scope/stream"):
            check()


def test_costs_follow_the_number_of_segments() -> None:
    width, scales = 2_000, 200
    segments = {SegmentId(0, n): KeyRange(n / width, (n + 1) / width) for n in range(width)}
    epochs, current, number = [Epoch(0, segments)], segments, width
    for epoch in range(1, scales + 1):
        victim = sorted(current, key=lambda s: current[s].low)[epoch * 7 % width]
        current = {s: r for s, r in current.items() if s != victim} | {SegmentId(epoch, number): current[victim]}
        number += 1
        epochs.append(Epoch(epoch, current))
    head = StreamCut(STREAM, dict.fromkeys(segments, 0))
    tail = StreamCut(STREAM, dict.fromkeys(current, 9))
    described = StreamDescription(STREAM, StreamConfiguration(), tuple(epochs), head, tail, sealed=False)
    begun = time.process_time()
    validate_cut(described, tail)
    assert len(segments_between(described, head, tail)) == width + scales
    assert time.process_time() - begun < 3
