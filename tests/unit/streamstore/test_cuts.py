"""Cuts compared with a simple model: for each key a stream is a sequence of segments, and a cut a position in it.

A reader group's position as a cut: a model of a group that reads a stream while it is scaled.

The numbers of a scale's new segments: compared with orders of a real java.util.HashMap; and moved boundaries.
"""

from __future__ import annotations

import json
import random
import struct
import time
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamvault.streamstore.cuts import (
    cut_of,
    earlier_of,
    is_before,
    later_of,
    segments_between,
    successions,
    validate_cut,
)
from streamvault.streamstore.errors import InvalidCut, UnreadableReaderGroup
from streamvault.streamstore.model import (
    Epoch,
    Epochs,
    KeyRange,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.numbering import first_capacity, iteration_order, nudge, predict_order
from streamvault.streamstore.store import GroupPosition

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
    return Past(StreamDescription(STREAM, StreamConfiguration(), Epochs(epochs), head, tail, sealed=False), ends)


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
    Epochs([Epoch(0, {A: LEFT, B: RIGHT}), Epoch(1, {M: WHOLE}), Epoch(2, {L: LEFT, R: RIGHT})]),
    head=StreamCut(STREAM, {A: 10, B: 0}),
    tail=StreamCut(STREAM, {L: 50, R: 60}),
    sealed=False,
)


@pytest.mark.parametrize(("first", "second"), [(1.0, 1 - 2**-53), (1 - 2**-53, 1.0)])
def test_highest_keys_of_an_epoch_may_end_a_little_below_those_of_another(first: float, second: float) -> None:
    """Pravega divides the keys in floating point."""
    epochs = Epochs([Epoch(0, {A: KeyRange(0.0, first)}), Epoch(1, {M: KeyRange(0.0, second)})])
    head, tail = StreamCut(STREAM, {A: 10}), StreamCut(STREAM, {M: 50})
    described = StreamDescription(STREAM, StreamConfiguration(), epochs, head, tail, sealed=False)
    assert segments_between(described, head, tail) == {A: (10, None), M: (0, 50)}


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
    described = StreamDescription(STREAM, StreamConfiguration(), Epochs(epochs), head, tail, sealed=False)
    begun = time.process_time()
    validate_cut(described, tail)
    assert len(segments_between(described, head, tail)) == width + scales
    assert time.process_time() - begun < 3


NAME = StreamName("scope", "stream")
CELLS = 8
LENGTH = 100


