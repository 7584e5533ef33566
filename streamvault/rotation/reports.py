"""Options and reports of *rotate*, *follow* and *compact*."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from streamvault.common.errors import Usage
from streamvault.common.options import AGE, TIME, CommandLine, Rehearsed, moment
from streamvault.common.report import CarriedGroup, RunReport, TimedReport
from streamvault.common.units import LONGEST_SECONDS, parse_moment
from streamvault.common.waiting import Ended
from streamvault.exporter.reports import ExportReport
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.deleting import ExpiryRule
from streamvault.manifests.options import (
    GRACE,
    TARGET,
    ArchivingOptions,
    Every,
    Grace,
    Restart,
    RoundOptions,
    StorageClass,
    TargetBytes,
    Window,
)
from streamvault.runner.opening import Distributed

EVERY = 10.0
"""Seconds between two checks for new events."""

Keep = Annotated[
    int | None,
    Field(ge=1, description="Expire all but the N newest generations with data."),
    CommandLine(metavar="N").destroying(),
]
KeepFor = Annotated[
    float | None,
    Field(
        ge=0,
        le=LONGEST_SECONDS,
        description="Expire generations that are older than the newest by more than this: 90d, 2w or 36h. If less than "
        "an hour, write it twice: '30m 30m'.",
    ),
    AGE.destroying(),
]
TruncateSource = Annotated[
    bool,
    Field(description="Truncate the stream up to the end of the archived and verified data."),
    CommandLine().destroying(),
]


class RotateOptions(ArchivingOptions, Distributed, Rehearsed):
    """Options of *rotate*."""

    scoped: ClassVar = {"stream": "stream"}
    measured: ClassVar = True

    keep: Keep = None
    keep_for: KeepFor = None
    until: Annotated[
        str | datetime | None,
        moment("--until"),
        Field(description="Expire generations taken at or before this time, e.g. 2026-01-31T18:00:00Z."),
        TIME.destroying(),
    ] = None
    truncate_source: TruncateSource = False
    hold: Annotated[str, Field(description="Place a hold on the newest generation."), CommandLine(metavar="NAME")] = ""
    queue: Annotated[
        str, Field(description="Queue deletions for a worker instead of deleting now."), CommandLine(metavar="QUEUE")
    ] = ""
    restart: Restart = False

    @property
    def rule(self) -> ExpiryRule:
        """By which generations expire."""
        until = None if self.until is None else parse_moment(self.until, "--until")
        return ExpiryRule(self.keep, self.keep_for, until)

    @model_validator(mode="after")
    def _check_expiry(self) -> Self:
        _check_one(self.keep, self.keep_for, self.until)
        return self


class FollowOptions(RoundOptions, ArchivingOptions, Distributed):
    """Options of *follow*."""

    scoped: ClassVar = {"stream": "stream"}
    measured: ClassVar = True

    rotate: Annotated[
        bool,
        Field(description="Rotate each time: read back new generations, expire old ones, truncate if requested."),
    ] = False
    keep: Keep = None
    keep_for: KeepFor = None
    truncate_source: TruncateSource = False
    every: Every = EVERY
    target: TargetBytes = TARGET
    grace: Grace = GRACE

    @model_validator(mode="after")
    def _check_expiry(self) -> Self:
        _check_one(self.keep, self.keep_for)
        return self

    @property
    def follows(self) -> bool:
        """See the base class."""
        return True

    @property
    def rotates(self) -> bool:
        """Whether each round rotates: `rotate` is given, or an option that only a rotation has."""
        return self.rotate or self.keep is not None or self.keep_for is not None or self.truncate_source


class CompactOptions(Distributed, Rehearsed):
    """Options of *compact*."""

    target: TargetBytes = TARGET
    at_least: Annotated[
        int, Field(ge=2, description="Merge runs of at least this many generations."), CommandLine(metavar="N")
    ] = 2
    grace: Grace = GRACE
    storage_class: StorageClass = ""
    window: Window = WINDOW


def _check_one(*given: object) -> None:
    if sum(value is not None for value in given) > 1:
        raise Usage("--keep, --keep-for and --until are mutually exclusive", todo="Give only one of them.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedReport:
    """The generation that the policy lets expire, but that must stay, with all after it.

    Attributes:
        generation: its number.
        reason: what keeps it: a hold, the lock of an object, or a doubtful clock.
        until: until when it is locked, RFC 3339; empty if unknown.
    """

    generation: int
    reason: str
    until: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotateReport(RunReport):
    """Result of a rotation.

    Attributes:
        archive: URI of the archive.
        export: report of the export.
        generation: the newest generation.
        first_generation: the oldest generation that has not expired.
        hold: name of the hold put on the newest generation, if one was requested.
        checked: generations whose data were read back by this run.
        ranges_read: number of ranges read back.
        ranges_compared: number of ranges that were read from the source once more, before it lost them, since this run
            had not archived or not read them back itself.
        expired: generations that expired in this run.
        stopped: the generation that had to stay although the policy lets it expire.
        objects_deleted: number of deleted data objects.
        requests: LIST, PUT and bulk DELETE requests of the deletion.
        resumed: True if an earlier run had left a deletion unfinished.
        queued: the newest expired generation, if the deletion of its data and of all before was queued.
        truncated: True if the source's head is now at `cut`, or was already beyond it.
        cut: the end of the archived and checked data, if truncating was requested.
    """

    archive: str
    export: ExportReport
    generation: int
    first_generation: int
    hold: str = ""
    checked: tuple[int, ...] = ()
    ranges_read: int = 0
    ranges_compared: int = 0
    expired: tuple[int, ...] = ()
    stopped: StoppedReport | None = None
    objects_deleted: int = 0
    requests: int = 0
    resumed: bool = False
    queued: tuple[int, ...] = ()
    truncated: bool = False
    cut: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedRun:
    """A run of adjacent generations that were merged into one.

    Attributes:
        first: the first original generation.
        generation: the last original generation, which is the merged one's number.
        merged: how many generations became one; merged ones count once.
        events: events of all of them.
        bytes: bytes of all of them, with event headers.
    """

    first: int
    generation: int
    merged: int
    events: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport(RunReport):
    """Result of a compaction.

    Attributes:
        archive: URI of the archive.
        runs: the merged runs.
        unchanged: True if nothing was merged.
        resumed_runs: how many of the runs an earlier call had begun.
        moved_bytes: segment bytes that were rewritten.
        joined: number of chunks written.
        generations_in_force: number of generations in force now; merged ones count once.
        objects_deleted: deleted data objects that earlier compactions had replaced.
        waits_until: when the next replaced objects may be deleted, RFC 3339; empty if there are none.
    """

    archive: str
    runs: tuple[CompactedRun, ...] = ()
    unchanged: bool = False
    resumed_runs: int = 0
    moved_bytes: int = 0
    joined: int = 0
    generations_in_force: int = 0
    objects_deleted: int = 0
    waits_until: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedGeneration:
    """A generation published by `follow`.

    Attributes:
        generation: its number.
        events: number of its events.
        bytes: its bytes, with event headers.
        seconds: from its plan to its commit.
    """

    generation: int
    events: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowReport(TimedReport):
    """Result of `follow`.

    Attributes:
        archive: URI of the archive.
        generation: the newest generation.
        ended: why it ended: no new events for a while (idle), the time is over, or the stream is sealed and archived.
        rounds: number of rounds.
        retries: number of retries because a server was unavailable.
        made: number of published generations.
        events: events of these generations.
        bytes: bytes of these generations, with event headers.
        newest: the last of these generations, at most 100.
        merges: number of merges.
        moved_bytes: segment bytes that merges rewrote.
        generations_in_force: number of generations in force now; merged ones count once.
        expired_count: number of generations that expired.
        objects_deleted: deleted data objects, of expired and of merged generations.
        cut: the stream cut to which the source was truncated, if that was requested.
        reader_groups: the reader groups that the newest generation has noted, each with its position in the stream.
        warnings: the last warnings, at most 100.
    """

    archive: str
    generation: int
    ended: Ended
    rounds: int = 0
    retries: int = 0
    made: int = 0
    events: int = 0
    bytes: int = 0
    newest: tuple[FollowedGeneration, ...] = ()
    merges: int = 0
    moved_bytes: int = 0
    generations_in_force: int = 0
    expired_count: int = 0
    objects_deleted: int = 0
    cut: Mapping[str, int] | None = None
    reader_groups: tuple[CarriedGroup, ...] = ()
    warnings: tuple[str, ...] = ()
