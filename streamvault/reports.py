"""What each verb returns: small frozen values, the same for the command line's ``--json``, the DAGs and users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

__all__ = [
    "ArchiveSummary",
    "CheckReport",
    "CompactReport",
    "CompactedRun",
    "ConvertReport",
    "Cost",
    "ExportReport",
    "FollowReport",
    "FollowedGeneration",
    "GapReport",
    "HandoffReport",
    "HoldReport",
    "ImportReport",
    "MovedBoundary",
    "Report",
    "RotateReport",
    "StoppedReport",
    "Timeline",
    "TimelineEntry",
    "WarmReport",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Base of the reports."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, keys as the attributes are called."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a run asks of S3, from its plan.

    Attributes:
        objects: how many objects are written or read.
        objects_estimated: whether `objects` is an estimate from a sample of the stream.
        puts: PUT and LIST requests; gets: GET requests; deletes: bulk deletes are free.
        usd: list price of those requests, US dollars (S3 Standard, us-east-1: 0.005 per 1,000 PUT or LIST, 0.0004 per
            1,000 GET).
    """

    objects: int
    objects_estimated: bool
    puts: int
    gets: int
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GapReport:
    """Bytes that were truncated away before they could be archived."""

    segment: str
    start: int
    end: int
    reason: str


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
