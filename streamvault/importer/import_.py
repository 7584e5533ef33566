"""The *import* command."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import product
from typing import Literal, get_args

from streamvault.common.errors import Damaged, Usage
from streamvault.common.progress import Progress
from streamvault.common.report import GapReport
from streamvault.common.times import age_text, moment_text, parse_moment
from streamvault.importer.from_archive import archived_content, generation_of
from streamvault.importer.lease import unfinished_work
from streamvault.importer.options import FILLER_LIMIT, ImportOptions, KeptRetention, Numbers, Offsets
from streamvault.importer.own_name import check_not_source, tagged
from streamvault.importer.plan import Content, RestorePlan, plan_restore
from streamvault.importer.reports import ImportReport
from streamvault.importer.run import RESTORE_TASKS, ImportRun
from streamvault.importer.skip import gaps_of, without_damaged
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.archive.archive import Archive, NoSuchArchive
from streamvault.manifests.archive.changed import check_in_force
from streamvault.manifests.archive.damage import Lost
from streamvault.manifests.archive.history import History
from streamvault.manifests.archive.listing import Listing
from streamvault.manifests.archive.selection import RangePart, check_boundaries, select_parts
from streamvault.manifests.options import POLL_SECONDS
from streamvault.manifests.verbs.check_damage import damage_reports
from streamvault.manifests.verbs.cold import NeededPart, touch
from streamvault.manifests.verbs.costs import cost_of_import
from streamvault.objectstore.errors import InArchiveClass
from streamvault.sparkrun.opening import open_runner
from streamvault.streamstore.arithmetic.cut_option import Cut, parse_cut
from streamvault.streamstore.model import RetentionKind, StreamCut, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream


def import_stream(
    archive: str,
    stream: str,
    *,
    from_cut: Cut | None = None,
    to_cut: Cut | None = None,
    generation: int | None = None,
    fingerprints: Sequence[str] = (),
    at: datetime | str | None = None,
    layout: Literal["table"] | None = None,
    table: str | None = None,
    offsets: Offsets = "keep",
    filler_limit: int = FILLER_LIMIT,
    numbers: Numbers = "keep",
    retention: KeptRetention = "keep",
    window: int = WINDOW,
    read_back: bool = False,
    wait_for_warm: bool = False,
    again: bool = False,
    skip_damaged: bool = False,
    master: str = "local[*]",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
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
        at: restore up to the last generation whose tail was taken by this time, an aware datetime or RFC 3339 text.
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
    began = time.monotonic()
    progress = progress or Progress()
    options = ImportOptions(
        from_cut=from_cut,
        to_cut=to_cut,
        generation=generation,
        fingerprints=tuple(fingerprints),
        at=None if at is None else parse_moment(at, "--at"),
        layout=layout,
        table=table,
        offsets=offsets,
        filler_limit=filler_limit,
        numbers=numbers,
        retention=retention,
        window=window,
        read_back=read_back,
        wait_for_warm=wait_for_warm,
        again=again,
        skip_damaged=skip_damaged,
    )
    target, target_name = parse_stream(stream)
    moment = options.at
    source = _open_source(Archive.open(archive), layout, table)
    plan_began = time.monotonic()
    if moment is not None:
        generation = generation_at(source, moment)
    select = partial(_select, source, options, master, progress)
    make_plan = partial(_plan, select, options)
    with target.open() as store:
        begun = None if generation is not None else _plan_unfinished(store, target_name, make_plan)
        planned = begun or make_plan(generation)
        history, selected = planned.selection.history, planned.selection.parts
        is_own_name = (store.uri, target_name) == (history.generations[-1].manifest.source, history.stream)
        plan = tagged(planned.plan, is_own_name=is_own_name)
        history.check_fingerprints(fingerprints, source.uri)
        check_boundaries(source.place, history.stream, selected)
        gaps = gaps_of(history, plan, planned.selection.lost)
        expired = _expired_warning(history) if from_cut is None else []
        warnings = [*_tail_warning(history, moment), *expired, *_warnings(history, plan, gaps)]
        if begun and (newest := source.generations()[-1]) > plan.generation:
            warnings.append(
                f"the archive has generation {newest}, but the unfinished import is resumed up to generation "
                f"{plan.generation}, as it was started"
            )
        for warning in warnings:
            progress.warn(warning)
        report = replace(_report(source, stream, planned, moment), gaps=gaps, warnings=tuple(warnings))
        run = ImportRun(
            store,
            target,
            target_name,
            plan=plan,
            window=window,
            read_back=read_back,
        )
        restored = run.find_finished()
        if restored is not None and is_own_name:
            check_not_source(store, target_name, restored, plan)
        unchanged = restored is not None
        if not unchanged:
            _check_same_options(select, options, unfinished_work(store, target_name), plan, stream)
            run.check_free()
        if dry_run:
            seconds = round(time.monotonic() - began, 3)
            cost = cost_of_import(
                [(part.layout, part.row, part.end - part.start) for part in selected], len(history.generations)
            )
            return replace(
                report,
                seconds=seconds,
                total_seconds=seconds,
                dry_run=True,
                cost=cost,
                unchanged=unchanged,
                verified=unchanged and again,
            )
        if source.root.scheme.has_storage_classes and not (unchanged or source.table):
            _refuse_cold(source, selected, wait=wait_for_warm, progress=progress)
        waited = 0.0
        if restored is None or again:
            with open_runner(master, RESTORE_TASKS) as runner:
                try:
                    restored = run.verify(runner, progress) if restored else run.run(runner, progress)
                except Damaged:
                    todo = (
                        "Import into another name; what the target has of it may be nowhere else. 'streamvault hold' "
                        "keeps generations from expiring."
                    )
                    check_in_force(source, history, history.first, doing="restored", expired_todo=todo)
                    raise
                waited = runner.start_seconds
    return replace(
        report,
        resumed=restored.resumed,
        events=restored.events,
        bytes=restored.bytes,
        moved_bytes=restored.moved_bytes,
        seconds=round(restored.finished - plan_began - waited, 3),
        total_seconds=round(time.monotonic() - began, 3),
        unchanged=unchanged,
        verified=again or not unchanged,
        renumbered={str(old): str(new) for old, new in restored.segments.items() if old != new},
    )


def generation_at(archive: Archive, moment: datetime) -> int:
    """Return the last generation in force whose tail was taken by then.

    Raises:
        NoSuchArchive: there is no archive, or all its generations are newer.
    """
    archive.manifest()  # raises if there is no archive

    def find(listing: Listing) -> int:
        created = None
        for span in reversed(listing.spans):
            manifest = archive.read_manifest(span)
            taken = [(one.generation, one.created) for one in manifest.replaces]
            for number, created in reversed(taken or [(manifest.generation, manifest.created)]):
                if created <= moment:
                    return number
        oldest = "" if created is None else f"; the oldest is from {moment_text(created)}"
        todo = "'streamvault timeline' lists what can be restored."
        raise NoSuchArchive(
            f"no generation is from {moment_text(moment)} or earlier{oldest}", where=archive.uri, todo=todo
        )

    return archive.stable(find)


@dataclass(frozen=True, slots=True)
class _Selection:
    """What a restore takes from an archive.

    Attributes:
        source: the archive.
        history: the generations.
        parts: the selected parts of ranges.
        lost: what is damaged and left out.
        from_cut, to_cut: the cuts, None if they were not given.
    """

    source: Archive
    history: History
    parts: Sequence[RangePart]
    lost: tuple[Lost, ...]
    from_cut: StreamCut | None
    to_cut: StreamCut | None

    def content(self, options: ImportOptions) -> Content:
        """Return what the target gets."""
        cuts = {"from_cut": self.from_cut, "to_cut": self.to_cut}
        return archived_content(self.source, self.history, self.parts, options, **cuts, lost=self.lost)


@dataclass(frozen=True, slots=True)
class _Planned:
    """What to restore, and the plan."""

    selection: _Selection
    plan: RestorePlan


def _plan(select: Callable[[int | None], _Selection], options: ImportOptions, generation: int | None) -> _Planned:
    """Plan the restore up to a generation; None for the newest."""
    selection = select(generation)
    return _Planned(selection, plan_restore(selection.content(options), options))


def _select(
    source: Archive, options: ImportOptions, master: str, progress: Progress, generation: int | None
) -> _Selection:
    history = source.history(generation)
    cuts = (options.from_cut, options.to_cut)
    from_cut, to_cut = (parse_cut(cut, history.stream, history.sealed_end) for cut in cuts)
    parts, lost = select_parts(history, from_cut, to_cut), tuple[Lost, ...]()
    if options.skip_damaged:
        parts, lost = without_damaged(source, history, parts, master, progress)
    return _Selection(source, history, parts, lost, from_cut, to_cut)


def _check_same_options(
    select: Callable[[int], _Selection], options: ImportOptions, work: str | None, plan: RestorePlan, where: str
) -> None:
    """Reject options that are not those with which the target's unfinished import of the same content was begun.

    The target's tag has a digest of them. Cuts cannot be found from it.

    Args:
        select: selects what is restored up to a generation.
        options: the given ones.
        work: name of the target's unfinished import; empty or None if there is none.
        plan: the plan with the given options.
        where: the target, for the message.

    Raises:
        Usage: they are not; the message has the unfinished import's.
    """
    generation = generation_of(work) if work and work != plan.work else None
    if generation is None or options.generation not in {None, generation}:
        return
    try:
        selection = select(generation)
    except (NoSuchArchive, Usage):
        return  # it is of another archive, or has other cuts
    for offsets, numbers in product(get_args(Offsets), get_args(Numbers)):
        other = options.model_copy(update={"offsets": offsets, "numbers": numbers})
        if other != options and selection.content(other).work == work:
            raise Usage(
                f"an unfinished import has other options: --offsets {offsets}, --numbers {numbers}",
                where=where,
                todo="Give these options to resume it, or choose another name. To give it up, end its run, then delete "
                "the stream, unless something else has written to it.",
            )


def _plan_unfinished(store: StreamStore, target: StreamName, make_plan: Callable[[int], _Planned]) -> _Planned | None:
    """Plan the target's unfinished import; None if there is none, or it has another archive or other options."""
    work = unfinished_work(store, target)
    generation = generation_of(work) if work else None
    if generation is None:
        return None
    try:
        planned = make_plan(generation)
    except (NoSuchArchive, Usage):
        return None  # this archive never had the generation, or it has expired, or the cuts lie beyond it
    return planned if planned.plan.work == work else None


