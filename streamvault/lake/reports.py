"""Report of *handoff*."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from streamvault.common.report import Cost, GapReport, Report

__all__ = ["HandoffReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffReport(Report):
    """Result of a handoff.

    Attributes:
        archive: URI of the archive; empty if the table is made from a stream.
        table: ``DATABASE.NAME``.
        location: URI of the table's folder.
        format: iceberg or parquet.
        stream: URI of the stream; empty if the table is made from an archive.
        columns: the table's columns.
        generations: the table's generations.
        added: the generations that this run added.
        registered: the generations that this run registered in the catalog.
        raw_segments: number of partitions that this run added to the table over raw events.
        events: events of the added generations; an estimate in a dry run on a stream.
        bytes: segment bytes of the added generations, with event headers.
        gaps: bytes of the stream that were truncated before the handoff.
        moved_bytes: segment bytes that this run wrote; an earlier run wrote the others.
        files: number of files of the added generations.
        file_bytes: size of these files.
        undecoded: events written by this run whose payload could not be decoded; the column `_error` says why.
        undecoded_share: their share of the events that this run wrote, from 0 to 1.
        warnings: what the user was warned of.
        seconds: as for an export.
        total_seconds: as for an export.
        dry_run: True if nothing was written.
        cost: estimated S3 requests and prices, of a dry run.
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
    undecoded_share: float = 0.0
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
        """Return the report as JSON values, with `unchanged`."""
        return {**asdict(self), "unchanged": self.unchanged}

    def timed(self, total: float, start: float) -> HandoffReport:
        """Return a copy with the total time and Spark's start time within it (seconds)."""
        return replace(self, seconds=round(total - start, 3), total_seconds=round(total, 3))
