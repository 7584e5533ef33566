"""Which manifests of an archive are in force: the one place that says so, from a listing of ``_manifest/``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from objectstore.keys import (
    MANIFESTS,
    parse_checked,
    parse_deleted,
    parse_dropped,
    parse_hold,
    parse_manifest,
    parse_ranges,
)
from objectstore.store import ObjectStore

__all__ = ["Listing", "read_listing"]


@dataclass(frozen=True, slots=True)
class Listing:
    """What the names below ``_manifest/`` say. Grows with the number of generations, not with what they hold.

    Attributes:
        generations: those in force, ascending.
        dropped: the newest generation that is no part of the archive any more; 0 if the archive has its beginning.
        checked: generations in force with a mark of a check. holds: generation in force → names of its holds, sorted.
        dropped_marks: the numbers of all dropped marks. deleted_marks: those whose data are gone.
        remains: generation → keys (below the archive) of its manifest, index, marks and holds, though it is dropped.
    """

    generations: tuple[int, ...]
    dropped: int
    checked: frozenset[int]
    holds: Mapping[int, tuple[str, ...]]
    dropped_marks: tuple[int, ...]
    deleted_marks: tuple[int, ...]
    remains: Mapping[int, tuple[str, ...]]

    @property
    def newest(self) -> int:
        """The newest generation that was ever published; 0 if there is none."""
        return self.generations[-1] if self.generations else self.dropped

    @property
    def unchecked(self) -> tuple[int, ...]:
        """Generations in force without a mark of a check, ascending."""
        return tuple(number for number in self.generations if number not in self.checked)

    @property
    def missing(self) -> int | None:
        """The first generation that should be in force, but has no manifest; None if all is well.

        The newest generation never expires: a dropped mark with nothing after it says that manifests were lost.
        """
        expected = range(self.dropped + 1, self.newest + 1 if self.generations else self.dropped + 2)
        if not self.generations and not self.dropped:
            return None
        there = set(self.generations)
        return next((number for number in expected if number not in there), None)

    @property
    def unfinished(self) -> tuple[int, ...]:
        """Dropped marks whose data may still be there, oldest first."""
        done = set(self.deleted_marks)
        return tuple(number for number in self.dropped_marks if number not in done)


def read_listing(store: ObjectStore, prefix: str) -> Listing:
    """List an archive's manifests and marks; one request for some hundred generations."""
    manifests: list[int] = []
    checked: set[int] = set()
    dropped: list[int] = []
    deleted: list[int] = []
    holds: dict[int, list[str]] = {}
    records: dict[int, list[str]] = {}
    for entry in store.list(prefix + MANIFESTS):
        key = entry.key.removeprefix(prefix)
        if (number := parse_dropped(key)) is not None:
            dropped.append(number)
        elif (number := parse_deleted(key)) is not None:
            deleted.append(number)
        elif (number := _generation_of(key)) is not None:
            records.setdefault(number, []).append(key)
            hold = parse_hold(key)
            if hold is not None:
                holds.setdefault(number, []).append(hold.name)
            elif parse_manifest(key) is not None:
                manifests.append(number)
            elif parse_checked(key) is not None:
                checked.add(number)
    head = max(dropped, default=0)
    return Listing(
        generations=tuple(sorted(number for number in manifests if number > head)),
        dropped=head,
        checked=frozenset(number for number in checked if number > head),
        holds={number: tuple(sorted(names)) for number, names in holds.items() if number > head},
        dropped_marks=tuple(sorted(dropped)),
        deleted_marks=tuple(sorted(deleted)),
        remains={number: tuple(keys) for number, keys in records.items() if number <= head},
    )


def _generation_of(key: str) -> int | None:
    """Whose manifest, index, check or hold it is; None for any other key."""
    hold = parse_hold(key)
    if hold is not None:
        return hold.generation
    found = (parse(key) for parse in (parse_manifest, parse_ranges, parse_checked))
    return next((number for number in found if number is not None), None)
