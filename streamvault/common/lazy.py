"""Sequences whose items are made when they are asked for, and not kept: of millions, only those in use are in memory.

They are immutable, may be used from several threads, and are pickled with what they are made of.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeVar, overload

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """The base class: a subclass says how an item is made, by its number, and may say how some of them are."""

    def _one(self, number: int) -> T:
        raise NotImplementedError

    def _some(self, start: int, stop: int) -> Sequence[T]:
        return LazyMap(self._one, range(start, stop))

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            chosen = range(len(self))[at]
            if chosen.step == 1:
                return self._some(chosen.start, max(chosen.start, chosen.stop))
            return [self._one(number) for number in chosen]
        return self._one(range(len(self))[at])  # raises IndexError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"


class LazyMap(LazySequence[T]):
    """The results of a function for each item of a sequence.

    Args:
        make: the function; at module level or a partial of one, to be pickled.
        of: the items.
    """

    def __init__(self, make: Callable[[Any], T], of: Sequence[Any]) -> None:
        self._make, self._of = make, of

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[T]:
        return map(self._make, self._of)

    def _one(self, number: int) -> T:
        return self._make(self._of[number])

    def _some(self, start: int, stop: int) -> Sequence[T]:
        return LazyMap(self._make, self._of[start:stop])


class LazyChain(LazySequence[T]):
    """Several sequences, one after another."""

    def __init__(self, parts: Sequence[Sequence[T]]) -> None:
        self._parts = tuple(part for part in parts if part)
        self._ends = tuple(accumulate(map(len, self._parts)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[T]:
        for part in self._parts:
            yield from part

    def _one(self, number: int) -> T:
        at = bisect_right(self._ends, number)
        return self._parts[at][number - (self._ends[at - 1] if at else 0)]

    def _some(self, start: int, stop: int) -> Sequence[T]:
        if start >= stop:
            return ()
        found = []
        for at in range(bisect_right(self._ends, start), bisect_left(self._ends, stop) + 1):
            begin = self._ends[at - 1] if at else 0
            found.append(self._parts[at][max(start - begin, 0) : stop - begin])
        return found[0] if len(found) == 1 else LazyChain(found)
