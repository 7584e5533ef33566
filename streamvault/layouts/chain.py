"""Walk the chain of objects in a listing: each object must begin where the previous one ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from streamvault.common.errors import Damaged
from streamvault.layouts.object_keys import RangeKey
from streamvault.objectstore.store import ObjectInfo

MAX_FINDINGS = 100
"""Findings kept for one range; further ones are only counted."""


class ChainedObject(NamedTuple):
    """An object on the chain: ``length`` bytes of the segment at ``offset``, stored as ``size`` bytes under ``key``."""

    key: str
    offset: int
    length: int
    size: int


@dataclass(frozen=True, slots=True)
class Finding:
    """An object that is not on the chain, or damage to the chain.

    Attributes:
        kind: ``missing`` (no object holds these bytes) and ``changed`` (wrong size) are damage. ``stray`` (proved to be
            off the chain), ``foreign`` (not a key of the layout) and ``rival`` (a second object at the offset of one on
            the chain; the listing alone does not show which is right) are harmless.
        key: the object's key in the store; for missing objects, the beginning of the expected key.
        start: offset of the first affected byte of the segment.
        end: offset after the last affected byte.
        what: a description for messages.
    """

    kind: Literal["missing", "changed", "stray", "foreign", "rival"]
    key: str
    start: int
    end: int
    what: str

    @property
    def is_damage(self) -> bool:
        """Whether it makes an event unreadable."""
        return self.kind in {"missing", "changed"}

    def problem(self, root: str) -> Damaged:
        """Return the finding as an error to raise.

        Args:
            root: the store's URI.
        """
        return Damaged(self.what, where=f"{root}/{self.key}", todo="Run 'streamvault check' on the archive.")


@dataclass(frozen=True, slots=True)
class RangeCheck:
    """Result of checking a range's listing.

    Attributes:
        objects: number of objects on the chain that have the right size.
        bytes: bytes of the segment in these objects, headers included.
        events: number of events; None if the layout's listing does not show it.
        damage: the first `MAX_FINDINGS` findings that are damage.
        damaged: number of findings that are damage.
        strays: keys of the first `MAX_FINDINGS` objects that are not on the chain.
        stray: number of objects that are not on the chain.
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
) -> Iterator[ChainedObject | Finding]:
    """Classify each object in a listing of the range ``[start, end)``.

    Args:
        entries: the objects whose keys lie in the range, in order.
        start: offset at which the chain must begin.
        end: offset at which the chain must end.
        parse: parses an object's full key; returns None for a foreign one.
        overhead: bytes of the segment that are not in the object (the header).
        bound: returns the beginning of the keys at an offset, to name missing objects.
    """
    chain = _Chain(start, end, overhead, bound)
    rivals: list[tuple[RangeKey, ObjectInfo]] = []
    for entry in entries:
        key = parse(entry.key)
        if key is None:
            yield Finding("foreign", entry.key, start, end, "a foreign object is among the archive's objects")
            continue
        if rivals and key.offset != rivals[0][0].offset:
            yield from chain.add(rivals, key.offset)
            rivals = []
        rivals.append((key, entry))
    if rivals:
        yield from chain.add(rivals, end)
    if chain.at < end:
        yield chain.missing(end)


def strict(steps: Iterable[ChainedObject | Finding], root: str) -> Iterator[ChainedObject]:
    """Yield the objects on the chain; skip the others and raise the first damage."""
    for step in steps:
        if not isinstance(step, Finding):
            yield step
        elif step.is_damage:
            raise step.problem(root)


def check(steps: Iterable[ChainedObject | Finding], *, event_each: bool) -> RangeCheck:
    """Count the objects; collect damage and strays.

    Args:
        steps: what `walk` yields.
        event_each: whether each object is one event.
    """
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
    """Position on the chain, by which each object is classified."""

    def __init__(self, start: int, end: int, overhead: int, bound: Callable[[int], str]) -> None:
        self.at = start
        self._end = end
        self._overhead = overhead
        self._bound = bound

    def add(self, rivals: list[tuple[RangeKey, ObjectInfo]], following: int) -> Iterator[ChainedObject | Finding]:
        """Add the objects at one offset. Of several, the chain continues with the one that ends at the next offset."""
        chosen = next((rival for rival in rivals if rival[0].end == following), rivals[0])
        for rival in rivals:
            if rival is chosen:
                yield from self._step(*rival)
            else:
                what = "a second object exists at the offset of an event"
                yield Finding("rival", rival[1].key, rival[0].offset, rival[0].end, what)

    def missing(self, until: int) -> Finding:
        what = f"no object holds the bytes {self.at} to {until} of the segment"
        return Finding("missing", f"{self._bound(self.at)}-…", self.at, until, what)

    def _step(self, key: RangeKey, entry: ObjectInfo) -> Iterator[ChainedObject | Finding]:
        if key.offset < self.at or key.end > self._end:
            what = "the object belongs to no event of the archive"
            yield Finding("stray", entry.key, key.offset, key.end, what)
            return
        if key.offset > self.at:
            yield self.missing(key.offset)
        self.at = key.end
        expected = key.length - self._overhead
        if entry.size == expected:
            yield ChainedObject(entry.key, key.offset, key.length, entry.size)
        else:
            what = f"the object has {entry.size} bytes instead of {expected}"
            yield Finding("changed", entry.key, key.offset, key.end, what)
