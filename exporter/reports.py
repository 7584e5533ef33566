"""What *export* and *convert* return."""

from __future__ import annotations

from dataclasses import dataclass, replace

from common.report import Cost, GapReport, Report

__all__ = ["ConvertReport", "ExportReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport(Report):
    """What an export did.

    Attributes:
        archive: URI of the archive.
        generation: the generation that now is the newest.
        unchanged: True if there was nothing new and nothing was written.
        adopted: True if the plan of an unfinished or concurrent run was taken up.
        events, bytes: of this generation (bytes with event headers); 0 if unchanged.
        moved_bytes: of those, moved by this run; the rest was there from an earlier one.
        ranges: how many ranges the generation has.
        fingerprint: SHA-256 of its manifest, hexadecimal; empty if there is no new one.
        gaps: what was truncated away meanwhile.
        seconds: from the plan to the commit, without Spark's start.
        total_seconds: the whole call (the command line puts in the whole command).
        dry_run: True if nothing was written. cost: only then.
    """

    archive: str
    generation: int
    unchanged: bool = False
    adopted: bool = False
    events: int = 0
    bytes: int = 0
    moved_bytes: int = 0
    ranges: int = 0
    fingerprint: str = ""
    gaps: tuple[GapReport, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    total_seconds: float = 0.0
    dry_run: bool = False
    cost: Cost | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport(Report):
    """What a conversion did.

    Attributes:
        archive: URI of the new archive. source: of the old one.
        generations: that the old one has. converted: those of them that this run wrote.
        unchanged: True if all were there already.
        events, bytes: over all generations (bytes with event headers). moved_bytes: written by this run.
        ranges: of the generations that were written.
        seconds, total_seconds, dry_run, cost: as for an export.
    """

    archive: str
    source: str
    generations: tuple[int, ...]
    converted: tuple[int, ...]
    unchanged: bool = False
    events: int = 0
    bytes: int = 0
    moved_bytes: int = 0
    ranges: int = 0
    seconds: float = 0.0
    total_seconds: float = 0.0
    dry_run: bool = False
    cost: Cost | None = None

    def timed(self, total: float, start: float, moved_bytes: int = 0) -> ConvertReport:
        """The same with its times (seconds): in all, and of that the start of Spark; and what was written."""
        return replace(self, seconds=round(total - start, 3), total_seconds=round(total, 3), moved_bytes=moved_bytes)