def _refuse_cold(source: Archive, selected: Sequence[RangePart], *, wait: bool, progress: Progress) -> None:
    """Check that the needed objects can be read by reading a sample, or wait until all can be read.

    Raises:
        InArchiveClass: an object is in an archive class; with ``wait``, S3 was never asked to restore it.
    """
    needed = [NeededPart(part.layout, part.segment.value, part.row.start, part.row.end) for part in selected]
    if wait:
        from streamvault.manifests.verbs.warm import await_warm  # noqa: PLC0415  (it imports botocore)

        await_warm(source, needed, progress, POLL_SECONDS)
        return
    try:
        touch(source.place, needed)
    except InArchiveClass as found:
        from streamvault.manifests.verbs.warm import name_cold  # noqa: PLC0415

        raise name_cold(source, needed, found) from None


def _tail_warning(history: History, moment: datetime | None) -> list[str]:
    if moment is None:
        return []
    created = history.newest.created
    before = age_text((moment - created).total_seconds())
    taken = f"the tail of generation {history.generation} was taken {before} before {moment_text(moment)}"
    return [f"{taken}, at {moment_text(created)}; events written in between are not restored"]


def _expired_warning(history: History) -> list[str]:
    if history.first == 1:
        return []
    gone = "generation 1 has" if history.first == 2 else f"generations 1 to {history.first - 1} have"
    return [f"the beginning is missing: {gone} expired, so the archive begins with generation {history.first}"]


