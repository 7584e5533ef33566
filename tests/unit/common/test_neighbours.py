"""Joining neighbouring ranges."""

from __future__ import annotations

from streamvault.common.neighbours import joined

Range = tuple[int, int]


def _join(one: Range, after: Range) -> Range | None:
    return (one[0], after[1]) if one[1] == after[0] else None


def test_joined_joins_neighbours_and_keeps_the_others() -> None:
    assert list(joined([(0, 2), (2, 5), (5, 6), (7, 8), (8, 9), (11, 12)], _join)) == [(0, 6), (7, 9), (11, 12)]


def test_joined_yields_nothing_of_nothing() -> None:
    assert list(joined([], _join)) == []
