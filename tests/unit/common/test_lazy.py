"""Sequences whose items are made when they are asked for behave as tuples; neighbouring ranges are joined."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.common.lazy import LazyChain, LazyMap
from streamvault.common.neighbours import joined

BOUND = st.none() | st.integers(-9, 9)


def double(number: int) -> int:
    return 2 * number


class Counted(list[int]):
    slices = 0

    def __getitem__(self, at: Any) -> Any:
        Counted.slices += isinstance(at, slice)
        return super().__getitem__(at)


def test_slice_looks_at_no_other_parts() -> None:
    lazy = LazyChain([Counted(range(3)) for _ in range(100)])
    assert [*lazy[4:8]] == [1, 2, 0, 1]
    assert Counted.slices == 2


@given(st.lists(st.lists(st.integers(), max_size=4), max_size=4), BOUND, BOUND, st.sampled_from([None, 1, 2, -1]))
def test_it_is_as_a_tuple(parts: list[list[int]], low: int | None, high: int | None, step: int | None) -> None:
    lazy = LazyChain([LazyMap(double, part) for part in parts])
    wanted = tuple(2 * number for part in parts for number in part)
    chosen = slice(low, high, step)
    assert tuple(lazy) == wanted
    assert [lazy[at] for at in range(-len(wanted), len(wanted))] == [*wanted, *wanted]
    assert tuple(lazy[chosen]) == wanted[chosen]
    assert tuple(lazy[chosen][1:]) == wanted[chosen][1:]
    assert lazy == wanted
    assert pickle.loads(pickle.dumps(lazy)) == wanted
    assert bool(lazy) == bool(wanted)
    for beyond in (len(wanted), -len(wanted) - 1):
        with pytest.raises(IndexError):
            lazy[beyond]


Range = tuple[int, int]


def _join(one: Range, after: Range) -> Range | None:
    return (one[0], after[1]) if one[1] == after[0] else None


def test_joined_joins_neighbours_and_keeps_the_others() -> None:
    assert list(joined([(0, 2), (2, 5), (5, 6), (7, 8), (8, 9), (11, 12)], _join)) == [(0, 6), (7, 9), (11, 12)]


def test_joined_yields_nothing_of_nothing() -> None:
    assert list(joined([], _join)) == []
