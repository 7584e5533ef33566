"""The *import* command."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from streamvault.common.errors import Damaged, Usage
from streamvault.common.lazy import LazyMap
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.report import GapReport
from streamvault.common.units import age_text, moment_text
from streamvault.importer.from_archive import Selection, generation_of
from streamvault.importer.plan import RestorePlan, plan_restore, scaling_warnings
from streamvault.importer.reader_groups import ArchivedGroups, group_warnings
from streamvault.importer.reports import ImportOptions, ImportReport, renumbered
from streamvault.importer.run import RESTORE_TASKS, ImportRun, Restored
from streamvault.importer.schemas import ArchivedSchemas
from streamvault.importer.target import TargetTaken, check_filler, unfinished_import
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.damage import ArchivedPart
from streamvault.manifests.history import check_boundaries, select_parts
from streamvault.manifests.listing import Listing
from streamvault.manifests.manifest import load_index_code
from streamvault.manifests.options import POLL_SECONDS
from streamvault.manifests.verbs.costs import cost_of_import
from streamvault.manifests.verbs.reports import damage_reports
from streamvault.manifests.verbs.warm import NeededPart, touch
from streamvault.objectstore.store import InArchiveClass
from streamvault.runner.opening import open_runner
from streamvault.sources.schemas import needless_group
from streamvault.sources.sources import ArchiveState
from streamvault.streamstore.cuts import parse_cut
from streamvault.streamstore.framing import filler_text
from streamvault.streamstore.model import RetentionKind
from streamvault.streamstore.own import MOST_TAGS, RESTORED
from streamvault.streamstore.uri import OpenStream, open_stream


@dataclass(frozen=True, slots=True)
class PlannedRestore:
    """What is restored, and the plan."""

    selection: Selection
    plan: RestorePlan


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans the restore of an archive.

    Attributes:
        archive: the archive, or a table's copy of it.
        options: which part of it is restored, and how.
        progress: is told when damaged ranges are looked for.
    """

    archive: Archive
    options: ImportOptions
    progress: Progress

    def select(self, generation: int | None) -> Selection:
        """Select what is restored up to a generation; None for the newest."""
        source = ArchiveState(self.archive, history := self.archive.history(generation, keep="none"))
        cuts = (self.options.from_cut, self.options.to_cut)
        from_cut, to_cut = (parse_cut(cut, history.stream, history.sealed_end) for cut in cuts)
        selected = Selection(source, select_parts(self.archive.address, history, from_cut, to_cut), from_cut, to_cut)
        return selected.without_damaged(self.options.master, self.progress) if self.options.skip_damaged else selected

    def plan(self, generation: int | None) -> PlannedRestore:
        """Plan the restore up to a generation; None for the newest."""
        selection = self.select(generation)
        plan = plan_restore(selection.content(self.options), self.options)
        check_filler(plan, self.options.filler_limit)
        return PlannedRestore(selection, plan)

    def plan_unfinished(self, import_id: str | None) -> PlannedRestore | None:
        """Plan an unfinished import; None if there is none, or it has another archive or other options."""
        generation = generation_of(import_id) if import_id else None
        if generation is None:
            return None
        try:
            planned = self.plan(generation)
        except (NoSuchArchive, Usage):
            return None  # this archive never had the generation, or it has expired, or the cuts lie beyond it
        return planned if planned.plan.import_id == import_id else None

    def check_same_options(self, import_id: str | None, plan: RestorePlan, where: str) -> None:
        """Reject options that are not those with which the target's unfinished import of the same content was begun.

        The target's tag has a digest of them. Cuts cannot be found from it.

        Args:
            import_id: the target's unfinished import; empty or None if there is none.
            plan: the plan with the given options.
            where: the target, for the message.

        Raises:
            Usage: they are not; the message has the unfinished import's.
        """
        generation = generation_of(import_id) if import_id and import_id != plan.import_id else None
        if not import_id or generation is None or self.options.generation not in {None, generation}:
            return
        try:
            selection = self.select(generation)
        except (NoSuchArchive, Usage):
            return  # it is of another archive, or has other cuts
        other = selection.begun_with(import_id, self.options)
        if other is not None and other != self.options:
            raise Usage(
                f"an unfinished import has other options: --offsets {other.offsets}, --numbers {other.numbers}",
                where=where,
                todo="Give these options to resume it, or choose another name. To abandon it, stop its run, then "
                "delete the stream, unless something else has written to it.",
            )


