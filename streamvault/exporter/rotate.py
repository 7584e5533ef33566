"""The *rotate* command: export new events, check them, let old generations expire, truncate the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.units import moment_text, now_utc
from streamvault.exporter.export import Export, export_next
from streamvault.exporter.reports import ExportReport, RotateOptions, RotateReport, StoppedReport
from streamvault.exporter.run import export_range
from streamvault.exporter.truncate import SeenRanges, Truncated, forget_truncations, truncate_source
from streamvault.layouts.keys import blocks_key, checked_key, manifest_key, ranges_key
from streamvault.layouts.layout import open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.decisions import Decision
from streamvault.manifests.deleting import DeletedData, delete_expired
from streamvault.manifests.listing import Listing, manifest_lost
from streamvault.manifests.manifest import Manifest
from streamvault.manifests.merging import compare_joined, delete_replaced
from streamvault.manifests.verbs.check import last_checked, read_back
from streamvault.manifests.verbs.delete import check_name, put_hold
from streamvault.objectstore.store import Lock, ObjectLocks
from streamvault.requests.queue import check_queue, request_deletions
from streamvault.runner.opening import Tasks
from streamvault.sources.archive_comparison import CompareTask, check_expiring, compare_range
from streamvault.streamstore.model import StreamCut
from streamvault.streamstore.uri import StoreAddress


@dataclass(frozen=True, slots=True)
class Expiry:
    """The generations that expire.

    Attributes:
        manifests: their manifests, oldest first.
        stopped: the generation that must stay although the options let it expire; None if there is none.
    """

    manifests: tuple[Manifest, ...] = ()
    stopped: StoppedReport | None = None


def plan_expiry(
    archive: Archive,
    listing: Listing,
    options: RotateOptions,
    *,
    made: int | None = None,
    coming: int = 0,
) -> Expiry:
    """Return the generations that expire now: from the head up to the first that stays, is held or is locked.

    A wrong clock must not let everything expire, so ages count back from now, but at most from the time at which the
    newest manifest was written by the store's clock. A store that has none but this machine's (a folder) cannot tell a
    wrong clock; there they count from the newest generation before this run, and a long time without a generation is
    left out. A later ``--until`` is rejected.

    Args:
        archive: the archive.
        listing: its generations in force.
        options: which generations expire: by number, age or time; none if there is no such option.
        made: the generation that this run has published, if any; its time comes from this machine's clock, so it cannot
            confirm that clock.
        coming: number of generations with data that will be published before (dry run).
    """
    rule = options.rule
    spans = () if rule.is_empty else listing.spans[: max(rule.stays_from(archive, listing.spans, coming), 0)]
    if not spans:
        return Expiry()
    archive.check_merged(listing)
    if rule.keep is not None:  # those that are counted, and those that expire
        archive.check_contiguous(listing)
    now = now_utc()
    newest = rule.latest(archive, listing.spans, (), made)
    if rule.until is not None and rule.until > newest:
        reason = f"--until, which is later than the newest generation ({moment_text(newest)})"
        return _stopped((), spans[0].last, reason)
    gone: list[Manifest] = []
    locks: ObjectLocks | None = None
    for index, span in enumerate(spans):
        manifest = archive.read_manifest(span)
        if not rule.lets(manifest.created, now):
            break
        if not rule.lets(manifest.created, min(now, newest)):
            counted = f"its age, counted from {moment_text(newest)}"
            reason = f"{counted}: the clock may be wrong; if not, use --until or --keep"
            return _stopped(gone, manifest.generation, reason)
        if manifest.generation in listing.holds:
            names = listing.holds[manifest.generation]
            reason = f"{'hold' if len(names) == 1 else 'holds'} {', '.join(names)}"
            return _stopped(gone, manifest.generation, reason)
        if index == 0:
            locks = archive.root.open_locks()
        lock = None if locks is None else _lock_of(archive, manifest, locks)
        if lock is not None:
            return _stopped(gone, manifest.generation, f"{lock.reason} of {lock.key}", lock.until)
        gone.append(manifest)
    return Expiry(tuple(gone))


def _stopped(gone: Sequence[Manifest], generation: int, reason: str, until: datetime | None = None) -> Expiry:
    locked_until = "" if until is None else moment_text(until)
    return Expiry(tuple(gone), StoppedReport(generation=generation, reason=reason, until=locked_until))


def expire(archive: Archive, options: RotateOptions, source: StoreAddress, *, made: int | None = None) -> Expiry:
    """Let generations expire: from now on no reader sees them. Nothing is deleted yet. Arguments as `plan_expiry`.

    If a hold or a merge takes the decision's number first, the expiry is planned again.

    Raises:
        StillHeld: the source, at ``source``, has what they call gaps; see `check_expiring`.
    """
    found = Expiry()

    def change(listing: Listing) -> Decision | None:
        nonlocal found
        if listing.missing is not None:
            raise manifest_lost(listing, archive.uri)
        if found.manifests and listing.dropped >= found.manifests[-1].generation:
            return None  # decided already
        found = plan_expiry(archive, listing, options, made=made)
        gone = found.manifests
        if gone:
            check_expiring(archive.uri, gone, source, archive.stream)
        return listing.decision.expire(gone[-1].generation, gone[0].from_, gone[-1].created) if gone else None

    archive.decide(change)
    return found


def _lock_of(archive: Archive, manifest: Manifest, locks: ObjectLocks) -> Lock | None:
    """Return a lock on any of a generation's objects; those written last, and so locked longest, are checked first."""
    records = (archive.prefix + key(manifest.span) for key in (manifest_key, ranges_key, checked_key, blocks_key))
    return next(filter(None, map(locks.lock_of, records)), None) or locks.first_lock(_data(archive, manifest))


