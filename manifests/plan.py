"""The plan of a generation: fixed once, create-only; every run of the generation works on this same plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from common.errors import Damaged
from layouts.keys import GenerationSpan, ended_key, plan_key, work_folder
from manifests.entries import File, GapEntry, Model, Moment, Offset, SegmentEntry, SegmentName, now_utc, one_line
from manifests.jsonfile import decode
from manifests.model import GenerationModel, Manifest
from objectstore.deciding import decide
from objectstore.errors import NoSuchObject
from objectstore.store import ObjectStore

__all__ = [
    "Plan",
    "PlannedSegment",
    "create_plan",
    "current_plan",
    "end_plan",
    "ended_plans",
    "find_plan",
    "remove_work",
]

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


class Ended(File):
    """How the plan of an attempt ended: all of it is archived, or it can never be finished.

    Whoever creates it decides. So no index is written by an attempt that was given up, and none is given up that may
    be published.

    Attributes:
        reason: why it can never be finished; empty if all of it is archived. If there is one, rows and objects stay,
            and the next plan is another attempt.
    """

    format: Literal[1] = 1
    generation: Annotated[int, Field(ge=1)]
    attempt: Annotated[int, Field(ge=1)]
    created: Moment = Field(default_factory=now_utc)
    reason: str


def current_plan(store: ObjectStore, prefix: str, generation: int) -> tuple[Plan | None, int]:
    """The plan that an export of this generation works on, if there is one, and which attempt it is or has to be.

    Raises:
        Damaged: as `find_plan`.
    """
    attempt = 1
    while True:
        plan = find_plan(store, prefix, GenerationSpan.of(generation), attempt=attempt)
        if plan is None or not _is_given_up(store, prefix, generation, attempt):
            return plan, attempt
        attempt += 1


def ended_plans(store: ObjectStore, prefix: str, generation: int, attempt: int) -> Iterator[Plan]:
    """The plans of the attempts before this one. What their runs have written lies where the next one's will.

    Raises:
        Damaged: as `find_plan`.
    """
    for earlier in range(1, attempt):
        plan = find_plan(store, prefix, GenerationSpan.of(generation), attempt=earlier)
        if plan is not None:
            yield plan


def end_plan(store: ObjectStore, prefix: str, generation: int, attempt: int, reason: str = "") -> str:
    """Say how a plan ended, create-only. Nothing is deleted.

    Args:
        store: where.
        prefix: the archive below it.
        generation: of the plan.
        attempt: likewise.
        reason: why it can never be finished; empty if all of it is archived.

    Returns:
        The reason that holds: another run may have been first.
    """
    key = prefix + ended_key(GenerationSpan.of(generation), attempt)
    ended = Ended(generation=generation, attempt=attempt, reason=one_line(reason))
    data, _ = decide(store, key, ended.encode())
    return decode(Ended, data, f"{store.uri}/{key}").reason


def _is_given_up(store: ObjectStore, prefix: str, generation: int, attempt: int) -> bool:
    key = prefix + ended_key(GenerationSpan.of(generation), attempt)
    try:
        data = store.get(key)
    except NoSuchObject:
        return False
    return bool(decode(Ended, data, f"{store.uri}/{key}").reason)


def create_plan(store: ObjectStore, prefix: str, plan: Plan, attempt: int = 1) -> tuple[Plan, bool]:
    """Write a plan, create-only. Returns the plan that holds, and whether it is this one.

    Raises:
        Damaged: the plan that is there cannot be read.
    """
    key = prefix + plan_key(plan.span, attempt)
    data, created = decide(store, key, plan.encode())
    return (plan, True) if created else (_decode(data, prefix, plan.span, f"{store.uri}/{key}"), False)


def find_plan(store: ObjectStore, prefix: str, span: GenerationSpan, *, attempt: int = 1) -> Plan | None:
    """The plan of an unfinished (or running) generation, or None; arguments as for `layouts.keys.work_folder`.

    Raises:
        Damaged: the file is not a plan of this archive and generation.
    """
    key = prefix + plan_key(span, attempt)
    try:
        data = store.get(key)
    except NoSuchObject:
        return None
    return _decode(data, prefix, span, f"{store.uri}/{key}")


def _decode(data: bytes, prefix: str, span: GenerationSpan, where: str) -> Plan:
    plan = decode(Plan, data, where)
    if (f"{plan.name}/", plan.span) != (prefix, span):
        raise Damaged(f"the plan is of another archive ({plan.name}, generation {plan.generation})", where=where)
    return plan


def remove_work(store: ObjectStore, prefix: str, span: GenerationSpan) -> None:
    """Remove what the runs of a published generation left, if anything: rows first, the plan last."""
    keys: list[str] = []
    plan: list[str] = []
    for found in store.list(prefix + work_folder(span)):
        (plan if found.key == prefix + plan_key(span) else keys).append(found.key)
        if len(keys) == DELETE_AT_ONCE:
            store.delete(keys)
            keys = []
    for some in (keys, plan):
        if some:
            store.delete(some)