def open_source(uri: str, options: ImportOptions) -> Archive:
    """Open the archive, or a table that holds a copy of it."""
    archive, table = Archive.open(uri), options.table
    if options.layout is None:
        if table is not None:
            raise Usage("--table requires --layout table", where=repr(table))
        return archive
    if table is None:
        tables = archive.tables()
        if len(tables) != 1:
            todo = f"Choose one with --table: {', '.join(tables)}." if tables else "Create one: 'streamvault handoff'."
            what = "the archive has several tables" if tables else "the archive has no table"
            raise Usage(what, where=archive.uri, todo=todo)
        table = tables[0]
    return archive.table_archive(table.rpartition(".")[2])


def generation_at(archive: Archive, moment: datetime) -> int:
    """Return the last generation in force whose tail was taken by then.

    From the newest on, one after another is read: the clocks of the machines that took them may differ.

    Raises:
        NoSuchArchive: there is no archive, or all its generations are newer.
    """
    archive.manifest()  # raises if there is no archive

    def find(listing: Listing) -> int:
        created = None
        for span in reversed(listing.spans):
            for one in reversed(archive.read_manifest(span).originals):
                created = one.created
                if created <= moment:
                    return one.generation
        oldest = "" if created is None else f"; the oldest is from {moment_text(created)}"
        todo = "'streamvault timeline' lists what can be restored."
        raise NoSuchArchive(
            f"no generation is from {moment_text(moment)} or earlier{oldest}", where=archive.uri, todo=todo
        )

    return archive.stable(find)


def warnings_of(planned: PlannedRestore, gaps: Sequence[GapReport], moment: datetime | None) -> Iterator[str]:
    """Yield what the user is warned of.

    Args:
        planned: what is restored.
        gaps: its gaps.
        moment: the time up to which it is restored; None if none was given.
    """
    selection, plan = planned.selection, planned.plan
    history = selection.source.history
    if moment is not None:
        created = history.newest.created
        before = age_text((moment - created).total_seconds())
        taken = f"the tail of generation {history.generation} was taken {before} before {moment_text(moment)}"
        yield f"{taken}, at {moment_text(created)}; events written in between are not restored"
    if selection.from_cut is None and history.first > 1:
        gone = "generation 1 has" if history.first == 2 else f"generations 1 to {history.first - 1} have"
        yield f"the beginning is missing: {gone} expired, so the archive begins with generation {history.first}"
    for gap in gaps:
        yield f"gap in the archive: {gap.segment} bytes {gap.start} to {gap.end}: {gap.reason}"
    if filled := sum(segment.gap_bytes for segment in plan.segments.values()):
        yield f"{filled} bytes of gaps lie between archived events; --offsets keep puts events of zero bytes there"
    yield from scaling_warnings(history.description.configuration, plan.configuration)
    yield from _retention_warning(plan)
    if plan.replay.moved:
        most = max(moved.ulps for moved in plan.replay.moved)
        yield (
            f"{len(plan.replay.moved)} key-range boundaries move by up to {most} ulps, "
            "so that the segments keep their numbers"
        )


def _resumed_warning(archive: Archive, begun: PlannedRestore | None) -> Iterator[str]:
    """Warn of generations that an unfinished import does not restore."""
    if begun and (newest := archive.generations()[-1]) > begun.plan.generation:
        yield (
            f"the archive has generation {newest}, but the unfinished import is resumed up to generation "
            f"{begun.plan.generation}, as it was started"
        )


def _retention_warning(plan: RestorePlan) -> Iterator[str]:
    """Warn of events that the store may delete under the restored retention policy."""
    policy = plan.configuration.retention
    if policy.kind is RetentionKind.SIZE and plan.bytes > policy.minimum:
        what = f"keeps {policy.minimum} of {plan.bytes} restored bytes: the store may delete the oldest events at once"
    elif policy.kind is RetentionKind.TIME:
        kept = age_text(policy.minimum / 1000)
        what = f"keeps events for {kept}, counted from the restore: the store deletes them after that"
    else:
        return
    yield f"the archived retention policy {what}; --retention off restores the stream without it"


def tagged(plan: RestorePlan, *, is_own_name: bool) -> RestorePlan:
    """Return the plan with a tag that tells the restored stream from the archived one of the same name and address.

    In a cluster that was rebuilt, nothing else may differ.
    """
    tags = tuple(tag for tag in plan.configuration.tags if not tag.startswith(RESTORED))
    if is_own_name and len(tags) < MOST_TAGS:
        tags += (RESTORED + plan.import_id,)
    return replace(plan, configuration=replace(plan.configuration, tags=tags))


