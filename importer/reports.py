"""What *import* returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from common.report import Cost, GapReport, Report

__all__ = ["ImportReport", "MovedBoundary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedBoundary:
    """A key-range boundary that had to move so that the store numbers the segments as the source did.

    Attributes:
        epoch: in which the boundary appears.
        source: where the source has it. target: where the target has it. ulps: by how many steps of a double it moved.
    """

    epoch: int
    source: float
    target: float
    ulps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport(Report):
    """What an import did.

    Attributes:
        stream: URI of the restored stream.
        archive: URI of the archive.
        generation: the newest generation that was restored.
        created: when the tail of that generation was taken, RFC 3339.
        at: the moment that was asked for, if one was; seconds_before: how long before it the tail was taken.
        resumed: True if an unfinished import was gone on with.
        unchanged: True if the stream had been restored before and was only verified (see `import_stream`, ``again``).
        events, bytes: in the restored stream (bytes with event headers, filler not counted).
        moved_bytes: of those, appended by this run.
        segments, epochs: how many the restored stream has.
        offsets: "keep" or "shift". shifts: segment name → bytes that every offset moved down by.
        moved_boundaries: see `MovedBoundary`.
        gaps: bytes the archive does not have; filler of the same length stands there.
        seconds, total_seconds, dry_run, cost: as for an export.
    """

    stream: str
    archive: str
    generation: int
    created: str = ""
    at: str = ""
    seconds_before: float | None = None
    resumed: bool = False
    unchanged: bool = False
    events: int = 0
    bytes: int = 0
    moved_bytes: int = 0
    segments: int = 0
    epochs: int = 0
    offsets: Literal["keep", "shift"] = "keep"
    shifts: Mapping[str, int] = field(default_factory=dict)
    moved_boundaries: tuple[MovedBoundary, ...] = ()
    gaps: tuple[GapReport, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    total_seconds: float = 0.0
    dry_run: bool = False
    cost: Cost | None = None