class Model:
    """A stream with segments of `LENGTH` bytes, and a group that reads it as the Java client does.

    Attributes:
        reached: for each cell of the key space, the segment that the group has reached there, and its offset.
    """

    def __init__(self, seed: int, *, plain: bool) -> None:
        self.rng = random.Random(seed)
        self.plain = plain
        first = {SegmentId(0, n): KeyRange(n / 4, (n + 1) / 4) for n in range(4)}
        self.epochs = [Epoch(0, first)]
        self.positions = dict.fromkeys(first, 0)
        self.waiting: dict[SegmentId, set[SegmentId]] = {}
        self.reached = {cell: (next(s for s in first if self.has(first[s], cell)), 0) for cell in range(CELLS)}
        self.numbers = 4
        self.sealed = False
        for _ in range(self.rng.randrange(40)):
            self.rng.choice([self.scale, self.read, self.finish, self.finish])()
        if self.rng.random() < 0.3:
            self.sealed = True
            for _ in range(self.rng.randrange(20)):
                self.finish()

    @staticmethod
    def has(held: KeyRange, cell: int) -> bool:
        return held.low <= cell / CELLS < held.high

    @property
    def described(self) -> StreamDescription:
        head = StreamCut(NAME, dict.fromkeys(self.epochs[0].segments, 0))
        tail = StreamCut(NAME, dict.fromkeys(self.epochs[-1].segments, LENGTH))
        return StreamDescription(NAME, StreamConfiguration(), Epochs(self.epochs), head, tail, sealed=self.sealed)

    def scale(self) -> None:
        """Replace neighbours by others: one by several or several by one if it is to be plain."""
        current = self.epochs[-1].segments
        begin = self.rng.randrange(len(current))
        old = list(current)[begin : begin + self.rng.randrange(1, 4)]
        low, high = current[old[0]].low, current[old[-1]].high
        inner = [cell / CELLS for cell in range(1, CELLS) if low < cell / CELLS < high]
        count = 0 if self.plain and len(old) > 1 else self.rng.randrange(len(inner) + 1)
        bounds = [low, *sorted(self.rng.sample(inner, count)), high]
        number = len(self.epochs)
        new = {SegmentId(number, self.numbers + at): KeyRange(*pair) for at, pair in enumerate(pairwise(bounds))}
        self.numbers += len(new)
        self.epochs.append(Epoch(number, {s: r for s, r in current.items() if s not in old} | new))

    def read(self) -> None:
        if not self.positions:
            return
        segment = self.rng.choice(sorted(self.positions))
        self.go(segment, self.rng.randrange(self.positions[segment], LENGTH + 1))

    def go(self, segment: SegmentId, offset: int) -> None:
        self.positions[segment] = offset
        for cell in range(CELLS):
            if self.has(self.described.ranges()[segment], cell):
                self.reached[cell] = (segment, offset)

    def finish(self) -> None:
        """Read a sealed segment to its end, and its successors next that wait for no other one."""
        if not self.positions:
            return
        segment = self.rng.choice(sorted(self.positions))
        if segment in self.epochs[-1].segments and not self.sealed:
            return
        self.go(segment, LENGTH)
        del self.positions[segment]
        links = list(successions(self.described))
        for before, after in links:
            if before == segment:
                self.waiting.setdefault(after, {b for b, a in links if a == after})
        for left in self.waiting.values():
            left.discard(segment)
        for ready in [after for after, left in self.waiting.items() if not left]:
            del self.waiting[ready]
            self.go(ready, 0)

    @property
    def position(self) -> GroupPosition:
        """Where the group goes on, with -1 for some of the ends."""
        return GroupPosition(NAME, dict(self.positions), {s: frozenset(left) for s, left in self.waiting.items()})

    def info(self, segment: SegmentId) -> SegmentInfo:
        return SegmentInfo(segment, 0, LENGTH, self.sealed or segment not in self.epochs[-1].segments)


@given(st.integers(0, 1 << 32), st.booleans())
def test_the_cut_is_never_after_the_group_and_covers_the_key_space(seed: int, plain: bool) -> None:
    model = Model(seed, plain=plain)
    cut = cut_of(model.position, model.described, model.info)
    validate_cut(model.described, cut)
    ranges = model.described.ranges()
    for cell, (segment, offset) in model.reached.items():
        found = next(s for s in cut.offsets if model.has(ranges[s], cell))
        if plain:
            assert (found, cut.offsets[found]) == (segment, offset)
        assert (found.epoch, cut.offsets[found]) <= (segment.epoch, offset)


@given(st.integers(0, 1 << 32), st.data())
def test_what_is_truncated_is_behind_the_cut(seed: int, data: st.DataObject) -> None:
    """The head is a cut of the same stream that a quicker group has reached."""
    model = Model(seed, plain=True)
    behind = model.position
    for _ in range(data.draw(st.integers(0, 10))):
        model.rng.choice([model.read, model.finish])()
    head = cut_of(model.position, model.described, model.info)
    described = replace(model.described, head=head)
    gone = {s for s in described.ranges() if all(s < other for other in head.offsets)}

    def info(segment: SegmentId) -> SegmentInfo | None:
        return None if segment in gone else model.info(segment)

    assert cut_of(behind, described, info) == head
    before = cut_of(behind, model.described, model.info)
    is_known = not gone.intersection(before.offsets).difference(behind.offsets)
    assert cut_of(behind, described, info, truncated=True) == (before if is_known else head)


SEGMENTS = {SegmentId(0, 0): KeyRange(0.0, 0.5), SegmentId(0, 1): KeyRange(0.5, 1.0)}
ZERO = StreamCut(NAME, dict.fromkeys(SEGMENTS, 0))
DESCRIBED = StreamDescription(NAME, StreamConfiguration(), Epochs([Epoch(0, SEGMENTS)]), ZERO, ZERO, sealed=False)


