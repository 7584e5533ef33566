"""Determines which generations of an archive are in force.

The newest decision says what has expired and what is merged; the listing of ``_manifest/`` shows what exists.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from streamvault.common.errors import Damaged
from streamvault.layouts.keys import (
    MANIFESTS,
    WORK,
    GenerationSpan,
    Place,
    decision_key,
    manifest_key,
    parse_decision,
    parse_record,
    parse_truncation,
    parse_work,
    plan_key,
)
from streamvault.manifests.decisions import Decision
from streamvault.manifests.files import find_file
from streamvault.objectstore.bulk import list_records
from streamvault.objectstore.store import NoSuchObject, ObjectStore
from streamvault.streamstore.model import StreamCut

KEPT = 4
"""Superseded decisions that are never deleted: the newest ones, with which `check_decisions` compares."""

_PUBLISHED = {"checked", "blocks"}
"""Kinds of records that are written only once their generation is published."""

HIGHEST = 1_000_000_000
"""The highest number of a decision that is believed; one a second for 31 years."""

UNKNOWN_TODO = (
    "If none of your runs has made that decision, delete nothing; the runbook 'An archive is damaged' has a section on "
    "decisions that nobody made."
)


@dataclass(frozen=True, slots=True)
class Listing:
    """The generations in force. Memory grows with their number, not with their size.

    In force are the merged generations that the decision names, and every plain one above the head that none of these
    contains. No other manifest counts, no matter when it was written.

    Attributes:
        decision: the newest decision; number 0 if there is none.
        spans: the generations in force, in order.
        checked: numbers of the generations in force that have a mark.
        noted: numbers of the generations in force of which a check has noted checksums of blocks.
        holds: number of a generation in force → names of its holds, sorted; a hold on a generation that was merged
            later is a hold on the merged one.
        remains: keys (relative to the archive) of manifests, indexes and marks of expired generations.
        replaced: generations replaced by a merged one, of which objects remain.
        undecided: merged generations that have a manifest, but no decision.
        older: numbers of superseded decisions.
        truncations: generations to whose ends the source may be about to be truncated, ascending.
        begun: generations after the newest that have an index, but neither a manifest nor what is only written after
            it: they are about to be published, or were.
        orphans: generations after the newest that were published, but whose manifests are gone: the decision or a note
            of a truncation names them, or they have a mark or noted checksums, or an index and no plan, which is
            deleted only after the publication.
    """

    decision: Decision
    spans: tuple[GenerationSpan, ...] = ()
    checked: frozenset[int] = frozenset()
    holds: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    remains: tuple[str, ...] = ()
    replaced: tuple[GenerationSpan, ...] = ()
    undecided: tuple[GenerationSpan, ...] = ()
    older: tuple[int, ...] = ()
    truncations: tuple[int, ...] = ()
    begun: tuple[GenerationSpan, ...] = ()
    orphans: tuple[GenerationSpan, ...] = ()
    noted: frozenset[int] = frozenset()

    @property
    def dropped(self) -> int:
        """The newest generation that has expired; 0 if none has."""
        return self.decision.dropped

    @property
    def newest(self) -> int:
        """The newest generation ever published; 0 if there is none."""
        return self.spans[-1].last if self.spans else self.dropped

    @property
    def generations(self) -> tuple[int, ...]:
        """The numbers of the generations in force, ascending; for a merged one, that of its last original."""
        return tuple(span.last for span in self.spans)

    @property
    def unchecked(self) -> tuple[int, ...]:
        """Numbers of the generations in force that have no mark, ascending."""
        return tuple(number for number in self.generations if number not in self.checked)

    @property
    def superseded(self) -> tuple[int, ...]:
        """Numbers of the decisions that may be deleted: all but the newest ones, see `check_decisions`."""
        return tuple(number for number in self.older if number < self.decision.number - KEPT)

    @property
    def missing(self) -> int | None:
        """The first generation that should be in force but has no manifest; None if there is none.

        The newest generation never expires: if there is none above the head, manifests were lost, or the archive was
        deleted.
        """
        if self.decision.is_deleted:
            return None
        at = self.dropped + 1
        for first, last in self.spans:
            if first != at:
                return at
            at = last + 1
        if not self.spans and not self.is_new:
            return at
        lost = min((one.span.first for one in self.decision.merged if one.span not in self.spans), default=None)
        return at if lost is None and self.orphans else lost

    @property
    def is_new(self) -> bool:
        """Whether nothing has been published."""
        begun = bool(self.spans or self.orphans or self.decision.deletion)
        return not begun and (self.decision.empty or not self.dropped)

    @property
    def expired(self) -> tuple[GenerationSpan, ...]:
        """The expired generations that still have a manifest."""
        records = filter(None, map(parse_record, self.remains))
        return tuple(record.span for record in records if record.kind == "manifest")

    @property
    def unfinished(self) -> bool:
        """Whether data of expired generations may still exist."""
        return self.decision.swept < self.dropped

    def begin(self, head: StreamCut) -> StreamCut | None:
        """Return where the archive began: at ``head``, as those in force do, unless generations have expired.

        None if that was not recorded, see `Decision.begin`.
        """
        return self.decision.begin if self.dropped else head

    def begin_after(self, before: int, of: Decision | None = None) -> Decision | None:
        """Return the decision by which a new archive begins after a generation; None if there is nothing to decide.

        Args:
            before: the last generation that it does not get; 0 for none.
            of: what was decided of the archive that it is made of, if its beginning is to be recorded.
        """
        if not self.is_new or self.dropped >= before:
            return None
        if of is None:
            return self.decision.begin_after(before)
        return self.decision.begin_after(before, of.begin, of.dropped_created if of.dropped == before else None)

    def holder(self, original: int) -> GenerationSpan | None:
        """Return the generation in force that contains an original one; None if none does."""
        at = bisect_left(self.spans, original, key=lambda span: span.last)
        span = self.spans[at] if at < len(self.spans) else None
        return span if span is not None and span.first <= original else None

    def within(self, originals: GenerationSpan) -> tuple[GenerationSpan, ...]:
        """Return the generations in force that together are exactly these originals; empty if there are none."""
        found = tuple(span for span in self.spans if originals.first <= span.last <= originals.last)
        at = originals.first
        for first, last in found:
            if first != at:
                return ()
            at = last + 1
        return found if at == originals.last + 1 else ()


def read_listing(place: Place, *, has_plans: bool = True, keys: list[str] | None = None) -> Listing:
    """Read which generations are in force: one LIST for some hundred generations, and one GET if there is a decision.

    Args:
        place: the folder of the archive or of the table's records.
        has_plans: whether unfinished generations have a plan in ``_work/``; a table's have not.
        keys: all keys below ``_manifest/``, relative to the folder, if they were just listed.

    Raises:
        Damaged: the newest decision cannot be read.
    """
    store, prefix = place
    keys = _keys(store, prefix) if keys is None else keys
    while True:
        numbers = [number for key in keys if (number := parse_decision(key)) is not None]
        decision = _decision(store, prefix, max(numbers, default=0))
        listing = None if decision is None else _resolve(decision, keys, sorted(numbers))
        if listing is not None and has_plans:
            gone = {span for span in listing.begun if not has_plan(place, span)}
            listing = replace(listing, orphans=tuple(sorted({*listing.orphans, *gone})))
        if listing is not None and listing.missing is None:
            return listing
        # Pages of a listing are read at different times, so a missing generation is accepted only if the next listing
        # is the same. That one also shows the manifest of a generation that was published and lost its plan meanwhile.
        before, keys = keys, _keys(store, prefix)
        if keys == before:
            if listing is None:
                where = f"{store.uri}/{prefix}{decision_key(max(numbers))}"
                raise Damaged("the decision is listed, but cannot be read", where=where)
            return listing


def check_decisions(place: Place, listing: Listing) -> None:
    """Check that the newest decision follows from the `KEPT` ones before it, as far as they are there.

    Whatever deletes, truncates or decides on its word calls this first. Those are never deleted, so no late put can
    take one of their numbers. What is below them may have come late, and has no effect. Earlier releases kept only the
    newest one.

    Raises:
        Damaged: it does not; names the decision that somebody else may have written.
    """
    after = listing.decision
    wrong = "has a number that no archive reaches" if after.number > HIGHEST else ""
    for number in range(after.number - 1, max(after.number - KEPT, 0) - 1, -1):
        before = _decision(*place, number) if not number or number in listing.older else None
        if before is not None:
            wrong = wrong or after.follows(before)
        elif number not in listing.older and listing.older and listing.older[0] < number:
            wrong = wrong or f"does not follow decision {max(one for one in listing.older if one < number)}"
        if wrong or before is None:  # it was deleted since the listing, or by an earlier release
            break
        after = before
    if wrong:
        todo = "Nothing was deleted, truncated or decided because of it. " + UNKNOWN_TODO
        raise Damaged(f"{after.title} {wrong}", where=f"{place.uri}/{decision_key(after.number)}", todo=todo)


def manifest_lost(listing: Listing, where: str) -> Damaged:
    """Return the error of a listing in which a generation is missing; its advice loses nothing."""
    missing = listing.missing or listing.newest + 1
    merged = next((one.span for one in listing.decision.merged if one.first == missing), GenerationSpan.of(missing))
    todo = f"Restore {manifest_key(merged)} from a version or a copy of the bucket, and delete nothing."
    if listing.spans and listing.spans[0].first < missing:
        todo += f" 'import --generation {missing - 1}' restores what was archived before it."
    if missing > listing.newest:
        todo += " Without a copy, export what the source still has below another root."
    return Damaged(f"the manifest of generation {missing} is missing", where=where, todo=todo)


def work_spans(place: Place) -> Iterator[GenerationSpan]:
    """Yield the generations that have a folder below ``_work/``."""
    return filter(None, map(parse_work, place.store.folders(place.prefix + WORK)))


def has_plan(place: Place, span: GenerationSpan) -> bool:
    """Return whether a generation has a first plan, which is not read."""
    try:
        place.store.size(place.prefix + plan_key(span))
    except NoSuchObject:
        return False
    return True


def _keys(store: ObjectStore, prefix: str) -> list[str]:
    return [entry.key.removeprefix(prefix) for entry in list_records(store, prefix + MANIFESTS)]


_NEVER = datetime.fromtimestamp(0, UTC)
"""When the decision was made that there is if there is none: always the same, so that equal listings are equal."""


def _decision(store: ObjectStore, prefix: str, number: int) -> Decision | None:
    """Read a decision; return None if it was deleted because there is a newer one."""
    scope, stream = prefix.split("/")[:2]
    if not number:
        empty: dict[str, Any] = {"number": 0, "dropped": 0, "swept": 0, "merged": (), "holds": ()}
        return Decision(format=1, scope=scope, stream=stream, created=_NEVER, **empty)
    key = prefix + decision_key(number)
    decision = find_file(Decision, store, key)
    if decision and (decision.scope, decision.stream, decision.number) != (scope, stream, number):
        what = f"the decision belongs to another archive ({decision.scope}/{decision.stream}, {decision.number})"
        raise Damaged(what, where=f"{store.uri}/{key}")
    return decision


def _named(decision: Decision, truncations: Iterable[int]) -> Iterator[GenerationSpan]:
    """Yield the generations in force that were published, as a decision or a note of a truncation names them."""
    merged = [one.span for one in decision.merged]
    yield from merged
    for number in {*truncations, *(hold.generation for hold in decision.holds)}:
        if number > decision.dropped and not any(first <= number <= last for first, last in merged):
            yield GenerationSpan.of(number)


def _resolve(decision: Decision, keys: Iterable[str], numbers: list[int]) -> Listing:
    records: dict[GenerationSpan, dict[str, str]] = {}
    for key in keys:
        record = parse_record(key)
        if record is not None:
            records.setdefault(record.span, {})[record.kind] = key
    merged = {one.span for one in decision.merged}
    over = {span for span in records if decision.is_over(span)}
    published = [span for span, kinds in sorted(records.items()) if "manifest" in kinds and span not in over]
    spans = tuple(span for span in published if span in merged or not span.is_merged)
    newest = spans[-1].last if spans else decision.dropped
    later = {
        span: kinds
        for span, kinds in sorted(records.items())
        if span.last > newest and "manifest" not in kinds and span not in over
    }
    truncations = sorted(number for key in keys if (number := parse_truncation(key)) is not None)
    named = () if decision.is_deleted else _named(decision, truncations)
    listing = Listing(
        decision,
        spans=spans,
        checked=frozenset(span.last for span in spans if "checked" in records[span]),
        noted=frozenset(span.last for span in spans if "blocks" in records[span]),
        remains=tuple(
            key for span, kinds in sorted(records.items()) if span.first <= decision.dropped for key in kinds.values()
        ),
        replaced=tuple(sorted(span for span in over if span.first > decision.dropped)),
        undecided=tuple(span for span in published if span.is_merged and span not in merged),
        older=tuple(numbers[:-1]),
        truncations=tuple(truncations),
        begun=tuple(span for span, kinds in later.items() if not kinds.keys() & _PUBLISHED),
        orphans=tuple(
            sorted(
                {span for span in named if span.last > newest}
                | {span for span, kinds in later.items() if kinds.keys() & _PUBLISHED}
            )
        ),
    )
    held: dict[int, set[str]] = {}
    for hold in decision.holds:
        span = listing.holder(hold.generation)
        if span is not None:
            held.setdefault(span.last, set()).add(hold.name)
    return replace(listing, holds={number: tuple(sorted(some)) for number, some in held.items()})
