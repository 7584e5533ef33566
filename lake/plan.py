"""What comes next in a table: fixed once for each place where the table can end, create-only.

The archive's generations may be merged while they are handed off, or between a run that was killed and the next one. A
table never takes back what it has shown, so what follows a generation of it is decided once, by whoever comes first,
down to the ranges. All runs write the same files then, whichever of the archive's manifests they find in force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from manifests.agreement import by_segment
from manifests.entries import Count, Model, Offset, SegmentName
from manifests.history import Generation
from manifests.jsonfile import decode
from manifests.model import GapEntry, Manifest, SegmentEntry, segment_key
from manifests.range_row import RangeRow, segment_digest
from objectstore.errors import AlreadyExists, NoSuchObject
from objectstore.keys import table_plan_key
from objectstore.store import ObjectStore
from problems import Conflict, Damaged
from streamstore.cuts import segments_between
from streamstore.model import StreamDescription

__all__ = ["TablePlan", "draft_plan", "find_plan", "finished", "fix_plan"]

UNKNOWN = "0" * 64
"""Stands for a digest that is known once the bytes were read."""


class TablePlan(Model):
    """The generation that follows another one in a table.

    Attributes:
        after: the table's newest generation before it; 0 if the table begins with this one.
        manifest: its manifest; of segments of which only a part is taken, events and digests are not known yet.
        ranges: full segment name → first and last offset of each of its ranges, in order.
        events: how many events all of them have.
    """

    format: Literal[1] = 1
    after: Annotated[int, Field(ge=0, le=0x7FFFFFFF)]
    manifest: Manifest
    ranges: Mapping[SegmentName, tuple[tuple[Offset, Offset], ...]]
    events: Count

    @property
    def generation(self) -> int:
        """Its number, which is that of its last original generation."""
        return self.manifest.generation

    @property
    def first(self) -> int:
        """Its first original generation."""
        return self.manifest.first


def find_plan(store: ObjectStore, prefix: str, after: int) -> TablePlan | None:
    """The plan of what follows a generation, or None.

    Args:
        store: the table's root.
        prefix: the table in it.
        after: see `TablePlan`.

    Raises:
        Damaged: the file is not such a plan.
    """
    key = prefix + table_plan_key(after)
    where = f"{store.uri}/{key}"
    try:
        plan = decode(TablePlan, store.get(key), where)
    except NoSuchObject:
        return None
    if plan.after != after or not prefix.startswith(f"{plan.manifest.name}/") or (after and plan.first != after + 1):
        raise Damaged(f"the plan is of another table ({plan.manifest.name}, after {plan.after})", where=where)
    return plan


def fix_plan(store: ObjectStore, prefix: str, plan: TablePlan) -> TablePlan:
    """Write a plan, create-only; returns the one that holds.

    Raises:
        Damaged: the one that is there cannot be read.
    """
    try:
        store.put(prefix + table_plan_key(plan.after), plan.encode())
    except AlreadyExists:
        found = find_plan(store, prefix, plan.after)
        if found is not None:
            return found
    return plan


def draft_plan(generation: Generation, last: Manifest | None, where: str) -> TablePlan:
    """The plan that makes a generation of the archive, or what of a merged one the table has not got, the next one.

    Args:
        generation: of the archive; the table has not got its last original generation.
        last: the table's newest; None if it has none.
        where: names the table in messages.

    Raises:
        Conflict: the table does not end where an original generation of this archive does.
    """
    manifest = generation.manifest
    after = 0 if last is None else last.generation
    if last is not None:
        start = next((one.to for one in manifest.replaces if one.generation == after), manifest.from_)
        if start != last.to or manifest.epochs[: len(last.epochs)] != last.epochs:
            todo = "Give the new table another name (--table)."
            raise Conflict(f"generation {after} of the table is none of this archive", where=where, todo=todo)
        if manifest.first <= after:
            return _rest(generation, last)
    ranges = {
        segment.in_stream(manifest.name): tuple((row.start, row.end) for row in rows)
        for segment, rows in generation.rows.items()
    }
    return TablePlan(after=after, manifest=manifest, ranges=ranges, events=manifest.events)


def _rest(generation: Generation, last: Manifest) -> TablePlan:
    """What of a merged generation lies behind a cut between two of its original ones."""
    merged, cut = generation.manifest, last.to
    left = tuple(one for one in merged.replaces if one.generation > last.generation)
    known = {entry.name: entry for entry in merged.segments}
    epochs = tuple(epoch.value() for epoch in merged.epochs)
    described = StreamDescription(merged.name, merged.configuration.value(), epochs, cut, merged.to, sealed=False)
    starts = {
        segment.in_stream(merged.name): start
        for segment, (start, _) in segments_between(described, cut, merged.to).items()
    }
    ranges = {
        name: tuple(
            (max(row.start, start), row.end) for row in generation.rows.get(segment_key(name), ()) if row.end > start
        )
        for name, start in starts.items()
    }
    entries = [
        known[name].model_copy(
            update={
                "start": start,
                "events": 0,
                "bytes": sum(end - begin for begin, end in ranges[name]),
                "digest": UNKNOWN,
            }
        )
        for name, start in starts.items()
    ]
    manifest = merged.model_copy(
        update={
            "from_": cut,
            "replaces": left if len(left) > 1 else (),
            "merged": None,
            "segments": tuple(entries),
            "gaps": tuple(_gaps_behind(merged.gaps, starts)),
            "events": 0,
            "bytes": sum(entry.bytes for entry in entries),
        }
    )
    return TablePlan(
        after=last.generation,
        manifest=manifest,
        ranges={name: some for name, some in ranges.items() if some},
        events=sum(one.events for one in left),
    )


def _gaps_behind(gaps: Sequence[GapEntry], starts: Mapping[str, int]) -> list[GapEntry]:
    return [gap for gap in gaps if gap.segment in starts and gap.end > starts[gap.segment] <= gap.start]


def finished(plan: TablePlan, rows: Sequence[RangeRow], where: str) -> Manifest:
    """The manifest of a generation whose files are there.

    Args:
        plan: its plan.
        rows: its ranges, in order.
        where: names the table in messages.

    Raises:
        Damaged: there are more or fewer events than the archive's manifest says.
    """
    held = by_segment(rows)
    entries: list[SegmentEntry] = []
    for entry in plan.manifest.segments:
        own = held.get(segment_key(entry.name), [])
        digest = segment_digest(row.digest for row in own)
        entries.append(entry.model_copy(update={"events": sum(row.events for row in own), "digest": digest}))
    events = sum(entry.events for entry in entries)
    if events != plan.events:
        what = f"generation {plan.generation} has {events} events, its manifest says {plan.events}"
        raise Damaged(what, where=where, todo="Run 'streamvault check --read-data' on the archive.")
    manifest = plan.manifest.model_copy(update={"segments": tuple(entries), "events": events})
    return decode(Manifest, manifest.encode(), where)  # nothing is published that no reader takes