@pytest.mark.parametrize(
    ("offsets", "what"),
    [
        ({SegmentId(0, 0): 0}, "names no segment for the keys"),
        ({SegmentId(0, 0): 0, SegmentId(4, 7): 0}, "never had the segment"),
        ({SegmentId(0, 0): 0, SegmentId(0, 1): -1}, "it is open"),
        ({}, "names no segment"),
    ],
)
def test_a_position_that_cannot_be_right_is_an_error(offsets: dict[SegmentId, int], what: str) -> None:
    with pytest.raises(UnreadableReaderGroup, match=what):
        cut_of(GroupPosition(NAME, offsets), DESCRIBED, lambda segment: SegmentInfo(segment, 0, LENGTH, False))


def test_a_last_segment_that_was_read_is_passed_over_if_a_neighbour_waits() -> None:
    b, c, d = (SegmentId(0, number) for number in range(3))
    e, f, g = (SegmentId(1, number) for number in range(3, 6))
    first = {b: KeyRange(0.0, 0.25), c: KeyRange(0.25, 0.75), d: KeyRange(0.75, 1.0)}
    last = {e: KeyRange(0.0, 0.5), f: KeyRange(0.5, 0.875), g: KeyRange(0.875, 1.0)}
    described = replace(
        DESCRIBED,
        epochs=Epochs([Epoch(0, first), Epoch(1, last)]),
        head=StreamCut(NAME, dict.fromkeys(first, 0)),
        tail=StreamCut(NAME, dict.fromkeys(last, LENGTH)),
        sealed=True,
    )
    position = GroupPosition(NAME, {b: 20, g: 0}, {e: frozenset({b})})  # f was read to its end
    cut = cut_of(position, described, lambda segment: SegmentInfo(segment, 0, LENGTH, sealed=True))
    assert cut.offsets == {b: 20, c: LENGTH, d: LENGTH}


def test_an_end_that_is_written_as_minus_one_is_the_segments_end() -> None:
    cut = cut_of(
        GroupPosition(NAME, dict.fromkeys(SEGMENTS, -1)), DESCRIBED, lambda segment: SegmentInfo(segment, 0, 42, True)
    )
    assert cut.offsets == dict.fromkeys(SEGMENTS, 42)


def test_a_group_that_ends_somewhere_has_not_read_a_sealed_stream_to_its_end() -> None:
    sealed, position = replace(DESCRIBED, sealed=True), GroupPosition(NAME, {SegmentId(0, 0): 0})

    def info(segment: SegmentId) -> SegmentInfo:
        return SegmentInfo(segment, 0, LENGTH, sealed=True)

    assert cut_of(position, sealed, info).offsets == {SegmentId(0, 0): 0, SegmentId(0, 1): LENGTH}
    with pytest.raises(UnreadableReaderGroup, match="names no segment"):
        cut_of(position, sealed, info, bounded=True)


# Made by OpenJDK 17: the indices of the starts in the iteration order of the map of Collectors.toMap. The "even" ones
# are i/n for i < n, where buckets become trees.
CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("hashmap_orders.json").read_text("utf-8"))


def ranges_of(edges: list[float]) -> list[KeyRange]:
    return [KeyRange(low, high) for low, high in pairwise(edges)]


def evenly(low: float, high: float, count: int) -> list[KeyRange]:
    return ranges_of([low + (high - low) * i / count for i in range(count)] + [high])


def ulps(a: float, b: float) -> int:
    return abs(struct.unpack(">q", struct.pack(">d", a))[0] - struct.unpack(">q", struct.pack(">d", b))[0])


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{len(case['order'])} {'even' if 'even' in case else 'other'}"
)
def test_order_is_that_of_java(case: dict[str, Any]) -> None:
    starts = case.get("starts") or [i / case["even"] for i in range(case["even"])]
    assert iteration_order(starts) == case["order"]


def test_eight_even_ranges_are_numbered_as_by_pravega() -> None:
    order = predict_order(evenly(0.0, 1.0, 8))
    assert [order.index(i) + 1 for i in range(8)] == [1, 2, 3, 6, 4, 5, 7, 8]