def check_not_source(target: OpenStream, found: Restored, plan: RestorePlan) -> None:
    """Reject a stream that looks restored, and is the archived one itself.

    A stream that was restored under its own name has a tag, or other segment numbers.

    Raises:
        TargetTaken: it is the archived stream.
    """
    is_renumbered = any(old != new for old, new in found.segments.items())
    if not is_renumbered and RESTORED + plan.import_id not in target.describe().configuration.tags:
        raise TargetTaken(
            "this is the archived stream itself, and nothing was restored into it",
            where=target.uri,
            todo="Give the restored stream another name.",
        )


@verb(ImportOptions)
def import_stream(archive: str, stream: str, options: ImportOptions, progress: Progress) -> ImportReport:
    """Restore an archive into a new stream: same events, order and pointers, same segments, epochs and policies.

    After a kill, repeat the call to resume. A resumed import restores up to the generation with which it started, even
    if neither ``generation`` nor ``at`` is given and the archive has a newer one by now (a warning says so). Every
    range is verified before the call returns: bytes appended by this run by their digest, bytes appended by an earlier
    run by reading them back.

    If the stream was restored from this archive before and not written to since, nothing is done.

    Args:
        archive: ``ROOT/SCOPE/STREAM`` with ROOT ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``.
        stream: the stream to create, ``pravega://HOST:PORT/SCOPE/STREAM`` or ``local:///FOLDER/SCOPE/STREAM``; its
            scope is created if it does not exist.
        from_cut: restore only events after this cut of the archived stream (JSON text or a mapping).
        to_cut: restore only events before this cut.
        generation: restore up to this generation; None for the newest, or that of the target's unfinished import.
        fingerprints: SHA-256 of manifests, hexadecimal. If any are given, each must be that of a generation, and that
            of the newest generation to restore must be among them.
        at: restore up to the newest generation taken at or before this time, an aware datetime or RFC 3339 text.
        layout: ``"table"`` restores from a table that `write_table` wrote; the archive itself need not exist.
        table: the table's name; None if there is only one.
        offsets: ``"keep"`` puts filler below a segment's start and truncates it; ``"shift"`` starts segments at 0.
        filler_limit: maximum filler of a segment with ``"keep"`` (bytes).
        numbers: ``"map"`` restores segments that cannot get their archived numbers with other numbers, which the
            report lists: under a name that was used before, after a transaction was committed over a scale, or after a
            scale into many segments. Epochs, key ranges, offsets and order are the same. `translate` translates
            pointers and cuts.
        retention: ``"keep"`` sets the archived retention policy on the stream when the restore is complete; the store
            may then soon delete events, and a warning says so. ``"off"`` sets none.
        window: maximum data a task buffers in memory (bytes).
        read_back: also read back the bytes that this run appended.
        reader_groups: also create the reader groups that the newest restored generation has noted (see
            `export_stream`), in the stream's scope, each with its name, where it was then. A group that is there
            already stays as it is. Offsets must be kept.
        schemas: URL of a Pravega Schema Registry: before the stream is created, also register the schemas that the
            archive has noted (see `export_stream`), so that the ids in its events mean the same there. The group must
            not exist, or have the same schemas at the same ids, or the first of them.
        schema_group: the group, ``[NAMESPACE/]GROUP``; None for the name of the archive's.
        wait_for_warm: wait for objects that S3 is restoring from an archive class (see `warm_archive`).
        again: if the stream was restored from this archive before, read it back and verify it.
        skip_damaged: read the whole archive first, and restore it without what is damaged, which becomes gaps. The
            report's ``findings`` and ``damage`` name each; they are empty if nothing is damaged.
        master: a Spark master, or ``"inline"`` for no Spark.
        dry_run: only report what would be done and what S3 would charge for it.
        progress: receives the progress.

    Raises:
        Problem: the import failed; the exception has the command's exit code.
        TargetTaken: the stream exists, and is neither this import's own unfinished one nor what it restored (exit
            code 4).
    """
    load_index_code()
    source = open_source(archive, options)
    plan_began = time.monotonic()
    planner = Planner(source, options, progress)
    at = options.at_time
    generation = options.generation if at is None else generation_at(source, at)
    with open_stream(stream) as target:
        unfinished = unfinished_import(target)
        begun = None if generation is not None else planner.plan_unfinished(unfinished)
        planned = begun or planner.plan(generation)
        selection, history = planned.selection, planned.selection.source.history
        is_own_name = (target.store.uri, target.name) == (history.generations[-1].manifest.source, history.stream)
        plan = tagged(planned.plan, is_own_name=is_own_name)
        history.check_fingerprints(options.fingerprints, source.uri)
        check_boundaries(history.stream, selection.parts)
        groups = ArchivedGroups.of(selection, plan, target, wanted=options.reader_groups)
        schemas = ArchivedSchemas.of(selection.source, options)
        gaps = selection.gaps(plan)
        warnings = [*warnings_of(planned, gaps, at), *_resumed_warning(source, begun)]
        warnings += needless_group(options.schemas, options.schema_group)
        progress.warn_all(warnings)
        report = replace(_report(stream, planned, at), gaps=gaps, warnings=tuple(warnings))
        report = schemas.reported(report) if schemas else report
        run = ImportRun(target, plan, window=options.window, read_back=options.read_back)
        restored = None if unfinished is None else run.find_finished()
        if restored is not None and is_own_name:
            check_not_source(target, restored, plan)
        unchanged = restored is not None
        if not unchanged:
            planner.check_same_options(unfinished, plan, stream)
            run.check_free(unfinished)
        if options.dry_run:
            groups.plan()
            return replace(
                report,
                reader_groups=groups.reported,
                dry_run=True,
                cost=cost_of_import(
                    LazyMap(_for_costs, selection.parts),
                    len(history.generations),
                    may_be_cold=source.root.scheme.may_be_cold and not source.table,
                ),
                unchanged=unchanged,
                verified=unchanged and options.again,
            )
        if source.root.scheme.may_be_cold and not (unchanged or source.table):
            _refuse_cold(selection, wait=options.wait_for_warm, progress=progress)
        if schemas is not None:
            schemas.register()
        waited = 0.0
        if restored is None or options.again:
            with open_runner(options.master, RESTORE_TASKS) as runner:
                try:
                    restored = run.verify(runner, progress) if restored else run.run(runner, progress, groups.create)
                except Damaged:
                    todo = (
                        "Import into another name; what the target already has may exist nowhere else. "
                        "'streamvault hold' keeps generations from expiring."
                    )
                    selection.source.check_in_force("restored", expired_todo=todo)
                    raise
                waited = runner.start_seconds
        groups.create(restored.segments)  # of a stream that was restored before
    progress.warn_all(group_warnings(groups.reported))
    return replace(
        report,
        resumed=restored.resumed,
        events=restored.events,
        bytes=restored.bytes,
        moved_bytes=restored.moved_bytes,
        seconds=round(restored.finished - plan_began - waited, 3),
        unchanged=unchanged,
        verified=options.again or not unchanged,
        renumbered=renumbered(restored.segments),
        reader_groups=groups.reported,
        warnings=(*report.warnings, *group_warnings(groups.reported)),
    )


