"""The plan of a generation: fixed once, create-only; every run of the generation works on this same plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from manifests.entries import GapEntry, Model, Offset, SegmentEntry, SegmentName
from manifests.jsonfile import decode
from manifests.model import GenerationModel, Manifest
from objectstore.errors import AlreadyExists, NoSuchObject
from objectstore.keys import plan_key, work_folder
from objectstore.store import ObjectStore
from problems import Damaged

__all__ = ["Plan", "PlannedSegment", "create_plan", "find_plan", "remove_work"]

DELETE_AT_ONCE = 1000


class PlannedSegment(Model):
    """A segment between the plan's cuts: its bytes from `start` to `end` are to be archived, but for the gaps."""

    name: SegmentName
    start: Offset
    end: Offset
    sealed: bool


class Plan(GenerationModel):
    """What a generation will hold. `gaps` are those known when it was made (truncated since the generation before)."""

    format: Literal[1] = 1
    range_size: Annotated[int, Field(ge=1)]
    segments: tuple[PlannedSegment, ...]
    gaps: tuple[GapEntry, ...]
    sealed: bool

    @property
    def bytes(self) -> int:
        """Segment bytes between the cuts."""
        return sum(segment.end - segment.start for segment in self.segments)

    def manifest(self, segments: Iterable[SegmentEntry], gaps: Iterable[GapEntry], tool: str) -> Manifest:
        """The manifest of a generation that was made by this plan.

        Args:
            segments: what it holds of each planned segment.
            gaps: the plan's own, and those found since.
            tool: name and version of what made it.
        """
        held = tuple(segments)
        return Manifest(
            **self.in_common(),
            segments=held,
            gaps=tuple(gaps),
            events=sum(one.events for one in held),
            bytes=sum(one.bytes for one in held),
            range_size=self.range_size,
            sealed=self.sealed,
            tool=tool,
        )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        self.check_stream()
        self.check_stretches(self.segments, self.gaps)
        return self


def create_plan(store: ObjectStore, prefix: str, plan: Plan) -> tuple[Plan, bool]:
    """Write a plan, create-only. Returns the plan that holds, and whether it is this one.

    Raises:
        Damaged: the plan that is there cannot be read.
    """
    while True:
        try:
            store.put(prefix + plan_key(plan.generation, plan.first), plan.encode())
        except AlreadyExists:
            found = find_plan(store, prefix, plan.generation, plan.first)
            if found is not None:
                return found, False
        else:
            return plan, True


def find_plan(store: ObjectStore, prefix: str, generation: int, first: int | None = None) -> Plan | None:
    """The plan of an unfinished (or running) generation, or None; `first` as for `objectstore.keys.manifest_key`.

    Raises:
        Damaged: the file is not a plan of this archive and generation.
    """
    key = prefix + plan_key(generation, first)
    try:
        data = store.get(key)
    except NoSuchObject:
        return None
    where = f"{store.uri}/{key}"
    plan = decode(Plan, data, where)
    if (f"{plan.name}/", plan.generation, plan.first) != (prefix, generation, first or generation):
        raise Damaged(f"the plan is of another archive ({plan.name}, generation {plan.generation})", where=where)
    return plan


def remove_work(store: ObjectStore, prefix: str, generation: int, first: int | None = None) -> None:
    """Remove what the runs of a published generation left, if anything: rows first, the plan last."""
    keys: list[str] = []
    plan: list[str] = []
    for found in store.list(prefix + work_folder(generation, first)):
        (plan if found.key == prefix + plan_key(generation, first) else keys).append(found.key)
        if len(keys) == DELETE_AT_ONCE:
            store.delete(keys)
            keys = []
    for some in (keys, plan):
        if some:
            store.delete(some)
