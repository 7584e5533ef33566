"""Which generations of an archive are in force: the one place that says so.

The newest decision says what has expired and what is merged; the listing of ``_manifest/`` says what is there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from common.errors import Damaged
from layouts.keys import MANIFESTS, decision_key, parse_decision, parse_record
from manifests.jsonfile import decode
from manifests.marks import Decision
from objectstore.errors import NoSuchObject
from objectstore.store import ObjectStore

__all__ = ["Listing", "Name", "read_listing"]

Name = tuple[int, int]
"""A manifest's name: its number, and the first original generation it stands for (the same, if it is a plain one)."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in force. Grows with the number of generations, not with what they hold.

    In force are the merged generations that the decision names, and every plain one above the head that none of these
    stands for. No other manifest counts, whenever it was written.

    Attributes:
        decision: the newest; number 0 if none was ever taken.
        generations: those in force, ascending.
        checked: generations in force with a mark of a check. holds: generation in force → names of its holds, sorted;
            a hold on one that was merged since is one on the merged generation.
        remains: keys (below the archive) of manifests, indexes and marks of what has expired.
        firsts: merged generation in force → the first original one that it stands for.
        replaced: names that a merged generation has put out of force and of which something is still there.
        undecided: merged generations whose manifest is there and that nobody has decided.
        older: numbers of decisions that do not count any more.
    """

    decision: Decision
    generations: tuple[int, ...] = ()
    checked: frozenset[int] = frozenset()
    holds: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    remains: tuple[str, ...] = ()
    firsts: Mapping[int, int] = field(default_factory=dict)
    replaced: tuple[Name, ...] = ()
    undecided: tuple[Name, ...] = ()
    older: tuple[int, ...] = ()

    @property
    def dropped(self) -> int:
        """The newest generation that has expired; 0 if the archive has its beginning."""
        return self.decision.dropped

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

        The newest generation never expires: if nothing is left above the head, manifests were lost.
        """
        spans = ((one.first, one.generation) for one in self.decision.merged)
        lost = min((first for first, last in spans if last not in self.firsts), default=None)
        if not self.generations and not self.dropped:
            return lost
        at = self.dropped + 1
        for number, first in self.names:
            if first != at:
                return at
            at = number + 1
        return lost if self.generations else at

    @property
    def unfinished(self) -> bool:
        """Whether data of expired generations may still be there."""
        return self.decision.swept < self.dropped

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

    def is_over(self, name: Name) -> bool:
        """Whether a manifest of this name is out of force for good, whatever will be decided.

        For the head only ever rises, and what is merged only ever merges with more.
        """
        return _is_over(name, self.decision)


def _is_over(name: Name, decision: Decision) -> bool:
    generation, first = name
    if first <= decision.dropped:
        return True
    meets = [one for one in decision.merged if one.first <= generation and first <= one.generation]
    spans = [(one.first, one.generation) for one in meets]
    return spans != [(first, generation)] and any(start < first or generation < end for start, end in spans)


def read_listing(store: ObjectStore, prefix: str) -> Listing:
    """What is in force in an archive: one LIST for some hundred generations, and one GET if anything was ever decided.

    Raises:
        Damaged: the newest decision cannot be read.
    """
    keys = _keys(store, prefix)
    while True:
        numbers = [number for key in keys if (number := parse_decision(key)) is not None]
        decision = _decision(store, prefix, max(numbers, default=0))
        listing = None if decision is None else _resolve(decision, keys, sorted(numbers))
        if listing is not None and listing.missing is None:
            return listing
        # Pages of a listing are of different moments. What misses something is believed if the next one says the same.
        before, keys = keys, _keys(store, prefix)
        if keys == before:
            if listing is None:
                where = f"{store.uri}/{prefix}{decision_key(max(numbers))}"
                raise Damaged("the decision is listed, and cannot be read", where=where)
            return listing


def _keys(store: ObjectStore, prefix: str) -> list[str]:
    return [entry.key.removeprefix(prefix) for entry in store.list(prefix + MANIFESTS)]


def _decision(store: ObjectStore, prefix: str, number: int) -> Decision | None:
    """A decision; None if it is gone, as a newer one was taken."""
    scope, stream = prefix.split("/")[:2]
    if not number:
        return Decision(scope=scope, stream=stream, number=0)
    key = prefix + decision_key(number)
    where = f"{store.uri}/{key}"
    try:
        decision = decode(Decision, store.get(key), where)
    except NoSuchObject:
        return None
    if (decision.scope, decision.stream, decision.number) != (scope, stream, number):
        what = f"the decision is of another archive ({decision.scope}/{decision.stream}, {decision.number})"
        raise Damaged(what, where=where)
    return decision


def _resolve(decision: Decision, keys: Iterable[str], numbers: list[int]) -> Listing:
    records: dict[Name, dict[str, str]] = {}
    for key in keys:
        record = parse_record(key)
        if record is not None:
            records.setdefault((record.generation, record.first), {})[record.kind] = key
    spans = {(one.generation, one.first) for one in decision.merged}
    names = sorted(
        name
        for name, kinds in records.items()
        if "manifest" in kinds and not _is_over(name, decision) and (name in spans or name[0] == name[1])
    )
    listing = Listing(
        decision,
        generations=tuple(number for number, _ in names),
        checked=frozenset(name[0] for name in names if "checked" in records[name]),
        remains=tuple(
            key for name, kinds in sorted(records.items()) if name[1] <= decision.dropped for key in kinds.values()
        ),
        firsts={number: first for number, first in names if first < number},
        replaced=tuple(sorted(name for name in records if name[1] > decision.dropped and _is_over(name, decision))),
        undecided=tuple(
            sorted(
                name
                for name, kinds in records.items()
                if "manifest" in kinds and name[0] != name[1] and name not in spans and not _is_over(name, decision)
            )
        ),
        older=tuple(numbers[:-1]),
    )
    held: dict[int, set[str]] = {}
    for hold in decision.holds:
        number = listing.holder(hold.generation)
        if number is not None:
            held.setdefault(number, set()).add(hold.name)
    return replace(listing, holds={number: tuple(sorted(some)) for number, some in held.items()})
