"""What *handoff* returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from common.report import Cost, GapReport, Report

__all__ = ["HandoffReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffReport(Report):
    """What a handoff did.

    Attributes:
        archive: URI; empty if the table is made of a stream, of which `stream` is the URI then.
        table: ``DATABASE.NAME``. location: URI of the table's folder. format: iceberg or parquet.
        columns: of the table.
        generations: that the table has now. added: those of them that this run wrote.
        registered: generations that the catalog was told of by this run.
        raw_segments: partitions that the table over raw events got by this run.
        events, bytes: of the generations added (bytes of the segments, with event headers); an estimate of the events,
            if it is a dry run on a stream.
        gaps: what a stream had lost before it could be handed off.
        moved_bytes: of those, written by this run; the rest was there from an earlier one.
        files: that the generations added have. file_bytes: their size.
        undecoded: events among those that this run wrote whose payload did not decode; `_error` says why.
        seconds, total_seconds, dry_run, cost: as for an export.
    """

    archive: str
    table: str
    location: str
    format: str
    stream: str = ""
    columns: tuple[str, ...] = ()
    generations: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    registered: tuple[int, ...] = ()
    raw_segments: int = 0
    events: int = 0
    bytes: int = 0
    gaps: tuple[GapReport, ...] = ()
    moved_bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    undecoded: int = 0
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    total_seconds: float = 0.0
    dry_run: bool = False
    cost: Cost | None = None

    @property
    def unchanged(self) -> bool:
        """Whether there was nothing to do."""
        return not (self.added or self.registered or self.raw_segments)

    def to_json(self) -> dict[str, Any]:
        """With `unchanged`."""
        return {**asdict(self), "unchanged": self.unchanged}

    def timed(self, total: float, start: float) -> HandoffReport:
        """The same with its times (seconds): in all, and of that the start of Spark."""
        return replace(self, seconds=round(total - start, 3), total_seconds=round(total, 3))
