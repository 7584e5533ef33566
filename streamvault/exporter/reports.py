"""Reports of the *export* and *convert* commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamvault.common.report import CarriedGroup, Cost, GapReport, RunReport, TimedReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport(RunReport):
    """Result of an export.

    Attributes:
        archive: the archive's URI.
        generation: the newest generation after the export.
        created: when that generation was planned, right after the stream's tail was taken, RFC 3339; empty in a dry
            run.
        unchanged: whether there was nothing new and nothing was written.
        resumed: whether an unfinished or concurrent run was joined, by its plan.
        resumes: the options of that plan; None if there was none.
        gave_up: the options of the unfinished plan that was given up (`restart`); None if there was none.
        events: number of events of this generation; 0 if unchanged.
        events_estimated: whether `events` and `ranges` are estimated from a sample of the stream, in a dry run.
        bytes: number of bytes of this generation, event headers included; 0 if unchanged.
        moved_bytes: the bytes moved by this run; the rest was moved by earlier runs.
        ranges: number of ranges of this generation.
        fingerprint: SHA-256 of the newest generation's manifest, hexadecimal; empty if it is still to be written.
        gaps: what was truncated before it could be archived.
        reader_groups: the reader groups that the newest generation has noted, each with its position in the stream.
        cost: the estimated cost, in a dry run.
    """

    archive: str
    generation: int
    created: str = ""
    unchanged: bool = False
    resumed: bool = False
    resumes: dict[str, Any] | None = None
    gave_up: dict[str, Any] | None = None
    events: int = 0
    events_estimated: bool = False
    bytes: int = 0
    moved_bytes: int = 0
    ranges: int = 0
    fingerprint: str = ""
    gaps: tuple[GapReport, ...] = ()
    reader_groups: tuple[CarriedGroup, ...] = ()
    cost: Cost | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport(TimedReport):
    """Result of a conversion.

    Attributes:
        archive: URI of the new archive.
        source: URI of the old archive.
        generations: the generations of the old archive.
        converted: the generations written by this run.
        unchanged: whether all of them already existed.
        resumes: the options of the unfinished plan that was resumed; None if there was none.
        gave_up: the options of the unfinished plan that was given up (`restart`); None if there was none.
        events: number of events in all generations.
        bytes: number of bytes in all generations, event headers included.
        moved_bytes: the bytes written by this run.
        ranges: number of ranges of the written generations.
        dry_run: whether nothing was written.
        cost: the estimated cost, in a dry run.
    """

    archive: str
    source: str
    generations: tuple[int, ...]
    converted: tuple[int, ...]
    unchanged: bool = False
    resumes: dict[str, Any] | None = None
    gave_up: dict[str, Any] | None = None
    events: int = 0
    bytes: int = 0
    moved_bytes: int = 0
    ranges: int = 0
    dry_run: bool = False
    cost: Cost | None = None