def _data(archive: Archive, manifest: Manifest) -> Iterator[str]:
    layout = open_layout(manifest.layout)
    for entry in manifest.segments:
        for found in layout.between(archive.place, entry.id, entry.start, entry.end):
            yield found.key


@verb(RotateOptions)
def rotate_stream(stream: str, root: str, options: RotateOptions, progress: Progress) -> RotateReport:
    """Archive new events, read back unchecked generations, let old generations expire, and truncate the source.

    Each step starts after the previous one has succeeded. After a kill, repeat the call to resume. Generations expire
    as a whole, oldest first, and never the newest; the first that has a hold or an object locked by S3 is kept, with
    all later ones. At most one of ``keep``, ``keep_for`` and ``until`` may be given; without any, nothing expires.

    Args:
        stream: as for `export_stream`.
        root: as for `export_stream`.
        keep: number of generations with data to keep. The last that has data is always kept.
        keep_for: keep generations whose tail was taken within this time (seconds). It counts back from now, or from
            the newest generation before this run if that is earlier, so that a clock that is ahead does not expire
            more.
        until: expire generations taken at or before this time, an aware datetime or RFC 3339 text. Nothing expires
            if it is later than the newest generation.
        truncate_source: truncate the stream to the end of what is archived and was read back; never beyond.
        storage_class: S3 storage class of the data objects; must allow immediate reads.
        hold: name of a hold to put on the newest generation after the export; empty for none.
        queue: URI of a queue in which to put deletions instead of doing them now (see `work_queue`); empty for none.
        restart: as for `export_stream`.
        content: as for `export_stream`.
        layout: as for `export_stream`.
        compress: as for `export_stream`.
        range_size: as for `export_stream`.
        window: as for `export_stream`.
        largest_event: as for `export_stream`.
        same_stream: as for `export_stream`, and for what would be truncated.
        line: as for `export_stream`.
        reader_groups: as for `export_stream`.
        schemas: as for `export_stream`.
        schema_group: as for `export_stream`.
        master: a Spark master, or ``"inline"`` for no Spark; used only if there is data to move or read.
        dry_run: only report what would be done.
        progress: receives the progress.

    Raises:
        Damaged: a generation's data differ from what was archived; nothing has expired or was truncated.
        Problem: the rotation failed; the exception has the command's exit code.
    """
    if options.hold:
        check_name(options.hold)
    export = Export.of(stream, root, options)
    export.root.check_read_at_once()
    if options.queue:
        check_queue(options.queue, create=not options.dry_run)
    with ExitStack() as stack:
        tasks = Tasks(options.master, stack, [export_range, compare_range, compare_joined])
        rotation = Rotation(export, options, tasks, progress)
        if options.dry_run:
            return rotation.rehearse()
        report = rotation.complete(rotation.archive_new())
    progress.end()
    return report


