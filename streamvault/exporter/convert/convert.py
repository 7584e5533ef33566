"""The *convert* command."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from streamvault.common.errors import Conflict, Usage
from streamvault.common.progress import Progress
from streamvault.common.verb import verb
from streamvault.exporter.archived_events import rewrite_range
from streamvault.exporter.convert.plan import ANOTHER_ROOT, draft_conversion
from streamvault.exporter.convert.run import convert_generation, next_part
from streamvault.exporter.options import ConvertOptions
from streamvault.exporter.plan import PlannedGeneration
from streamvault.exporter.reports import ConvertReport
from streamvault.layouts.layout import layout_of, open_layout
from streamvault.layouts.windows import check_window
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.history import Generation, History
from streamvault.manifests.archive.listing import manifest_lost
from streamvault.manifests.archive.plan import Plan
from streamvault.manifests.verbs.costs import cost_of_conversion
from streamvault.objectstore.uri import RootAddress
from streamvault.reading.archive_source import ArchiveState
from streamvault.sparkrun.opening import open_runner


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
        return _planned(report, _rehearse(todo, target, options))
    begin = source.listing().decision.begin
    # a new archive has none of the generations that have expired here
    target.decide(lambda listing: listing.begin_after(history.first - 1, begin))
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


def _planned(report: ConvertReport, planned: PlannedGeneration | None) -> ConvertReport:
    """Return the report with the plan that was resumed or given up, if there is one: only the first can be."""
    if planned is None:
        return report
    return replace(report, **{name: getattr(report, name) or plan for name, plan in planned.described().items()})


def _rehearse(todo: Sequence[Generation], target: Archive, options: ConvertOptions) -> PlannedGeneration | None:
    part = next_part(todo[0], target, options) if todo else None
    return None if part is None else draft_conversion(target, Plan.of(part.manifest), restart=options.restart)


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
