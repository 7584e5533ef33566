"""Reports of the *ls*, *check*, *warm*, *hold*, *release* and *timeline* commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamvault.common.errors import Damaged
from streamvault.common.report import Report, RunReport, TimedReport, charts_of, html_of
from streamvault.manifests.damage import Lost, lost_text
from streamvault.manifests.history import History


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSummary(Report):
    """An archive or table in the output of `ls`.

    Attributes:
        archive: the archive's URI.
        stream_name: the archived stream, ``scope/stream``.
        generations_in_force: number of generations in force; merged ones count once.
        first_generation: the oldest generation that has not expired.
        generation: the newest generation.
        created: time of the newest generation, RFC 3339.
        events: number of events in all generations.
        bytes: number of bytes in all generations.
        layout: layout of the newest generation, or ``table``.
        problem: why the archive cannot be read; empty if it can.
        table: the table's name, if it is a table that a handoff made; otherwise empty.
        unfinished_generation: number of a generation whose export has begun and is not finished; 0 if there is none.
        unchecked_generations: number of generations in force that have not been read back; 0 for a table.
        held_generations: number of generations in force that have a hold of their own.
        gap_bytes: number of bytes in gaps of all generations.
        being_deleted: whether `delete` has begun to delete the archive, and has not finished.
    """

    archive: str
    stream_name: str
    generations_in_force: int = 0
    first_generation: int = 0
    generation: int = 0
    created: str = ""
    events: int = 0
    bytes: int = 0
    layout: str = ""
    problem: str = ""
    table: str = ""
    unfinished_generation: int = 0
    unchecked_generations: int = 0
    held_generations: int = 0
    gap_bytes: int = 0
    being_deleted: bool = False

    def name_below(self, root: str) -> str:
        """Return the archive's address relative to a root's URI; if they are the same, its stream."""
        return self.archive.removeprefix(root).removeprefix("/") or self.stream_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveList(Report):
    """What `ls` prints as JSON.

    Attributes:
        archives: the archives, in the order of their paths.
        archive_tables: their tables, and those of streams.
    """

    archives: tuple[ArchiveSummary, ...]
    archive_tables: tuple[ArchiveSummary, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReport(RunReport):
    """Result of a deletion.

    Attributes:
        archive: the archive's URI.
        generations: numbers of the generations in force when the deletion began.
        unfinished_generations: numbers of the generations whose export or merge is not finished.
        resumed: whether an earlier run had begun the deletion.
        decision: the decision that says so, its time and user; empty otherwise.
        unchanged: whether an earlier run has deleted the archive, and nothing was left.
        objects: number of objects that are deleted, or were.
        bytes: their size in the store.
        tables: names of the archive's tables, which stay.
        foreign_objects: number of other objects below the archive's address, which stay.
        foreign_keys: keys of the first of them, relative to the root.
    """

    archive: str
    generations: tuple[int, ...] = ()
    unfinished_generations: tuple[int, ...] = ()
    resumed: bool = False
    decision: str = ""
    unchanged: bool = False
    objects: int = 0
    bytes: int = 0
    tables: tuple[str, ...] = ()
    foreign_objects: int = 0
    foreign_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageReport(Report):
    """Damage that a check found.

    Attributes:
        generation: the generation that holds the bytes; of a merged one, the original.
        cut: the stream cut at which this generation begins, full segment name → offset.
        segment: full name of the segment.
        start: offset of the first damaged byte.
        end: offset after the last one.
        lost_events: number of lost events; None if the range lacks several parts, and it is not known how many of its
            events are in this one.
        what: what is wrong.
    """

    generation: int
    cut: Mapping[str, int]
    segment: str
    start: int
    end: int
    lost_events: int | None
    what: str

    def __str__(self) -> str:
        lost = lost_text(self.lost_events, self.end - self.start)
        return f"{self.segment} bytes {self.start} to {self.end}: {self.what}; generation {self.generation}, {lost}"


def damage_reports(history: History, found: Iterable[Lost]) -> tuple[DamageReport, ...]:
    """Return each damage with the generation that holds it."""
    reports = []
    for lost in found:
        generation, cut = history.holder(lost.segment, lost.start)
        reports.append(
            DamageReport(
                generation=generation,
                cut=cut.to_json(),
                segment=lost.segment.in_stream(history.stream),
                start=lost.start,
                end=lost.end,
                lost_events=lost.events,
                what=lost.what,
            )
        )
    return tuple(reports)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport(TimedReport):
    """Result of a check.

    Attributes:
        archive: the archive's URI.
        generations: numbers of the checked generations.
        ok: whether nothing is missing or changed.
        ranges: number of ranges.
        ranges_read: number of ranges whose data were read and compared.
        checksums_compared: number of objects whose checksum in the store was compared with the index, with
            ``--stored-checksums``; None without.
        checksums_not_kept: number of objects that were not compared, because the store keeps no checksum of them.
        checksums_not_indexed: number of objects that were not compared, because the index has no checksum of them, or
            not of the kind that the store keeps.
        events: number of events by the manifests.
        bytes: number of bytes by the manifests.
        findings: one line for each damage, at most 1,000.
        damage: the same damages, with their fields.
        intact_generation: the newest generation before the first damage, which can be restored; 0 if there is none, or
            if only one generation was checked.
        restore: the command that restores what is intact; empty if nothing is damaged, or if only one generation was
            checked.
        more_findings: number of further damages.
        strays: number of strays, which are harmless.
        stray_keys: keys of the first hundred strays, relative to the root.
        removed: number of strays that ``--repair`` deleted.
        marked: numbers of the generations that this check has recorded as read back.
        fingerprints: generation → SHA-256 of its manifest, hexadecimal.
        unfinished_generation: number of a generation whose export has begun and is not finished; 0 if there is none, or
            if only one generation was checked.
        notes: remarks that are not damage (objects that were not checked).
        seed: seed of the sample, with ``--read-data-subset``.
    """

    archive: str
    generations: tuple[int, ...]
    ok: bool
    ranges: int = 0
    ranges_read: int = 0
    checksums_compared: int | None = None
    checksums_not_kept: int = 0
    checksums_not_indexed: int = 0
    events: int = 0
    bytes: int = 0
    findings: tuple[str, ...] = ()
    damage: tuple[DamageReport, ...] = ()
    intact_generation: int = 0
    restore: str = ""
    more_findings: int = 0
    strays: int = 0
    stray_keys: tuple[str, ...] = ()
    removed: int = 0
    marked: tuple[int, ...] = ()
    fingerprints: Mapping[int, str] = field(default_factory=dict)
    unfinished_generation: int = 0
    notes: tuple[str, ...] = ()
    seed: int | None = None

    @property
    def exit_code(self) -> int:
        """See the base class."""
        return 0 if self.ok else Damaged.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmReport(Report):
    """Progress of restoring an archive from an archive class.

    Attributes:
        archive: the archive's URI.
        cold: number of objects that were not readable at the start.
        bytes: their size in S3.
        asked: number of them requested from S3 now (the others were requested before).
        readable: whether everything is readable now.
        total_seconds: duration of the call; of the whole command on the command line.
        dry_run: whether nothing was requested.
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
    """Result of creating or releasing a hold.

    Attributes:
        archive: the archive's URI.
        name: the hold's name.
        generations: the affected generations.
        unchanged: whether the hold already existed.
        dry_run: whether nothing was written.
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
        generation: the generation's number.
        first: the first original generation in a merged one; otherwise its number.
        created: when its tail was taken, RFC 3339.
        from_cut: the cut at which it begins, full segment name → offset.
        to_cut: the cut at which it ends.
        layout: the layout of its data.
        events: number of its events.
        bytes: number of its bytes, event headers included.
        holds: the names of its holds.
        checked_at: when a rotation read its data back, RFC 3339; empty if none has.
        group_names: the names of the reader groups that it has noted; None if they were not asked for.
    """

    generation: int
    first: int
    created: str
    from_cut: Mapping[str, int]
    to_cut: Mapping[str, int]
    layout: str
    events: int
    bytes: int
    holds: tuple[str, ...] = ()
    checked_at: str = ""
    group_names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline(Report):
    """An archive's generations in force, oldest first.

    Attributes:
        archive: the archive's URI.
        stream_name: the archived stream, ``scope/stream``.
        expired_up_to: the newest generation that has expired; 0 if none has.
        entries: the generations in force.
        being_deleted: whether `delete` has begun to delete the archive, and has not finished.
        decision: the newest decision, which says what has expired, and its time and user; empty if there is none.
    """

    archive: str
    stream_name: str
    expired_up_to: int
    entries: tuple[TimelineEntry, ...]
    being_deleted: bool = False
    decision: str = ""

    def _repr_html_(self) -> str:
        """See the base class."""
        return html_of(self.to_json(), charts_of(self))
