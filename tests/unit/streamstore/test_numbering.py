"""The numbers of a scale's new segments: compared with orders of a real java.util.HashMap; and moved boundaries."""

from __future__ import annotations

import json
import random
import struct
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamvault.streamstore.model import KeyRange
from streamvault.streamstore.numbering import first_capacity, iteration_order, nudge, predict_order

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
