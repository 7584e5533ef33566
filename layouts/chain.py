"""Walking a listing along its chain: each object has to begin where the one before ended.

The walk does not know what the objects hold: one layout walks from event to event, another from chunk to chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from common.errors import Damaged
from layouts.keys import RangeKey
from objectstore.store import ObjectInfo

__all__ = ["Finding", "RangeCheck", "Stored", "check", "strict", "walk"]

MAX_FINDINGS = 100
"""Findings of one range that are kept; the rest are counted."""


class Stored(NamedTuple):
    """An object on the chain: ``length`` bytes of the segment at ``offset``, as ``size`` bytes under ``key``."""

    key: str
    offset: int
    length: int
    size: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Something beside the chain, or a fault in it.

    Attributes:
        kind: ``missing`` (no object for these bytes) and ``changed`` (another size) are damage. ``stray`` (proved to be
            off the chain), ``foreign`` (not a key of the layout) and ``rival`` (a second object at the offset of one on
            the chain; the listing alone does not tell which is right) harm nobody.
        key: the object's key in the store; for missing ones, where keys would start.
        start, end: the bytes of the segment it is about.
        what: a sentence.
    """

    kind: Literal["missing", "changed", "stray", "foreign", "rival"]
    key: str
    start: int
    end: int
    what: str

    @property
    def is_damage(self) -> bool:
        """Whether an event cannot be read for it."""
        return self.kind in {"missing", "changed"}

    def problem(self, root: str) -> Damaged:
        """The same, to be raised. ``root`` is the store's URI."""
        return Damaged(self.what, where=f"{root}/{self.key}", todo="Run 'streamvault check' on the archive.")


@dataclass(frozen=True, slots=True)
class RangeCheck:
    """What a range's listing shows.

    Attributes:
        objects: on the chain, with the right size. bytes: of the segment that they hold, headers included.
        events: how many events, if the layout's listing tells; else None.
        damage: the first hundred faults. damaged: how many there are.
        strays: keys of the first hundred objects beside the chain. stray: how many there are.
    """

    objects: int
    bytes: int
    events: int | None
    damage: tuple[Finding, ...]
    damaged: int
    strays: tuple[str, ...] = ()
    stray: int = 0


def walk(
    entries: Iterable[ObjectInfo],
    *,
    start: int,
    end: int,
    parse: Callable[[str], RangeKey | None],
    overhead: int,
    bound: Callable[[int], str],
) -> Iterator[Stored | Finding]:
    """Go along a listing of the range ``[start, end)`` and say of each object what it is.

    Args:
        entries: the objects whose keys lie in the range, in order.
        start: where the chain has to begin.
        end: where it has to end.
        parse: the numbers in an object's full key; None for a foreign one.
        overhead: bytes of the segment that are not in the object (the header).
        bound: where the keys of an offset begin, for naming what is missing.
    """
    chain = _Chain(start, end, overhead, bound)
    rivals: list[tuple[RangeKey, ObjectInfo]] = []
    for entry in entries:
        key = parse(entry.key)
        if key is None:
            yield Finding("foreign", entry.key, start, end, "a foreign object lies among the archive's")
            continue
        if rivals and key.offset != rivals[0][0].offset:
            yield from chain.add(rivals, key.offset)
            rivals = []
        rivals.append((key, entry))
    if rivals:
        yield from chain.add(rivals, end)
    if chain.at < end:
        yield chain.missing(end)


def strict(steps: Iterable[Stored | Finding], root: str) -> Iterator[Stored]:
    """The objects on the chain. What lies beside it is skipped; the first damage is raised."""
    for step in steps:
        if not isinstance(step, Finding):
            yield step
        elif step.is_damage:
            raise step.problem(root)


def check(steps: Iterable[Stored | Finding], *, event_each: bool) -> RangeCheck:
    """Count objects, collect damage and strays."""
    objects = held = damaged = stray = 0
    damage: list[Finding] = []
    strays: list[str] = []
    for step in steps:
        if not isinstance(step, Finding):
            objects += 1
            held += step.length
        elif step.is_damage:
            damaged += 1
            damage += [step] if damaged <= MAX_FINDINGS else []
        else:
            stray += 1
            strays += [step.key] if stray <= MAX_FINDINGS else []
    return RangeCheck(objects, held, objects if event_each else None, tuple(damage), damaged, tuple(strays), stray)


class _Chain:
    """Where the chain is, and what an object is to it."""

    def __init__(self, start: int, end: int, overhead: int, bound: Callable[[int], str]) -> None:
        self.at = start
        self._end = end
        self._overhead = overhead
        self._bound = bound

    def add(self, rivals: list[tuple[RangeKey, ObjectInfo]], following: int) -> Iterator[Stored | Finding]:
        """Take up the objects of one offset. Of several, the chain goes on with the one that leads to the next."""
        chosen = next((rival for rival in rivals if rival[0].end == following), rivals[0])
        for rival in rivals:
            if rival is chosen:
                yield from self._step(*rival)
            else:
                what = "a second object at the offset of an event"
                yield Finding("rival", rival[1].key, rival[0].offset, rival[0].end, what)

    def missing(self, until: int) -> Finding:
        what = f"no object holds the bytes {self.at} to {until} of the segment"
        return Finding("missing", f"{self._bound(self.at)}-…", self.at, until, what)

    def _step(self, key: RangeKey, entry: ObjectInfo) -> Iterator[Stored | Finding]:
        if key.offset < self.at or key.end > self._end:
            what = "an object that belongs to no event of the archive"
            yield Finding("stray", entry.key, key.offset, key.end, what)
            return
        if key.offset > self.at:
            yield self.missing(key.offset)
        self.at = key.end
        expected = key.length - self._overhead
        if entry.size == expected:
            yield Stored(entry.key, key.offset, key.length, entry.size)
        else:
            what = f"the object has {entry.size} bytes instead of {expected}"
            yield Finding("changed", entry.key, key.offset, key.end, what)
