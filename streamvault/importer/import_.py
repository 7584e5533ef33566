"""The *import* command."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime

from streamvault.common.errors import Damaged
from streamvault.common.progress import Progress
from streamvault.common.report import GapReport
from streamvault.common.times import moment_text
from streamvault.common.verb import verb
from streamvault.importer.archived_groups import ArchivedGroups
from streamvault.importer.from_archive import Selection
from streamvault.importer.import_warnings import warnings_of
from streamvault.importer.options import ImportOptions
from streamvault.importer.own_name import check_not_source, tagged
from streamvault.importer.ownership import unfinished_import
from streamvault.importer.planner import PlannedRestore, Planner, generation_at, open_source
from streamvault.importer.reader_groups import group_warnings
from streamvault.importer.reports import ImportReport, renumbered
from streamvault.importer.run import RESTORE_TASKS, ImportRun
from streamvault.manifests.archive.selection import check_boundaries
from streamvault.manifests.format.archived_range import load_index_code
from streamvault.manifests.options import POLL_SECONDS
from streamvault.manifests.verbs.cold import NeededPart, touch
from streamvault.manifests.verbs.costs import cost_of_import
from streamvault.manifests.verbs.reports import damage_reports
from streamvault.objectstore.errors import InArchiveClass
from streamvault.sparkrun.opening import open_runner
from streamvault.streamstore.arithmetic.framing import filler_text
from streamvault.streamstore.open_stream import open_stream


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
    planner = Planner(source, options, options.master, progress)
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
        check_boundaries(source.place, history.stream, selection.parts)
        groups = ArchivedGroups.of(selection, plan, target, wanted=options.reader_groups)
        gaps = selection.gaps(plan)
        warnings = [*warnings_of(planned, gaps, at)]
        if begun and (newest := source.generations()[-1]) > plan.generation:
            warnings.append(
                f"the archive has generation {newest}, but the unfinished import is resumed up to generation "
                f"{plan.generation}, as it was started"
            )
        for warning in warnings:
            progress.warn(warning)
        report = replace(_report(stream, planned, at), gaps=gaps, warnings=tuple(warnings))
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
                    [(part.layout, part.row, part.end - part.start) for part in selection.parts],
                    len(history.generations),
                    may_be_cold=source.root.scheme.may_be_cold and not source.table,
                ),
                unchanged=unchanged,
                verified=unchanged and options.again,
            )
        if source.root.scheme.may_be_cold and not (unchanged or source.table):
            _refuse_cold(selection, wait=options.wait_for_warm, progress=progress)
        waited = 0.0
        if restored is None or options.again:
            with open_runner(options.master, RESTORE_TASKS) as runner:
                try:
                    restored = run.verify(runner, progress) if restored else run.run(runner, progress, groups.create)
                except Damaged:
                    todo = (
                        "Import into another name; what the target has of it may be nowhere else. 'streamvault hold' "
                        "keeps generations from expiring."
                    )
                    selection.source.check_in_force("restored", expired_todo=todo)
                    raise
                waited = runner.start_seconds
        groups.create(restored.segments)  # of a stream that was restored before
    for warning in group_warnings(groups.reported):
        progress.warn(warning)
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
    needed = [NeededPart(part.layout, part.segment.value, part.row.start, part.row.end) for part in selection.parts]
    if wait:
        from streamvault.manifests.verbs.warm import await_warm  # noqa: PLC0415  (it imports botocore)

        await_warm(archive, needed, progress, POLL_SECONDS)
        return
    try:
        touch(archive.place, needed)
    except InArchiveClass as found:
        from streamvault.manifests.verbs.warm import name_cold  # noqa: PLC0415

        raise name_cold(archive, needed, found) from None


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