def _open_source(archive: Archive, layout: str | None, table: str | None) -> Archive:
    """Return the archive, or a table that holds a copy of it."""
    if layout is None:
        if table is not None:
            raise Usage("--table requires --layout table", where=repr(table))
        return archive
    if layout != "table":
        raise Usage("unknown value of --layout", where=repr(layout), todo="Use --layout table, or none.")
    if table is None:
        tables = archive.tables()
        if len(tables) != 1:
            todo = f"Choose one with --table: {', '.join(tables)}." if tables else "Create one: 'streamvault handoff'."
            what = "the archive has several tables" if tables else "the archive has no table"
            raise Usage(what, where=archive.uri, todo=todo)
        table = tables[0]
    return archive.table_archive(table.rpartition(".")[2])


def _warnings(history: History, plan: RestorePlan, gaps: tuple[GapReport, ...]) -> list[str]:
    warnings = [f"gap in the archive: {gap.segment} bytes {gap.start} to {gap.end}: {gap.reason}" for gap in gaps]
    filled = sum(segment.gap_bytes for segment in plan.segments.values())
    if filled:
        warnings.append(f"{filled} bytes of gaps lie between archived events; --offsets keep fills them with zeros")
    asked, fits = history.description.configuration.scaling, plan.configuration.scaling
    if asked != fits:
        warnings.append(
            f"the source's policy says {asked.min_segments} segments, but {fits.min_segments} are open; "
            f"the restored policy says {fits.min_segments}, so that the store does not scale the stream"
        )
    warnings += _retention_warning(plan)
    if plan.replay.moved:
        most = max(moved.ulps for moved in plan.replay.moved)
        warnings.append(
            f"{len(plan.replay.moved)} key-range boundaries move by up to {most} ulps, "
            "so that the segments keep their numbers"
        )
    return warnings