@dataclass
class Rotation:
    """The steps of one rotation.

    Attributes:
        export: the first step.
        options: those of all steps.
        warnings: what the user is warned of.
        seen: the ranges that this run has archived and read back.
    """

    export: Export
    options: RotateOptions
    tasks: Tasks
    progress: Progress
    warnings: list[str] = field(default_factory=list)
    seen: SeenRanges = field(default_factory=SeenRanges)

    @cached_property
    def archive(self) -> Archive:
        """The archive."""
        return self.export.archive()

    def archive_new(self, *, dry_run: bool = False) -> ExportReport:
        """Run the first step."""
        return export_next(
            self.export,
            lambda: nullcontext(self.tasks.runner),
            self.progress,
            dry_run=dry_run,
            seen=self.seen.exported,
        )

    def complete(self, exported: ExportReport, *, sweep: bool = True) -> RotateReport:
        """Run all steps but the first; may be called again after a failure.

        Args:
            exported: report of the first step.
            sweep: also delete what late tasks left below the head if nothing expires.
        """
        if self.options.hold:
            put_hold(self.archive, self.options.hold, exported.generation, why="rotate")
        seen = self.seen.read_back if self.options.truncate_source else None
        read = read_back(self.archive, lambda: self.tasks.runner, self.progress, None, seen)
        # Before generations expire: afterwards their bytes could no longer be compared with the source's.
        checked_up_to = last_checked(self.archive) if self.options.truncate_source else None
        truncated = Truncated(done=False) if checked_up_to is None else self._truncate(checked_up_to)
        deleted, _ = delete_replaced(self.archive, lambda: self.tasks.runner, self.progress)
        listing = self.archive.listing()
        resumed = listing.unfinished and not self.options.queue
        if checked_up_to is not None:
            forget_truncations(self.archive, listing, checked_up_to.generation)
        made = None if exported.unchanged else exported.generation
        expiry = expire(self.archive, self.options, self.export.source, made=made)
        queued: tuple[int, ...] = ()
        if self.options.queue:
            queued = self._ask_for_deletions(made)
        elif resumed or expiry.manifests or sweep:
            done = self._delete(made)
            deleted, resumed = deleted + done, resumed and not done.kept
        cut = None if checked_up_to is None else checked_up_to.to
        report = self._report(exported, tuple(read), expiry, cut, resumed=resumed)
        return replace(
            report,
            ranges_read=sum(read.values()) + truncated.read,
            ranges_compared=truncated.compared,
            objects_deleted=deleted.objects,
            requests=deleted.requests,
            queued=queued,
            truncated=truncated.done,
        )

    def rehearse(self) -> RotateReport:
        """Report what a rotation would do."""
        exported = self.archive_new(dry_run=True)
        coming = () if exported.unchanged else (exported.generation,)

        def plan(listing: Listing) -> tuple[Listing, Expiry]:
            expiry = plan_expiry(self.archive, listing, self.options, coming=int(exported.bytes > 0))
            check_expiring(self.archive.uri, expiry.manifests, self.export.source, self.export.name)
            return listing, expiry

        listing, expiry = self.archive.stable(plan)
        cut, compared = None, 0
        if self.options.truncate_source:
            newest = self.archive.newest()
            with self.export.source.open() as store:
                cut = newest.to if newest and not coming else store.describe(self.export.name).tail
            if newest:
                compared = self._truncate(newest, rehearsed=True).compared
        checked = (*listing.unchecked, *coming)
        report = self._report(exported, checked, expiry, cut, resumed=listing.unfinished)
        return replace(report, ranges_compared=compared, dry_run=True)

    def _report(
        self, exported: ExportReport, checked: Sequence[int], expiry: Expiry, cut: StreamCut | None, *, resumed: bool
    ) -> RotateReport:
        listing = self.archive.listing()
        expired = tuple(number for gone in expiry.manifests for number in gone.span.generations)
        first = next((span.first for span in listing.spans if span.last not in expired), exported.generation)
        return RotateReport(
            archive=self.archive.uri,
            export=exported,
            generation=exported.generation,
            first_generation=first,
            hold=self.options.hold,
            checked=tuple(checked),
            expired=expired,
            stopped=expiry.stopped,
            resumed=resumed,
            cut=None if cut is None else cut.to_json(),
            warnings=(*exported.warnings, *self.warnings),
            seconds=self.tasks.seconds,
        )

    def _delete(self, made: int | None) -> DeletedData:
        """Delete the data of expired generations, up to the first object that S3 has locked; see `delete_expired`."""
        self.progress.say("deleting expired generations")
        done = delete_expired(self.export.root, self.export.name, self.options.rule, made=made)
        if done.kept:
            self.warnings.append(done.kept)
        if done.lock is not None:
            until = "" if done.lock.until is None else f" until {moment_text(done.lock.until)}"
            self.warnings.append(
                f"some expired data was not deleted: {done.lock.reason} of {done.lock.key}{until}; the next rotation"
                " deletes it"
            )
        return done

    def _ask_for_deletions(self, made: int | None) -> tuple[int, ...]:
        """Queue the deletion of expired data that were not deleted yet; the worker goes by the same rule."""
        rule = self.options.rule
        listing, kept = self.archive.stable(lambda now: (now, rule.keeps(self.archive, now, made=made)))
        if kept:
            self.warnings.append(kept)
        dropped = [listing.dropped] if listing.unfinished and not kept else []
        return request_deletions(self.options.queue, self.export.root.uri, self.export.name, dropped, rule)

    def _truncate(self, archived: Manifest, *, rehearsed: bool = False) -> Truncated:
        """Truncate the source to a generation's end, or rehearse that, see `truncate_source`."""
        done = truncate_source(
            self.archive,
            self.export.source,
            archived,
            self.seen,
            same_stream=self.options.same_stream,
            run=None if rehearsed else self._compare,
        )
        if not done.done and not rehearsed:
            self.warnings.append("the stream is sealed, so it cannot be truncated; it is archived completely")
        return done

    def _compare(self, tasks: Sequence[CompareTask]) -> None:
        self.progress.begin("comparing with the stream", sum(task.size for task in tasks))
        runner = self.tasks.runner
        for _, size in runner.run(compare_range, tasks, self.progress):
            self.progress.advance(0, size)
