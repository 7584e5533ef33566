"""The plan of a generation: create-only, and shared by all runs of the generation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from streamvault.common.errors import Damaged
from streamvault.common.times import now_utc
from streamvault.layouts.object_keys import GenerationSpan, ended_key, plan_key, work_folder
from streamvault.layouts.place import Place
from streamvault.manifests.format.entries import GapEntry, PlannedSegment, SegmentEntry
from streamvault.manifests.format.field_types import Moment
from streamvault.manifests.format.jsonfile import File, decide_file, find_file, one_line
from streamvault.manifests.format.manifest import GenerationModel, Manifest
from streamvault.objectstore.bulk import delete_all


class Plan(GenerationModel):
    """What a generation will contain. `gaps` are those known in advance (truncated since the previous generation)."""

    format: Literal[1] = 1
    range_size: Annotated[int, Field(ge=1)]
    segments: tuple[PlannedSegment, ...]
    gaps: tuple[GapEntry, ...]
    sealed: bool

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return the plan that an export of a generation would have had."""
        return cls(
            **manifest.in_common(),
            range_size=manifest.range_size,
            segments=tuple(
                PlannedSegment(name=entry.name, start=entry.start, end=entry.end, sealed=entry.sealed)
                for entry in manifest.segments
            ),
            gaps=manifest.gaps,
            sealed=manifest.sealed,
        )

    @property
    def bytes(self) -> int:
        """Number of segment bytes between the cuts."""
        return sum(segment.end - segment.start for segment in self.segments)

    def manifest(self, segments: Iterable[SegmentEntry], gaps: Iterable[GapEntry], tool: str) -> Manifest:
        """Return the manifest of the generation made by this plan.

        Args:
            segments: the archived part of each planned segment.
            gaps: the plan's gaps, and those found later.
            tool: name and version of the program.
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
        self.check_segments(self.segments, self.gaps)
        return self


class Ended(File):
    """The record of how the plan of an attempt ended: everything is archived, or it can never be finished.

    The first to create it decides. So no index is written by an abandoned attempt, and no attempt is abandoned that may
    be published.

    Attributes:
        reason: why it can never be finished; empty if everything is archived. If given, rows and objects are kept, and
            the next plan is another attempt.
    """

    format: Literal[1] = 1
    generation: Annotated[int, Field(ge=1)]
    attempt: Annotated[int, Field(ge=1)]
    created: Moment = Field(default_factory=now_utc)
    reason: str


def current_plan(place: Place, span: GenerationSpan) -> tuple[Plan | None, int]:
    """Return the current plan of a generation, or None, and the number of its attempt or of the next one.

    Raises:
        Damaged: as for `find_plan`.
    """
    attempt = 1
    while True:
        plan = find_plan(place, span, attempt=attempt)
        if plan is None or (ended := _find_end(place, span, attempt)) is None or not ended.reason:
            return plan, attempt
        attempt += 1


def ended_plans(place: Place, span: GenerationSpan, attempt: int) -> Iterator[Plan]:
    """Yield the plans of the attempts before this one; their runs have written to the same folders.

    Raises:
        Damaged: as for `find_plan`.
    """
    plans = (find_plan(place, span, attempt=earlier) for earlier in range(1, attempt))
    return (plan for plan in plans if plan is not None)


def end_plan(place: Place, span: GenerationSpan, attempt: int, reason: str = "") -> str:
    """Record how a plan ended, create-only. Nothing is deleted.

    Args:
        place: the archive.
        span: the plan's generation.
        attempt: the plan's attempt.
        reason: why it can never be finished; empty if everything is archived.

    Returns:
        The recorded reason, which is another run's if that was first.
    """
    key = place.prefix + ended_key(span, attempt)
    ended = Ended(generation=span.last, attempt=attempt, reason=one_line(reason))
    return decide_file(place.store, key, ended)[0].reason


def has_ended(place: Place, span: GenerationSpan, attempt: int) -> bool:
    """Return whether there is a record of how a plan ended."""
    return _find_end(place, span, attempt) is not None


def _find_end(place: Place, span: GenerationSpan, attempt: int) -> Ended | None:
    return find_file(Ended, place.store, place.prefix + ended_key(span, attempt))


def create_plan(place: Place, plan: Plan, attempt: int = 1) -> tuple[Plan, bool]:
    """Write a plan, create-only; return the plan in the store, and whether it is this one.

    Raises:
        Damaged: the existing plan cannot be read.
    """
    key = place.prefix + plan_key(plan.span, attempt)
    held, created = decide_file(place.store, key, plan)
    return _checked(held, place, plan.span, key), created


def find_plan(place: Place, span: GenerationSpan, *, attempt: int = 1) -> Plan | None:
    """Return the plan of an unfinished (or running) generation, or None.

    Raises:
        Damaged: the file is not a plan of this archive and generation.
    """
    key = place.prefix + plan_key(span, attempt)
    plan = find_file(Plan, place.store, key)
    return None if plan is None else _checked(plan, place, span, key)


def _checked(plan: Plan, place: Place, span: GenerationSpan, key: str) -> Plan:
    if (f"{plan.name}/", plan.span) != (place.prefix, span):
        what = f"the plan belongs to another archive ({plan.name}, generation {plan.generation})"
        raise Damaged(what, where=place.at(key))
    return plan


def remove_work(place: Place, span: GenerationSpan) -> None:
    """Delete the work files of a published generation: rows first, the plan last."""
    plan: list[str] = []

    def all_but_the_plan() -> Iterator[str]:
        for found in place.store.list(place.prefix + work_folder(span)):
            if found.key == place.prefix + plan_key(span):
                plan.append(found.key)
            else:
                yield found.key

    delete_all(place.store, all_but_the_plan())
    delete_all(place.store, plan)
