"""Report of *import*."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from common.report import Cost, GapReport, Report

__all__ = ["CopyReport", "ImportReport", "MovedBoundary", "TranslateReport", "Translation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedBoundary:
    """A key-range boundary that had to move so that the store numbers the segments as in the source.

    Attributes:
        epoch: the first epoch that has the boundary.
        source: its position in the source.
        target: its position in the target.
        ulps: the distance in units in the last place of a double.
    """

    epoch: int
    source: float
    target: float
    ulps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport(Report):
    """Result of an import.

    Attributes:
        stream: URI of the restored stream.
        archive: URI of the archive.
        generation: the newest restored generation.
        created: when the tail of that generation was taken, RFC 3339.
        at: the requested time, RFC 3339; empty if none was given.
        seconds_before: how long before `at` the tail was taken.
        resumed: True if an unfinished import was resumed.
        unchanged: True if the stream had been restored before.
        verified: True if every range was compared with the archive, or would be.
        events: events in the restored stream.
        bytes: bytes in the restored stream, with event headers, without filler.
        moved_bytes: bytes that this run appended, without filler.
        segments: number of segments of the restored stream.
        epochs: number of epochs of the restored stream.
        offsets: "keep" or "shift".
        shifts: segment name → by how many bytes its offsets are lower than in the archive.
        renumbered: archived segment → restored segment, of those whose numbers differ, e.g. ``0.#epoch.0``.
        moved_boundaries: see `MovedBoundary`.
        gaps: bytes that the archive does not have; with offsets kept, filler of the same length takes their place.
        warnings: what the user was warned of.
        seconds: as for an export.
        total_seconds: as for an export.
        dry_run: True if nothing was restored.
        cost: estimated S3 requests and prices, of a dry run.
    """

    stream: str
    archive: str
    generation: int
    created: str = ""
    at: str = ""
    seconds_before: float | None = None
    resumed: bool = False
    unchanged: bool = False
    verified: bool = False
    events: int = 0
    bytes: int = 0
    moved_bytes: int = 0
    segments: int = 0
    epochs: int = 0
    offsets: Literal["keep", "shift"] = "keep"
    shifts: Mapping[str, int] = field(default_factory=dict)
    renumbered: Mapping[str, str] = field(default_factory=dict)
    moved_boundaries: tuple[MovedBoundary, ...] = ()
    gaps: tuple[GapReport, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    total_seconds: float = 0.0
    dry_run: bool = False
    cost: Cost | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A position in the source and in the restored stream: a cut as a mapping, or an event pointer as text."""

    old: str | Mapping[str, int]
    new: str | Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslateReport(Report):
    """Result of translating positions.

    Attributes:
        source: what they belong to.
        stream: URI of the restored stream.
        positions: in the order given.
    """

    source: str
    stream: str
    positions: tuple[Translation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport(Report):
    """Result of copying a stream.

    Attributes:
        source: URI of the source.
        stream: URI of the copy.
        resumed: True if an unfinished copy was resumed.
        unchanged: True if the copy had been finished before.
        read_back: True if every byte was read back and compared.
        bytes: bytes in the copy, with event headers, without filler.
        moved_bytes: bytes that this run appended, without filler.
        behind_bytes: bytes that were written to the source since, if `unchanged`.
        segments: number of segments of the copy.
        epochs: number of epochs of the copy.
        head: the copy's head, in the source's segments and offsets.
        tail: the copy's tail, likewise.
        truncated: True if the source was truncated meanwhile, so that the copy begins later than planned.
        offsets: "keep" or "shift".
        shifts: segment name → by how many bytes its offsets are lower than in the source.
        renumbered: see `ImportReport`.
        moved_boundaries: see `MovedBoundary`.
        warnings: what the user was warned of.
        seconds: as for an export.
        total_seconds: as for an export.
        dry_run: True if nothing was copied.
    """

    source: str
    stream: str
    resumed: bool = False
    unchanged: bool = False
    read_back: bool = False
    bytes: int = 0
    moved_bytes: int = 0
    behind_bytes: int = 0
    segments: int = 0
    epochs: int = 0
    head: Mapping[str, int] = field(default_factory=dict)
    tail: Mapping[str, int] = field(default_factory=dict)
    truncated: bool = False
    offsets: Literal["keep", "shift"] = "keep"
    shifts: Mapping[str, int] = field(default_factory=dict)
    renumbered: Mapping[str, str] = field(default_factory=dict)
    moved_boundaries: tuple[MovedBoundary, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    total_seconds: float = 0.0
    dry_run: bool = False
