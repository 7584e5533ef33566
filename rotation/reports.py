"""What *rotate*, *compact* and *follow* return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.report import Report
from exporter.reports import ExportReport

__all__ = ["CompactReport", "CompactedRun", "FollowReport", "FollowedGeneration", "RotateReport", "StoppedReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedReport:
    """The generation that was to expire and has to stay, and with it all after it.

    Attributes:
        generation: its number. reason: which hold, or which lock of which object. until: RFC 3339; empty if unknown.
    """

    generation: int
    reason: str
    until: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotateReport(Report):
    """What a rotation did.

    Attributes:
        archive: URI.
        export: what the export did.
        generation: the newest. first_generation: the oldest that is left.
        hold: the name of the hold that is on the newest generation, if one was asked for.
        checked: generations whose data were read back now. ranges_read: how many ranges that were.
        expired: generations that expired now. stopped: what kept the next one from it.
        objects_deleted: data objects; requests: LIST, PUT and bulk DELETE requests of that.
        resumed: True if an earlier run had left a deletion unfinished.
        queued: the newest generation that has expired, if its deletion and that of all before it was put into a queue.
        truncated: True if the source's head is now at `cut` or was beyond it. cut: the end of what is archived and
            checked, if truncating was asked for.
        seconds, total_seconds: as for an export.
        dry_run: True if nothing was written; the rest then says what would be done.
    """

    archive: str
    export: ExportReport
    generation: int
    first_generation: int
    hold: str = ""
    checked: tuple[int, ...] = ()
    ranges_read: int = 0
    expired: tuple[int, ...] = ()
    stopped: StoppedReport | None = None
    objects_deleted: int = 0
    requests: int = 0
    resumed: bool = False
    queued: tuple[int, ...] = ()
    truncated: bool = False
    cut: Mapping[str, int] | None = None
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    total_seconds: float = 0.0
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedRun:
    """Generations that were merged.

    Attributes:
        first, generation: the first and the last original one; the latter is the merged one's number.
        merged: how many pieces became one. events, bytes: of all of them (bytes with event headers).
    """

    first: int
    generation: int
    merged: int
    events: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport(Report):
    """What a compaction did.

    Attributes:
        archive: URI.
        runs: what was merged. unchanged: True if nothing was. resumed: how many of these an earlier run had begun.
        moved_bytes: segment bytes that were read and written again. joined: chunks that were made of several.
        generations: in force now, merged ones as one.
        objects_deleted: data objects of what earlier compactions had replaced. waits_until: when the next of these may
            be deleted, RFC 3339; empty if nothing waits.
        seconds, total_seconds: as for an export.
        dry_run: True if nothing was written; the rest then says what would be done.
    """

    archive: str
    runs: tuple[CompactedRun, ...] = ()
    unchanged: bool = False
    resumed: int = 0
    moved_bytes: int = 0
    joined: int = 0
    generations: int = 0
    objects_deleted: int = 0
    waits_until: str = ""
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    total_seconds: float = 0.0
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedGeneration:
    """A generation that was made while a stream was followed.

    Attributes:
        generation: its number. events, bytes: that it has. seconds: from its plan to its commit.
    """

    generation: int
    events: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowReport(Report):
    """What following a stream did.

    Attributes:
        archive: URI. generation: the newest.
        ended: why: ``"idle"``, ``"time"`` or ``"sealed"``.
        rounds: how often the stream was looked at. made: how many generations that made. events, bytes: of all these.
        retries: how often something was tried again because a server was away.
        newest: the last of them, a hundred at most.
        merges: how often neighbours were merged. moved_bytes: segment bytes that were read and written again for it.
        pieces: generations in force now, merged ones as one.
        expired: how many generations have expired meanwhile. objects_deleted: data objects of these and of what was
            replaced.
        cut: up to where the source is truncated, if that was asked for.
        seconds, total_seconds: as for an export.
    """

    archive: str
    generation: int
    ended: str
    rounds: int = 0
    retries: int = 0
    made: int = 0
    events: int = 0
    bytes: int = 0
    newest: tuple[FollowedGeneration, ...] = ()
    merges: int = 0
    moved_bytes: int = 0
    pieces: int = 0
    expired: int = 0
    objects_deleted: int = 0
    cut: Mapping[str, int] | None = None
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    total_seconds: float = 0.0
