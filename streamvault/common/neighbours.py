"""Joins and groups neighbours, and finds what is between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def joined(ranges: Iterable[T], join: Callable[[T, T], T | None]) -> Iterator[T]:
    """Join neighbours.

    Args:
        ranges: the ranges, in order.
        join: returns a range and the next one as one range, or None if they are not neighbours.
    """
    held: T | None = None
    for one in ranges:
        both = None if held is None else join(held, one)
        if both is None and held is not None:
            yield held
        held = one if both is None else both
    if held is not None:
        yield held


def holes(start: int, end: int, parts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield, in order, what of ``[start, end)`` is in none of some parts, given as (start, end) in any order."""
    at = start
    for low, high in sorted(parts):
        if at < min(low, end):
            yield at, min(low, end)
        at = max(at, high)
    if at < end:
        yield at, end


def grouped(items: Iterable[T], size: Callable[[T], int], limit: int) -> Iterator[tuple[T, ...]]:
    """Group neighbours, at least one and at most ``limit`` in size together.

    Args:
        items: what to group, in order.
        size: returns an item's size.
        limit: the largest size of a group of several.
    """
    held: list[T] = []
    total = 0
    for one in items:
        more = size(one)
        if held and total + more > limit:
            yield tuple(held)
            held, total = [], 0
        held.append(one)
        total += more
    if held:
        yield tuple(held)
