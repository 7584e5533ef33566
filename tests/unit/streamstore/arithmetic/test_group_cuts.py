"""A reader group's position as a cut: a model of a group that reads a stream while it is scaled."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.streamstore.cuts import cut_of, successions, validate_cut
from streamvault.streamstore.errors import UnreadableReaderGroup
from streamvault.streamstore.model import (
    Epoch,
    KeyRange,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.store import GroupPosition

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
        return StreamDescription(NAME, StreamConfiguration(), tuple(self.epochs), head, tail, sealed=self.sealed)

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
        links = list(successions(self.described.ranges()))
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
DESCRIBED = StreamDescription(NAME, StreamConfiguration(), (Epoch(0, SEGMENTS),), ZERO, ZERO, sealed=False)


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
        epochs=(Epoch(0, first), Epoch(1, last)),
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
