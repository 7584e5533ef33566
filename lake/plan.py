"""What comes next in a table: fixed once for each place where the table can end, create-only.

The archive's generations may be merged while they are handed off, or between a run that was killed and the next one; a
stream grows. A table never takes back what it has shown, so what follows a generation of it is decided once, by whoever
comes first, down to the ranges. All runs write the same files then, whatever they find where the table comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from common.errors import Damaged
from exporter.reading import TRUNCATED
from layouts.keys import table_end_key, table_plan_key
from manifests.agreement import by_segment
from manifests.entries import Count, File, Offset, SegmentName
from manifests.jsonfile import decode
from manifests.model import GapEntry, Manifest, SegmentEntry, segment_key
from manifests.range_row import RangeRow, segment_digest
from manifests.remainder import UNKNOWN
from objectstore.deciding import decide
from objectstore.errors import NoSuchObject
from objectstore.store import ObjectStore
from streamstore.model import SegmentId

__all__ = [
    "UNKNOWN",
    "PlannedRange",
    "TablePlan",
    "empty_generation",
    "end_plan",
    "find_end",
    "find_plan",
    "finished",
    "fix_plan",
    "is_empty",
    "plan_of",
]


class PlannedRange(NamedTuple):
    """A range that a plan names: which segment, its first offset, and the offset after its last byte."""

    segment: SegmentId
    start: int
    end: int


class TablePlan(File):
    """The generation that follows another one in a table.

    Attributes:
        after: the table's newest generation before it; 0 if the table begins with this one.
        manifest: its manifest; of segments of which only a part is taken, events and digests are not known yet.
        ranges: full segment name → first and last offset of each of its ranges, in order.
        events: how many events all of them have; None if nobody knows before they were read.
    """

    format: Literal[1] = 1
    after: Annotated[int, Field(ge=0, le=0x7FFFFFFF)]
    manifest: Manifest
    ranges: Mapping[SegmentName, tuple[tuple[Offset, Offset], ...]]
    events: Count | None

    @property
    def generation(self) -> int:
        """Its number, which is that of its last original generation."""
        return self.manifest.generation

    @property
    def first(self) -> int:
        """Its first original generation."""
        return self.manifest.first

    def planned(self) -> Iterator[PlannedRange]:
        """Its ranges in the stream's order: by epoch, number and offset."""
        for name in sorted(self.ranges, key=segment_key):
            for start, end in self.ranges[name]:
                yield PlannedRange(segment_key(name), start, end)


class PlanEnd(File):
    """How a plan ended: created once, before the generation is published, so that all runs publish the same.

    Attributes:
        after: as the plan's.
        given_up: it can never be finished; its generation stays empty, and the next plan begins where this one did.
    """

    format: Literal[1] = 1
    after: Annotated[int, Field(ge=0, le=0x7FFFFFFF)]
    given_up: bool


def find_plan(store: ObjectStore, prefix: str, after: int) -> TablePlan | None:
    """The plan of what follows a generation, or None.

    Args:
        store: the table's root.
        prefix: the table's records in it.
        after: see `TablePlan`.

    Raises:
        Damaged: the file is not such a plan.
    """
    key = prefix + table_plan_key(after)
    try:
        return _decode(store.get(key), prefix, after, f"{store.uri}/{key}")
    except NoSuchObject:
        return None


def _decode(data: bytes, prefix: str, after: int, where: str) -> TablePlan:
    plan = decode(TablePlan, data, where)
    if plan.after != after or not prefix.startswith(f"{plan.manifest.name}/") or (after and plan.first != after + 1):
        raise Damaged(f"the plan is of another table ({plan.manifest.name}, after {plan.after})", where=where)
    return plan


def fix_plan(store: ObjectStore, prefix: str, plan: TablePlan) -> TablePlan:
    """Write a plan, create-only; returns the one that holds.

    Raises:
        Damaged: the one that is there cannot be read.
    """
    key = prefix + table_plan_key(plan.after)
    data, created = decide(store, key, plan.encode())
    return plan if created else _decode(data, prefix, plan.after, f"{store.uri}/{key}")


