"""What *ls*, *check*, *warm*, *hold*, *release* and *timeline* return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from common.report import Report

__all__ = ["ArchiveSummary", "CheckReport", "HoldReport", "Timeline", "TimelineEntry", "WarmReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSummary(Report):
    """One line of `ls`: an archive and its newest generation.

    Attributes:
        archive: URI. stream: ``scope/stream``. generations: how many there are (merged ones as one).
        table: the table's name, if it is one that a handoff made beside or from the archive; else empty.
        generation: the newest.
        first_generation: the oldest that has not expired.
        created: of the newest, RFC 3339. events, bytes: over all generations. layout: of the newest, or ``table``.
        problem: why the archive cannot be read; empty if it can.
    """

    archive: str
    stream: str
    generations: int = 0
    first_generation: int = 0
    generation: int = 0
    created: str = ""
    events: int = 0
    bytes: int = 0
    layout: str = ""
    problem: str = ""
    table: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport(Report):
    """What a check found.

    Attributes:
        archive: URI. generations: the generations checked.
        ok: True if nothing is missing or changed.
        ranges: how many ranges there are. ranges_read: of how many the data was read and compared.
        events, bytes: what the manifests promise.
        findings: one line for each damage found, at most 1,000. more_findings: how many more there are.
        strays: objects that belong to nothing; they harm nobody. stray_keys: of the first hundred, below the root.
        removed: how many of them ``--repair`` deleted.
        fingerprints: generation → SHA-256 of its manifest, hexadecimal.
        notes: what is not damage but good to know (an unfinished run's objects).
        seed: of the sample, with ``--read-data-subset``.
    """

    archive: str
    generations: tuple[int, ...]
    ok: bool
    ranges: int = 0
    ranges_read: int = 0
    events: int = 0
    bytes: int = 0
    findings: tuple[str, ...] = ()
    more_findings: int = 0
    strays: int = 0
    stray_keys: tuple[str, ...] = ()
    removed: int = 0
    fingerprints: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seed: int | None = None
    seconds: float = 0.0
    total_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmReport(Report):
    """How far an archive is back from an archive class.

    Attributes:
        archive: URI.
        cold, bytes: objects that could not be read when this began, and their size in S3.
        asked: of them, those that S3 was asked for now (it was asked for the others before).
        readable: whether everything can be read now.
        dry_run: True if nothing was asked for.
    """

    archive: str
    cold: int = 0
    bytes: int = 0
    asked: int = 0
    readable: bool = True
    total_seconds: float = 0.0
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldReport(Report):
    """What putting on or taking off a hold did.

    Attributes:
        archive: URI. name: of the hold. generations: that it was put on or taken off.
        unchanged: True if it was there already.
        dry_run: True if nothing was written.
    """

    archive: str
    name: str
    generations: tuple[int, ...]
    unchanged: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """A generation in force.

    Attributes:
        generation: its number. first: of a merged one, the first that it stands for; else its number.
        created: when its tail was taken, RFC 3339.
        start, end: its cuts, each full segment name → offset; ``from`` and ``to`` in JSON, as in a manifest.
        layout, events, bytes: as in its manifest.
        holds: names. checked: when its data were read back by a rotation, RFC 3339; empty if they were not.
    """

    generation: int
    first: int
    created: str
    start: Mapping[str, int]
    end: Mapping[str, int]
    layout: str
    events: int
    bytes: int
    holds: tuple[str, ...] = ()
    checked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline(Report):
    """An archive's generations in force, oldest first.

    Attributes:
        archive: URI. stream: ``scope/stream``.
        expired: the newest generation that has expired; 0 if none has.
        generations: the others.
    """

    archive: str
    stream: str
    expired: int
    generations: tuple[TimelineEntry, ...]

    def to_json(self) -> dict[str, Any]:
        """See `Report.to_json`."""
        names = {"start": "from", "end": "to"}
        entries = [{names.get(name, name): value for name, value in asdict(g).items()} for g in self.generations]
        return {**asdict(self), "generations": entries}
