"""Walk the chain of objects in a listing: each object must begin where the previous one ended.

Where several objects begin at one offset of the chain, the listing does not show which of them is right. Then the whole
chains that the range's objects form are compared with its digest, and the one that has it is followed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from streamvault.common.errors import Damaged
from streamvault.layouts.keys import RangeKey
from streamvault.objectstore.store import ObjectInfo
from streamvault.streamstore.model import HEADER_BYTES

MAX_FINDINGS = 100
"""Findings kept for one range; further ones are only counted."""

MAX_CHAINS = 16
"""How many chains of a range are compared with its digest: whoever may create objects can make 2^n of n pairs."""


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
        kind: ``missing`` (no object holds these bytes), ``changed`` (wrong size) and ``rival`` (several chains of
            objects begin there, and none of them is right) are damage. ``stray`` (proved to be off the chain) and
            ``foreign`` (not a key of the layout) are harmless.
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
        return self.kind in {"missing", "changed", "rival"}

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
        events: number of events; None if the layout's listing does not show it.
        damage: the first `MAX_FINDINGS` findings that are damage.
        damaged: number of findings that are damage.
        strays: keys of the first `MAX_FINDINGS` objects that are not on the chain.
        stray: number of objects that are not on the chain.
    """

    events: int | None
    damage: tuple[Finding, ...]
    damaged: int
    strays: tuple[str, ...] = ()
    stray: int = 0


class ProvedChain(NamedTuple):
    """The chain of a range's objects that its digest shows to be right.

    Attributes:
        edges: the offsets where its objects begin, and the end of the last one, ascending; empty if none is.
        end: the offset up to which nothing else is known then.
        why: what is wrong if none is.
    """

    edges: Sequence[int]
    end: int
    why: str = ""


def walk(
    entries: Iterable[ObjectInfo],
    *,
    start: int,
    end: int,
    parse: Callable[[str], RangeKey | None],
    bound: Callable[[int], str],
    decide: Callable[[int], ProvedChain],
) -> Iterator[ChainedObject | Finding]:
    """Classify each object in a listing of the range ``[start, end)``.

    Args:
        entries: the objects whose keys lie in the range, in order.
        start: offset at which the chain must begin.
        end: offset at which the chain must end.
        parse: parses an object's full key; returns None for a foreign one.
        bound: returns the beginning of the keys at an offset, to name missing objects.
        decide: says which chain is right, where several objects begin at an offset of the chain.
    """
    chain = _Chain(start, end, bound, decide)
    rivals: list[tuple[RangeKey, ObjectInfo]] = []
    for entry in entries:
        key = parse(entry.key)
        if key is None:
            yield Finding("foreign", entry.key, start, end, "a foreign object is among the archive's objects")
            continue
        if rivals and key.offset != rivals[0][0].offset:
            yield from chain.add(rivals)
            rivals = []
        rivals.append((key, entry))
    if rivals:
        yield from chain.add(rivals)
    if chain.at < end:
        yield chain.missing(end)


class Chains:
    """The chains that some objects form: each begins where the previous one ended. Memory: some 100 bytes an object.

    Args:
        objects: offset and end of each object, in order of the offset.
        start: offset at which a chain begins.
        end: offset at which it ends.
    """

    def __init__(self, objects: Iterable[tuple[int, int]], start: int, end: int) -> None:
        self._start, self._end = start, end
        self._offsets, self._ends = array("q"), array("q")
        reached = {start}
        for offset, after in objects:
            if offset in reached and offset < after <= end:
                reached.add(after)
                self._offsets.append(offset)
                self._ends.append(after)
        self._leads = bytearray(len(self._ends))  # to the end
        for index in reversed(range(len(self._ends))):
            after = self._ends[index]
            self._leads[index] = after == end or self._at(after) is not None

    def __iter__(self) -> Iterator[array[int]]:
        """Yield chains, each as the offsets where its objects begin and the end of the last one."""
        path: list[int] = []
        index = self._at(self._start)
        while index is not None:
            path.append(index)
            after = self._ends[index]
            if after < self._end:
                index = self._at(after)
                continue
            yield array("q", [*(self._offsets[one] for one in path), self._end])
            index = None
            while path and index is None:
                last = path.pop()
                index = self._at(self._offsets[last], last + 1)

    def _at(self, offset: int, first: int = 0) -> int | None:
        """Return the first object at an offset, from a number on, that leads to the end."""
        index = max(bisect_left(self._offsets, offset), first)
        while index < len(self._offsets) and self._offsets[index] == offset:
            if self._leads[index]:
                return index
            index += 1
        return None


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
    objects = damaged = stray = 0
    damage: list[Finding] = []
    strays: list[str] = []
    for step in steps:
        if not isinstance(step, Finding):
            objects += 1
        elif step.is_damage:
            damaged += 1
            damage += [step] if damaged <= MAX_FINDINGS else []
        else:
            stray += 1
            strays += [step.key] if stray <= MAX_FINDINGS else []
    return RangeCheck(objects if event_each else None, tuple(damage), damaged, tuple(strays), stray)


class _Chain:
    """Position on the chain, by which each object is classified."""

    def __init__(
        self,
        start: int,
        end: int,
        bound: Callable[[int], str],
        decide: Callable[[int], ProvedChain],
    ) -> None:
        self.at = start
        self._end = end
        self._bound = bound
        self._decide = decide
        self._edges: Sequence[int] = ()
        self._unknown_from = end

    def add(self, rivals: list[tuple[RangeKey, ObjectInfo]]) -> Iterator[ChainedObject | Finding]:
        """Add the objects at one offset."""
        offset = rivals[0][0].offset
        fitting = [key.end for key, _ in rivals if key.end <= self._end]
        chosen = fitting[0] if fitting else 0
        if offset == self.at and len(fitting) > 1:
            if not self._edges or offset >= self._edges[-1]:
                decision = self._decide(offset)
                if not decision.edges:
                    yield Finding("rival", rivals[0][1].key, offset, decision.end, decision.why)
                    self._unknown_from, self.at = offset, decision.end
                self._edges = decision.edges
            chosen = self._edges[bisect_right(self._edges, offset)] if self._edges else 0
        if self._unknown_from <= offset < self.at:
            return
        for key, entry in rivals:
            if offset >= self.at and key.end == chosen:
                yield from self._step(key, entry)
            else:
                yield Finding("stray", entry.key, key.offset, key.end, "the object belongs to no event of the archive")

    def missing(self, until: int) -> Finding:
        what = f"no object holds the bytes {self.at} to {until} of the segment"
        return Finding("missing", f"{self._bound(self.at)}-…", self.at, until, what)

    def _step(self, key: RangeKey, entry: ObjectInfo) -> Iterator[ChainedObject | Finding]:
        if key.offset > self.at:
            yield self.missing(key.offset)
        self.at = key.end
        expected = key.length - HEADER_BYTES
        if entry.size == expected:
            yield ChainedObject(entry.key, key.offset, key.length, entry.size)
        else:
            what = f"the object has {entry.size} bytes instead of {expected}"
            yield Finding("changed", entry.key, key.offset, key.end, what)