def plan_of(store: ObjectStore, prefix: str, manifest: Manifest) -> TablePlan:
    """The plan that a generation of the table was made by.

    Args:
        store: the table's root.
        prefix: the table's records in it.
        manifest: of the generation.

    Raises:
        Damaged: it is not there, or cannot be read.
    """
    for after in dict.fromkeys((manifest.first - 1, 0)):  # a table may begin behind generations that have expired
        plan = find_plan(store, prefix, after)
        if plan is not None and plan.generation == manifest.generation:
            return plan
    raise Damaged(f"the plan of generation {manifest.generation} is missing", where=f"{store.uri}/{prefix}")


def find_end(store: ObjectStore, prefix: str, after: int) -> PlanEnd | None:
    """How the plan of what follows a generation ended; None if that is not decided.

    Raises:
        Damaged: the file is not valid.
    """
    key = prefix + table_end_key(after)
    try:
        return decode(PlanEnd, store.get(key), f"{store.uri}/{key}")
    except NoSuchObject:
        return None


def end_plan(store: ObjectStore, prefix: str, after: int, *, given_up: bool) -> bool:
    """Decide, create-only, how a plan ends. Who is first decides for all.

    Returns:
        Whether it was given up.

    Raises:
        Damaged: the decision that is there cannot be read.
    """
    key = prefix + table_end_key(after)
    data, _ = decide(store, key, PlanEnd(after=after, given_up=given_up).encode())
    return decode(PlanEnd, data, f"{store.uri}/{key}").given_up


def empty_generation(plan: TablePlan, before: Manifest | None) -> Manifest:
    """The manifest of a plan that was given up: it ends where it begins.

    Args:
        plan: the plan.
        before: the generation that it follows; None if the table begins with it.
    """
    start = plan.manifest.from_
    entries = tuple(
        entry.model_copy(update={"end": entry.start, "events": 0, "bytes": 0, "digest": segment_digest(())})
        for entry in plan.manifest.segments
        if segment_key(entry.name) in start.offsets
    )
    witness = () if before is None else before.witness
    found = {"to": start, "witness": witness, "segments": entries, "gaps": (), "events": 0, "bytes": 0}
    return plan.manifest.model_copy(update=found)


def is_empty(manifest: Manifest) -> bool:
    """Whether a generation ends where it begins, so that no file is of it."""
    return manifest.from_ == manifest.to


def finished(plan: TablePlan, rows: Sequence[RangeRow], where: str) -> Manifest:
    """The manifest of a generation whose files are there.

    Args:
        plan: its plan.
        rows: what the files hold, in order. What they hold less than was planned is a gap.
        where: names the table in messages.

    Raises:
        Damaged: there are more or fewer events than the plan says.
    """
    held = by_segment(rows)
    gaps = [gap for name in plan.ranges for gap in _holes(name, plan.ranges[name], held.get(segment_key(name), ()))]
    entries: list[SegmentEntry] = []
    for entry in plan.manifest.segments:
        own = held.get(segment_key(entry.name), [])
        found = {
            "events": sum(row.events for row in own),
            "bytes": sum(row.end - row.start for row in own),
            "digest": segment_digest(row.digest for row in own),
        }
        entries.append(entry.model_copy(update=found))
    events = sum(entry.events for entry in entries)
    if plan.events not in {None, events}:
        what = f"generation {plan.generation} has {events} events, its manifest says {plan.events}"
        raise Damaged(what, where=where, todo="Run 'streamvault check --read-data' on the archive.")
    found = {
        "segments": tuple(entries),
        "gaps": (*plan.manifest.gaps, *gaps),
        "events": events,
        "bytes": sum(entry.bytes for entry in entries),
    }
    manifest = plan.manifest.model_copy(update=found)
    return decode(Manifest, manifest.encode(), where)  # nothing is published that no reader takes


def _holes(name: str, ranges: Sequence[tuple[int, int]], rows: Sequence[RangeRow]) -> Iterator[GapEntry]:
    """What of a segment's planned ranges no row holds."""
    for start, end in ranges:
        at = start
        for row in rows:
            if start <= row.start < end:
                if at < row.start:
                    yield GapEntry(segment=name, start=at, end=row.start, reason=TRUNCATED)
                at = row.end
        if at < end:
            yield GapEntry(segment=name, start=at, end=end, reason=TRUNCATED)
