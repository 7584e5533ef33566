"""The plan of a generation and its rows: notes of finished spans, which no later run needs to move again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from streamvault.common.errors import Damaged
from streamvault.common.units import now_utc
from streamvault.layouts.archived_range import ArchivedRange, are_block_checksums
from streamvault.layouts.keys import GenerationSpan, Place, ended_key, parse_row, plan_key, row_key, work_folder
from streamvault.manifests.files import (
    NUMBER,
    Checksum,
    Count,
    Digest,
    File,
    Model,
    Moment,
    Offset,
    Positive,
    decide_file,
    decode,
    find_file,
    one_line,
)
from streamvault.manifests.manifest import FORMAT, GapEntry, GenerationModel, Manifest, PlannedSegment, SegmentEntry
from streamvault.objectstore.bulk import delete_all, get_all
from streamvault.objectstore.store import SMALL, NoSuchObject, ObjectInfo
from streamvault.streamstore.model import HEADER_BYTES, SegmentId


class Plan(GenerationModel):
    """What a generation will contain. `gaps` are those known in advance (truncated since the previous generation)."""

    format: Annotated[Literal[1, 2], NUMBER] = FORMAT
    range_size: Positive
    segments: tuple[PlannedSegment, ...]
    gaps: tuple[GapEntry, ...]
    sealed: bool

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return the plan that an export of a generation would have had."""
        segments = tuple(PlannedSegment(**dict(entry)) for entry in manifest.segments)
        return cls(**dict(manifest) | {"segments": segments})

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
        counts = {"events": sum(one.events for one in held), "bytes": sum(one.bytes for one in held)}
        return Manifest(**dict(self) | counts | {"segments": held, "gaps": tuple(gaps), "tool": tool})

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


class RangeEntry(Model):
    """An archived range: contiguous events.

    `digest` is the SHA-256 of the segment's bytes from `start` to `end`; `frames` are the sizes of a compressed
    object's frames; `crc64nvme` is the checksum of the object's bytes, and `block_checksums` has those of the segment's
    bytes (see `ArchivedRange`); both are empty if there is more than one object.
    """

    start: Offset
    end: Offset
    events: Count
    digest: Digest
    frames: tuple[Count, ...] = ()
    crc64nvme: Checksum = ""
    block_checksums: str = ""

    @model_validator(mode="after")
    def _has_checksums_of_its_size(self) -> Self:
        if self.block_checksums and not are_block_checksums(self.block_checksums, self.end - self.start):
            raise ValueError("a range has invalid checksums of blocks")
        return self

    def of_segment(self, segment: SegmentId) -> ArchivedRange:
        """Return the row for the index."""
        return ArchivedRange(segment, **dict(self))


class Gap(Model):
    """Bytes that were truncated during the run."""

    start: Offset
    end: Offset
    reason: str


class FinishedSpan(File):
    """A finished span: usually one range; ranges and gaps if the source was truncated meanwhile.

    Attributes:
        start: offset of its first event, which is also in the row's key.
        end: start of the next one.
        ranges: the archived events, in order; ``pieces`` in the file.
        gaps: the truncated bytes, in order. A gap that ends at `start` means that it begins at the source's new head.
    """

    start: Offset
    end: Offset
    ranges: Annotated[tuple[RangeEntry, ...], Field(alias="pieces")]
    gaps: tuple[Gap, ...] = ()

    @property
    def events(self) -> int:
        """Number of archived events."""
        return sum(each.events for each in self.ranges)

    @property
    def bytes(self) -> int:
        """Number of archived segment bytes."""
        return sum(each.end - each.start for each in self.ranges)

    @property
    def follows_truncation(self) -> bool:
        """Whether everything before `start` has been truncated at the source."""
        return any(gap.end == self.start for gap in self.gaps)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        inside = [(gap.start, gap.end) for gap in self.gaps if gap.end != self.start]
        at = self.start
        for start, end in sorted([*inside, *((each.start, each.end) for each in self.ranges)]):
            if start != at or end < start:
                raise ValueError(f"ranges and gaps are not contiguous at {at}")
            at = end
        if at != self.end:
            raise ValueError(f"ranges and gaps end at {at}, the span at {self.end}")
        if any(each.events * HEADER_BYTES > each.end - each.start for each in self.ranges):
            raise ValueError("a range has more events than fit its size")
        return self


def leave_row(
    place: Place, span: GenerationSpan, segment: SegmentId, row: FinishedSpan, *, attempt: int = 1
) -> FinishedSpan:
    """Write a row, create-only; return the row in the store, which is another run's if that was first.

    Raises:
        Damaged: the existing row cannot be read.
    """
    store, prefix = place
    key = prefix + row_key(span, segment, row.start, attempt)
    return _checked_row(decide_file(store, key, row)[0], row.start, f"{store.uri}/{key}")


def find_rows(place: Place, span: GenerationSpan, *, attempt: int = 1) -> Iterator[tuple[SegmentId, FinishedSpan]]:
    """Yield the rows of a generation, in the stream's order; many are read concurrently.

    They end early if another run publishes the generation and deletes its rows meanwhile.

    Raises:
        Damaged: a row cannot be read.
    """
    store, prefix = place
    sized = ((found.key, min(found.size, SMALL)) for found in _listed(place, span, attempt))
    try:
        for name, data in get_all(store, sized):
            key = parse_row(name.removeprefix(prefix))
            if key is not None:
                where = f"{store.uri}/{name}"
                yield key.segment, _checked_row(decode(FinishedSpan, data, where), key.offset, where)
    except NoSuchObject:
        return


def count_rows(place: Place, span: GenerationSpan, *, attempt: int) -> int:
    """Return the number of a generation's rows: one LIST for a thousand, and none is read."""
    return sum(1 for _ in _listed(place, span, attempt))


def _listed(place: Place, span: GenerationSpan, attempt: int) -> Iterator[ObjectInfo]:
    store, prefix = place
    for found in store.list(prefix + work_folder(span, attempt)):
        if (key := parse_row(found.key.removeprefix(prefix))) is not None and key.attempt == attempt:
            yield found


def _checked_row(row: FinishedSpan, start: int, where: str) -> FinishedSpan:
    if row.start != start:
        raise Damaged(f"the row belongs to a range that starts at {row.start}", where=where)
    return row
