"""Which manifests of an archive are in force: the one place that says so, from a listing of ``_manifest/``."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from objectstore.keys import (
    MANIFESTS,
    MergedKey,
    parse_checked,
    parse_deleted,
    parse_dropped,
    parse_hold,
    parse_manifest,
    parse_merged,
    parse_ranges,
)
from objectstore.store import ObjectStore

__all__ = ["Listing", "Name", "read_listing"]

Name = tuple[int, int]
"""A manifest's name: its number, and the first original generation it stands for (the same, if it is a plain one)."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What the names below ``_manifest/`` say. Grows with the number of generations, not with what they hold.

    A merged generation hides every manifest, plain or merged, of what it stands for. It is in force only if all of that
    is above the archive's head: a dropped mark within it makes it void, as if it were not there.

    Attributes:
        generations: those in force, ascending.
        dropped: the newest generation that is no part of the archive any more; 0 if the archive has its beginning.
        checked: generations in force with a mark of a check. holds: generation in force → names of its holds, sorted;
            a hold on one that was merged since is one on the merged generation.
        dropped_marks: the numbers of all dropped marks. deleted_marks: those whose data are gone.
        remains: generation → keys (below the archive) of its manifest, index, marks and holds, though it is dropped.
        firsts: merged generation in force → the first original one that it stands for.
        replaced: manifests that a merged generation hides and that are still there.
        void: manifests of merged generations that are not in force and hidden by none.
    """

    generations: tuple[int, ...]
    dropped: int
    checked: frozenset[int]
    holds: Mapping[int, tuple[str, ...]]
    dropped_marks: tuple[int, ...]
    deleted_marks: tuple[int, ...]
    remains: Mapping[int, tuple[str, ...]]
    firsts: Mapping[int, int] = field(default_factory=dict)
    replaced: tuple[Name, ...] = ()
    void: tuple[Name, ...] = ()

    @property
    def newest(self) -> int:
        """The newest generation that was ever published; 0 if there is none."""
        return self.generations[-1] if self.generations else self.dropped

    @property
    def names(self) -> tuple[Name, ...]:
        """The manifests in force, in order."""
        return tuple((number, self.first_of(number)) for number in self.generations)

    @property
    def unchecked(self) -> tuple[int, ...]:
        """Generations in force without a mark of a check, ascending."""
        return tuple(number for number in self.generations if number not in self.checked)

    @property
    def missing(self) -> int | None:
        """The first generation that should be in force, but has no manifest; None if all is well.

        The newest generation never expires: a dropped mark with nothing after it says that manifests were lost.
        """
        if not self.generations and not self.dropped:
            return None
        at = self.dropped + 1
        for number, first in self.names:
            if first != at:
                return at
            at = number + 1
        return None if self.generations else at

    @property
    def unfinished(self) -> tuple[int, ...]:
        """Dropped marks whose data may still be there, oldest first."""
        done = set(self.deleted_marks)
        return tuple(number for number in self.dropped_marks if number not in done)

    def first_of(self, number: int) -> int:
        """The first original generation that one in force stands for."""
        return self.firsts.get(number, number)

    def holder(self, original: int) -> int | None:
        """The generation in force that holds an original one; None if none does."""
        at = bisect_left(self.generations, original)
        number = self.generations[at] if at < len(self.generations) else None
        return number if number is not None and self.first_of(number) <= original else None

    def within(self, generation: int, first: int) -> tuple[int, ...]:
        """The generations in force that together are the originals from `first` to `generation`; empty if none are."""
        found = [name for name in self.names if first <= name[0] <= generation]
        at = first
        for number, begins in found:
            if begins != at:
                return ()
            at = number + 1
        return tuple(number for number, _ in found) if at == generation + 1 else ()


def read_listing(store: ObjectStore, prefix: str) -> Listing:
    """List an archive's manifests and marks; one request for some hundred generations."""
    manifests: list[int] = []
    merged: list[Name] = []
    checked: set[Name] = set()
    dropped: list[int] = []
    deleted: list[int] = []
    held: list[tuple[int, str]] = []
    records: dict[int, list[str]] = {}
    for entry in store.list(prefix + MANIFESTS):
        key = entry.key.removeprefix(prefix)
        if (number := parse_dropped(key)) is not None:
            dropped.append(number)
        elif (number := parse_deleted(key)) is not None:
            deleted.append(number)
        elif (one := parse_merged(key)) is not None:
            records.setdefault(one.generation, []).append(key)
            _take(one, merged, checked)
        elif (number := _generation_of(key)) is not None:
            records.setdefault(number, []).append(key)
            hold = parse_hold(key)
            if hold is not None:
                held.append((number, hold.name))
            elif parse_manifest(key) is not None:
                manifests.append(number)
            elif parse_checked(key) is not None:
                checked.add((number, number))
    head = max(dropped, default=0)
    spans, hidden, void = _resolve(merged, head)
    ends = [generation for generation, _ in spans]

    def covered(number: int) -> bool:
        at = bisect_left(ends, number)
        return at < len(spans) and spans[at][1] <= number

    plain = [(number, number) for number in manifests if number > head]
    names = sorted([*(name for name in plain if not covered(name[0])), *spans])
    listing = Listing(
        generations=tuple(number for number, _ in names),
        dropped=head,
        checked=frozenset(name[0] for name in names if name in checked),
        holds={},
        dropped_marks=tuple(sorted(dropped)),
        deleted_marks=tuple(sorted(deleted)),
        remains={number: tuple(keys) for number, keys in records.items() if number <= head},
        firsts=dict(spans),
        replaced=tuple(sorted([*(name for name in plain if covered(name[0])), *hidden])),
        void=tuple(void),
    )
    return _with_holds(listing, held)


def _take(key: MergedKey, merged: list[Name], checked: set[Name]) -> None:
    name = (key.generation, key.first)
    if key.kind == "manifest":
        merged.append(name)
    elif key.kind == "checked":
        checked.add(name)


def _resolve(merged: Iterable[Name], head: int) -> tuple[list[Name], list[Name], list[Name]]:
    """Of the merged generations: those in force, those hidden by one of these, those that are void.

    Two that overlap without one being within the other can only come of two runs at the same moment, one of which found
    no longer in force what it had merged: the one that begins later is void.
    """
    force: list[Name] = []
    hidden: list[Name] = []
    void: list[Name] = []
    for generation, first in sorted(merged, key=lambda name: (name[1], -name[0])):
        if generation <= head:
            continue  # dropped as a whole
        if first <= head or (force and first <= force[-1][0] < generation):
            void.append((generation, first))
        elif force and generation <= force[-1][0]:
            hidden.append((generation, first))
        else:
            force.append((generation, first))
    return force, hidden, void


def _with_holds(listing: Listing, held: Iterable[tuple[int, str]]) -> Listing:
    names: dict[int, set[str]] = {}
    for original, name in held:
        number = listing.holder(original)
        if number is not None:
            names.setdefault(number, set()).add(name)
    return replace(listing, holds={number: tuple(sorted(some)) for number, some in names.items()})


def _generation_of(key: str) -> int | None:
    """Whose manifest, index, check or hold it is; None for any other key."""
    hold = parse_hold(key)
    if hold is not None:
        return hold.generation
    found = (parse(key) for parse in (parse_manifest, parse_ranges, parse_checked))
    return next((number for number in found if number is not None), None)