def _refuse_cold(selection: Selection, *, wait: bool, progress: Progress) -> None:
    """Check that the needed objects can be read by reading a sample, or wait until all can be read.

    Raises:
        InArchiveClass: an object is in an archive class; with ``wait``, S3 was never asked to restore it.
    """
    archive = selection.source.archive
    needed = LazyMap(_needed, selection.parts)
    if wait:
        from streamvault.manifests.verbs.warm import await_warm  # noqa: PLC0415  (it imports botocore)

        await_warm(archive, needed, progress, POLL_SECONDS)
        return
    try:
        touch(archive.place, needed)
    except InArchiveClass as found:
        from streamvault.manifests.verbs.warm import name_cold  # noqa: PLC0415

        raise name_cold(archive, needed, found) from None


def _needed(part: ArchivedPart) -> NeededPart:
    return NeededPart(part.layout, part.segment.value, part.row.start, part.row.end)


def _for_costs(part: ArchivedPart) -> tuple[str, ArchivedRange, int]:
    return part.layout, part.row, part.end - part.start


def _report(stream: str, planned: PlannedRestore, at: datetime | None) -> ImportReport:
    """Return the report of the plan; ranges that are restored in part count as whole ones."""
    plan, selection = planned.plan, planned.selection
    created = selection.source.taken
    damage = damage_reports(selection.source.history, selection.lost)
    filled = (
        GapReport(
            segment=place.segment.in_stream(plan.source),
            start=place.start,
            end=place.end,
            reason=filler_text(place.end - place.start, plan.content),
        )
        for place in plan.filled
    )
    return ImportReport(
        filled=tuple(filled),
        stream=stream,
        archive=selection.source.archive.uri,
        generation=plan.generation,
        created=moment_text(created),
        at="" if at is None else moment_text(at),
        seconds_before=None if at is None else round((at - created).total_seconds(), 3),
        events=sum(part.row.events for part in selection.parts),
        bytes=plan.bytes,
        segments=len(plan.segments),
        epochs=len(plan.replay.epochs),
        offsets=plan.offsets,
        shifts=plan.shifts,
        moved_boundaries=plan.replay.moved,
        findings=tuple(map(str, damage)),
        damage=damage,
    )