def _retention_warning(plan: RestorePlan) -> list[str]:
    """Warn of events that the store may delete under the restored retention policy."""
    policy = plan.configuration.retention
    if policy.kind is RetentionKind.SIZE and plan.bytes > policy.minimum:
        what = f"keeps {policy.minimum} of {plan.bytes} restored bytes: the store may delete the oldest events at once"
    elif policy.kind is RetentionKind.TIME:
        kept = age_text(policy.minimum / 1000)
        what = f"keeps events for {kept}, counted from the restore: the store deletes them after that"
    else:
        return []
    return [f"the archived retention policy {what}; --retention off restores the stream without it"]


def _report(source: Archive, stream: str, planned: _Planned, at: datetime | None) -> ImportReport:
    """Return the report of the plan; ranges that are restored in part count as whole ones."""
    plan, created = planned.plan, planned.selection.history.newest.created
    moved = tuple(plan.replay.moved)
    damage = damage_reports(planned.selection.history, planned.selection.lost)
    return ImportReport(
        stream=stream,
        archive=source.uri,
        generation=plan.generation,
        created=moment_text(created),
        at="" if at is None else moment_text(at),
        seconds_before=None if at is None else round((at - created).total_seconds(), 3),
        events=sum(part.row.events for part in planned.selection.parts),
        bytes=plan.bytes,
        segments=len(plan.segments),
        epochs=len(plan.replay.epochs),
        offsets=plan.offsets,
        shifts={s.in_stream(plan.source): segment.shift for s, segment in plan.segments.items() if segment.shift},
        moved_boundaries=moved,
        findings=tuple(map(str, damage)),
        damage=damage,
    )
