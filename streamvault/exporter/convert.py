"""The *convert* command: copies an archive to another root in another layout.

The copy has the same generations, ranges and digests. Each of its generations gets the plan that an export would have.
So a conversion is resumed, raced and checked like an export, and an export of the stream could finish it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from streamvault.common.errors import Conflict, Damaged, Usage
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.version import TOOL
from streamvault.exporter.archived_events import RewriteTask, rewrite_range, rewrite_ranges
from streamvault.exporter.plan import PlannedGeneration, check_can_restart, other_options_error, record_end, settle
from streamvault.exporter.reports import ConvertOptions, ConvertReport, ExportOptions
from streamvault.exporter.run import Destination, clean_up, overlapping_plans, remove_work_files
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import GenerationSpan
from streamvault.layouts.layout import check_window, layout_of, open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.decisions import Decision
from streamvault.manifests.history import Generation, History
from streamvault.manifests.listing import Listing, check_decisions, manifest_lost
from streamvault.manifests.manifest import Manifest
from streamvault.manifests.merging import Remainder, remainder_of
from streamvault.manifests.plan import Plan, RangeEntry, current_plan, ended_plans, find_rows
from streamvault.manifests.verbs.costs import cost_of_conversion
from streamvault.objectstore.uri import RootAddress
from streamvault.runner.opening import open_runner
from streamvault.runner.runner import Runner
from streamvault.sources.sources import ArchiveState
from streamvault.streamstore.model import SegmentId, StreamCut

ANOTHER_ROOT = "Convert to another root."


def draft_conversion(archive: Archive, plan: Plan, *, restart: bool) -> PlannedGeneration:
    """Return what `exporter.plan.settle` is to do next about a generation of a converted archive, and write nothing.

    Args:
        archive: the new archive.
        plan: the plan that a new conversion of the generation has.
        restart: give up an unfinished conversion with other options.

    Returns:
        The unfinished plan (`PlannedGeneration.resumed`), or the new one; None if another run has published a part of
        the generation meanwhile. `PlannedGeneration.gave_up` as for `exporter.plan.draft_plan`.

    Raises:
        Usage: an unfinished conversion has other options, or objects whose names the new ones would need.
        Conflict: something else has begun the generation.
        Damaged: the newest manifest was lost.
    """

    def is_late(listing: Listing) -> bool:
        if listing.orphans:
            raise manifest_lost(listing, archive.uri)
        return listing.newest >= plan.first

    if archive.stable(is_late):
        return PlannedGeneration(None, None)
    found, attempt = current_plan(archive.place, plan.span)
    for ended in ended_plans(archive.place, plan.span, attempt):
        _check_same_generation(ended, plan, archive)
        _check_names(ended, plan, archive)
    if found is None:
        return PlannedGeneration(plan, None, attempt)
    _check_same_generation(found, plan, archive)
    if found == plan:
        return PlannedGeneration(found, None, attempt, resumed=True)
    if not restart:
        options = [f"--layout {found.layout}", f"--compress {found.compression or 'none'}"]
        where = f"{archive.uri}, generation {plan.generation}"
        raise other_options_error(options, where, "Give these options to resume it, or abandon it with --restart.")
    _check_names(found, plan, archive)
    return PlannedGeneration(plan, None, attempt, gave_up=found)


def _check_same_generation(found: Plan, plan: Plan, archive: Archive) -> None:
    if found != plan.model_copy(update={"layout": found.layout, "compression": found.compression}):
        where = f"{archive.uri}, generation {plan.generation}"
        todo = "Finish it, or convert to another root."
        raise Conflict("an export or another conversion has begun the generation", where=where, todo=todo)


def _check_names(given_up: Plan, plan: Plan, archive: Archive) -> None:
    options = ExportOptions(layout=plan.layout, compress=plan.compression, content=plan.content)
    check_can_restart(given_up, options, None, archive.uri, todo=ANOTHER_ROOT)


@dataclass(frozen=True, slots=True)
class Converted:
    """Result of converting a generation.

    Attributes:
        moved_bytes: the bytes written by this run.
        planned: its plan; None if the generation already existed.
    """

    moved_bytes: int = 0
    planned: PlannedGeneration | None = None


@dataclass(frozen=True, slots=True)
class GenerationPart:
    """What the new archive lacks of a generation.

    Attributes:
        manifest: the manifest to publish; of a remainder, without events and digests.
        parts: its ranges in the old archive, and the offset (bytes) at which each begins.
        remainder: the remainder; None if it is the whole generation.
    """

    manifest: Manifest
    parts: Sequence[tuple[ArchivedRange, int]]
    remainder: Remainder | None = None


def convert_generation(
    source: Archive,
    generation: Generation,
    archive: Archive,
    options: ConvertOptions,
    runner: Runner,
    progress: Progress,
) -> Converted:
    """Convert one generation of an archive to a new archive, which has the earlier ones.

    Raises:
        Usage: an unfinished conversion has other options.
        Conflict: the new archive has a different generation of this number, or another plan of it; or another run has
            given up the plan of this one.
        Damaged: a range's bytes differ from the manifest; nothing is published.
    """
    while True:
        part = next_part(generation, archive, options)
        if part is None:
            _clean_up(archive, generation.manifest.span, progress, originals=False)
            return Converted()
        planned = settle(archive, partial(draft_conversion, archive, Plan.of(part.manifest), restart=options.restart))
        if planned.plan is not None:
            break
    manifest, attempt = part.manifest, planned.attempt
    done: dict[SegmentId, list[RangeEntry]] = {}
    if planned.resumed:
        for segment, row in find_rows(archive.place, manifest.span, attempt=attempt):
            done.setdefault(segment, []).extend(row.ranges)
    to = Destination.of(archive, planned.plan, attempt, options.window)
    rewrite = partial(RewriteTask, source.address, generation.manifest.layout, to)
    # An earlier run may have written ranges with other bounds, if the old archive has been compacted since: keep them.
    tasks = [rewrite((row,), start, row.end) for row, start in part.parts]
    moved = rewrite_ranges(f"converting generation {manifest.generation}", tasks, done, lambda: runner, progress)
    rows = [
        one.of_segment(segment) for segment in sorted(done) for one in sorted(done[segment], key=lambda one: one.start)
    ]
    if part.remainder is not None:
        manifest = part.remainder.completed(rows, archive.uri)
    record_end(archive, planned.plan, attempt)
    archive.commit(manifest, rows)
    _clean_up(archive, manifest.span, progress, originals=True)
    return Converted(moved, planned)


def next_part(generation: Generation, archive: Archive, options: ConvertOptions) -> GenerationPart | None:
    """Return what the new archive lacks of a generation of the old one; None if it has all of it.

    Raises:
        Conflict: the new archive has a different generation of this number.
        Damaged: a manifest of the new archive is missing.
    """
    written = {"line": archive.line, "layout": options.layout, "compression": options.compress or "", "tool": TOOL}
    whole = generation.manifest.model_copy(update=written)
    listing = archive.listing()
    if listing.newest >= whole.generation:
        _check_same(archive, listing, whole)
        return None
    if listing.newest >= whole.first:  # the old archive has merged converted generations with others
        _check_same_end(archive, whole)
        remainder = remainder_of(Generation(whole, generation.rows), listing.newest)
        return GenerationPart(remainder.manifest, remainder.parts, remainder)
    return GenerationPart(
        whole, [(row, row.start) for segment in sorted(generation.rows) for row in generation.rows[segment]]
    )


def _clean_up(archive: Archive, span: GenerationSpan, progress: Progress, *, originals: bool) -> None:
    """Delete what plans that were given up have left of a published generation, and its work files.

    `originals` says whether to delete the work files of its original generations, too, as the run may that has just
    published it; later, the new archive may be compacting them.
    """
    others = overlapping_plans(archive, span)
    _, attempt = current_plan(archive.place, span)
    clean_up(archive, span, progress, strays=attempt > 1 and not others)
    for one in others:
        if originals and span.first <= one.first and one.last <= span.last:
            remove_work_files(archive, one, progress)


def _check_same_end(archive: Archive, merged: Manifest) -> None:
    """Reject a target archive that does not end like an original generation of the merged one."""
    newest = archive.manifest()
    if _ends(merged).get(newest.generation) != (newest.to, newest.created):
        raise _another_archive(archive, newest)


def _check_same(archive: Archive, listing: Listing, manifest: Manifest) -> None:
    """Reject the archive of another stream; in either archive, generations may have been merged meanwhile."""
    holder = listing.holder(manifest.generation)
    if holder is None:
        raise Damaged(f"the manifest of generation {manifest.generation} is missing", where=archive.uri)
    found = archive.read_manifest(holder)
    if manifest.replaces:
        is_same = _ends(found).get(manifest.generation) == (manifest.to, manifest.created)
    else:
        is_same = found.is_same(manifest)
    if not is_same:
        raise _another_archive(archive, found)


def _ends(manifest: Manifest) -> dict[int, tuple[StreamCut, datetime]]:
    """Return where and when a generation, and each original one of a merged one, ended."""
    ends = {one.generation: (one.to, one.created) for one in manifest.replaces}
    return {**ends, manifest.generation: (manifest.to, manifest.created)}


def _another_archive(archive: Archive, found: Manifest) -> Conflict:
    what = f"the target has generation {found.generation} of another archive"
    return Conflict(what, where=archive.uri, todo=ANOTHER_ROOT)


@verb(ConvertOptions)
def convert_archive(archive: str, root: str, options: ConvertOptions, progress: Progress) -> ConvertReport:
    """Copy an archive to another root in another layout.

    Every generation is verified: it is published only if its bytes match the manifest's digests. The old archive is not
    changed. The same call resumes an interrupted conversion, and adds new generations later. An unfinished conversion
    with another layout or compression is an error.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        root: the new archive's root: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``.
        layout: ``"events"`` or ``"chunks"``.
        compress: ``"zstd"`` compresses chunks; None or ``""``: no compression.
        window: maximum data a task buffers in memory (bytes); for chunks, at least the archive's range size.
        restart: give up an unfinished conversion that was begun with another layout, and begin its generation anew. A
            run that still works on it ends with a `Conflict`.
        master: a Spark master, or ``"inline"`` to run without Spark.
        dry_run: report what would be written, and its cost in S3, without writing.
        progress: receives the progress.

    Raises:
        NoSuchArchive: there is no archive.
        Damaged: the archive is damaged.
        Usage: an unfinished conversion has other options.
        Conflict: the target is another archive, or generations expired or were merged meanwhile; or the unfinished
            conversion cannot be given up, as only its manifest may be missing.
    """
    began = time.monotonic()
    open_layout(options.layout, options.compress or "")
    source = Archive.open(archive)
    target = Archive(RootAddress.parse(root).resolve(), source.stream)
    if source.uri == target.uri:
        raise Usage("an archive cannot be converted in place; choose another root", where=target.uri)
    history = source.history()
    layout_of(history.generations[-1].manifest.content, options.layout)
    largest_range = max(g.manifest.range_size for g in history.generations)
    check_window(options.window, open_layout(options.layout).min_window(largest_range))
    listing = target.listing()
    if listing.missing is not None:
        raise manifest_lost(listing, target.uri)
    # earlier generations have expired in the target
    kept = [generation for generation in history.generations if generation.manifest.generation > listing.dropped]
    todo = [generation for generation in kept if generation.manifest.generation > listing.newest]
    rows = [[(g.manifest.layout, row) for held in g.rows.values() for row in held] for g in todo]
    report = ConvertReport(
        source=source.uri,
        archive=target.uri,
        generations=tuple(g.manifest.generation for g in history.generations),
        converted=tuple(g.manifest.generation for g in todo),
        unchanged=not todo,
        events=history.events,
        bytes=history.bytes,
        ranges=sum(map(len, rows)),
        dry_run=options.dry_run,
        cost=cost_of_conversion(rows, options.layout) if options.dry_run else None,
    )
    _check_beginning(target, history)
    if options.dry_run:
        part = next_part(todo[0], target, options) if todo else None
        if part is None:
            return report
        return _planned(report, draft_conversion(target, Plan.of(part.manifest), restart=options.restart))
    decided = source.stable(lambda listing: _decided(source, listing))
    # a new archive has none of the generations that have expired here
    target.decide(lambda listing: listing.begin_after(history.first - 1, decided))
    moved = 0
    with open_runner(options.master if todo else "inline", [rewrite_range]) as runner:
        for generation in kept:
            with ArchiveState(source, history).reading("converted", first=generation.manifest.first):
                done = convert_generation(source, generation, target, options, runner, progress)
            moved += done.moved_bytes
            report = _planned(report, done.planned)
        start_seconds = runner.start_seconds
    progress.end()
    return replace(report, moved_bytes=moved, seconds=round(time.monotonic() - began - start_seconds, 3))


def _decided(source: Archive, listing: Listing) -> Decision:
    """Return what was decided of an archive; a decision that does not follow must not begin another archive.

    Raises:
        Damaged: that cannot be what was decided.
    """
    check_decisions(source.place, listing)
    source.check_beginning(listing)
    return listing.decision


def _planned(report: ConvertReport, planned: PlannedGeneration | None) -> ConvertReport:
    """Return the report with the plan that was resumed or given up, if there is one: only the first can be."""
    if planned is None:
        return report
    return replace(report, **{name: getattr(report, name) or plan for name, plan in planned.described().items()})


def _check_beginning(target: Archive, history: History) -> None:
    """Reject a target archive that ends before the old one begins.

    Raises:
        Conflict: generations between them have expired.
    """
    listing, first = target.listing(), history.first
    newest = listing.newest
    if not listing.is_new and newest + 1 < first:
        raise Conflict(
            f"the target archive ends with generation {newest}, but the source begins with generation {first}",
            where=target.uri,
            todo=ANOTHER_ROOT,
        )
