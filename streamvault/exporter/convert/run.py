"""Copies an archive to another root in another layout, with the same generations, ranges and digests.

A generation of the new archive gets the plan that an export would have. So a conversion is resumed, raced and checked
like an export, and an export of the stream could finish it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from streamvault.common.errors import Conflict, Damaged
from streamvault.common.progress import Progress
from streamvault.common.version import TOOL
from streamvault.exporter.archived_events import RewriteTask, rewrite_ranges
from streamvault.exporter.cleanup import clean_up, overlapping_plans, remove_work_files
from streamvault.exporter.convert.plan import ANOTHER_ROOT, draft_conversion
from streamvault.exporter.options import ConvertOptions
from streamvault.exporter.plan import PlannedGeneration, record_end, settle
from streamvault.layouts.object_keys import GenerationSpan
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.history import Generation
from streamvault.manifests.archive.listing import Listing
from streamvault.manifests.archive.plan import Plan, current_plan
from streamvault.manifests.archive.remainder import Remainder, remainder_of
from streamvault.manifests.archive.rows import RangeEntry, find_rows
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.manifests.format.manifest import Manifest
from streamvault.sparkrun.runner import Runner
from streamvault.streamstore.model import SegmentId, StreamCut


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
    stored, window = generation.manifest.layout, options.window
    to = (archive.address, manifest.layout, manifest.compression, manifest.span, attempt)
    task = RewriteTask(source.address, stored, *to, window)
    # An earlier run may have written ranges with other bounds, if the old archive has been compacted since: keep them.
    tasks = [task.of((row,), start) for row, start in part.parts]
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