@given(st.lists(st.floats(0, 1, exclude_max=True), unique=True, max_size=200))
def test_order_has_each_key_once(keys: list[float]) -> None:
    assert sorted(iteration_order(keys)) == list(range(len(keys)))


@st.composite
def scales(draw: st.DrawFn) -> list[KeyRange]:
    """Adjacent ranges, sometimes two runs of them, in an arbitrary order."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    low, gap, high = sorted(rng.random() for _ in range(3))
    ranges = evenly(low, gap, draw(st.integers(1, 9)))
    if draw(st.booleans()):
        ranges += evenly((gap + high) / 2, high, draw(st.integers(1, 9)))
    if draw(st.booleans()):
        rng.shuffle(ranges)
    return ranges


@settings(max_examples=200, deadline=None)
@given(scales())
def test_nudged_ranges_are_numbered_as_wanted(ranges: list[KeyRange]) -> None:
    nudged = nudge(ranges)
    if nudged is None:
        return
    assert predict_order(nudged) == list(range(len(ranges)))
    limit = first_capacity(len(ranges))
    moved = {}
    for before, after in zip(ranges, nudged, strict=True):
        assert moved.setdefault(before.low, after.low) == after.low
        assert moved.setdefault(before.high, after.high) == after.high
    shared = {r.low for r in ranges} & {r.high for r in ranges}
    for source, target in moved.items():
        assert ulps(source, target) <= (limit if source in shared else 0)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 12, 16, 24, 40, 100])
def test_key_order_is_nearly_always_reached(count: int) -> None:
    rng = random.Random(count)
    tries = [evenly(*sorted((rng.random(), rng.random())), count) for _ in range(20)]
    assert sum(nudge(ranges) is not None for ranges in tries) >= (20 if count <= 8 else 15)


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_small_split_reaches_any_order(count: int) -> None:
    rng = random.Random(count)
    for _ in range(50):
        ranges = evenly(*sorted((rng.random(), rng.random())), count)
        rng.shuffle(ranges)
        assert nudge(ranges) is not None


@pytest.mark.parametrize("seed", range(12))
def test_nudge_is_the_cheapest(seed: int) -> None:
    rng = random.Random(seed)
    ranges = evenly(*sorted((rng.random(), rng.random())), 3)
    rng.shuffle(ranges)
    nudged = nudge(ranges)
    assert nudged is not None
    cost = sum(ulps(a.low, b.low) for a, b in zip(ranges, nudged, strict=True))
    low = min(r.low for r in ranges)

    def shifted(start: float, step: int) -> float:
        return struct.unpack(">d", struct.pack(">q", struct.unpack(">q", struct.pack(">d", start))[0] + step))[0]

    steps = [range(1) if r.low == low else range(-16, 17) for r in ranges]
    cheapest = min(
        sum(map(abs, step))
        for step in product(*steps)
        if iteration_order([shifted(r.low, s) for r, s in zip(ranges, step, strict=True)]) == [0, 1, 2]
    )
    assert cost == cheapest


def test_ranges_in_order_are_not_nudged() -> None:
    for ranges in (evenly(0.0, 1.0, 2), [KeyRange(0.25, 0.75)]):
        wanted = [ranges[i] for i in predict_order(ranges)]
        assert nudge(wanted) == wanted


def test_given_boundaries_are_kept() -> None:
    low, high = 0.1, 0.9
    moved_low, moved_high = 0.1 + 2**-50, 0.9 - 2**-50
    nudged = nudge(evenly(low, high, 5), {low: moved_low, high: moved_high})
    assert nudged is not None
    assert (nudged[0].low, nudged[-1].high) == (moved_low, moved_high)
    assert all(before.high == after.low for before, after in pairwise(nudged))
    assert predict_order(nudged) == [0, 1, 2, 3, 4]


def test_unreachable_order_gives_no_nudge() -> None:
    # Neither start may move, and 0.0 always comes first.
    assert nudge([KeyRange(0.1, 0.7), KeyRange(0.0, 0.05)]) is None
    # The next start in the bucket of 0.5 is 0.5 itself, which would leave an empty range.
    edge = 0.5 + 2**-53
    assert nudge([KeyRange(edge, 0.7), KeyRange(0.5, edge)]) is None
