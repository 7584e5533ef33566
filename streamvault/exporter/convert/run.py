"""Copies an archive to another root in another layout, with the same generations, ranges and digests.

A generation of the new archive gets the plan that an export would have. So a conversion is resumed, raced and checked
like an export, and an export of the stream could finish it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from streamvault.common.errors import Conflict, Damaged
from streamvault.common.progress import Progress
from streamvault.common.version import TOOL
from streamvault.exporter.archived_events import verified_events, write_again
from streamvault.exporter.cleanup import clean_up, overlapping_plans, remove_work_files
from streamvault.exporter.convert.plan import ANOTHER_ROOT, draft_conversion
from streamvault.exporter.options import ConvertOptions
from streamvault.exporter.plan import PlannedGeneration, record_end, settle
from streamvault.layouts.layout import Compression, LayoutName, StoredRange, open_layout
from streamvault.layouts.object_keys import GenerationSpan
from streamvault.layouts.place import PlaceAddress
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.history import Generation
from streamvault.manifests.archive.listing import Listing
from streamvault.manifests.archive.plan import Plan, current_plan
from streamvault.manifests.archive.range_bytes import read_verified
from streamvault.manifests.archive.remainder import Remainder, remainder_of
from streamvault.manifests.archive.rows import FinishedSpan, RangeEntry, find_rows, leave_row
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.manifests.format.manifest import Manifest
from streamvault.sparkrun.runner import Runner
from streamvault.streamstore.arithmetic.splitting import EventBlock
from streamvault.streamstore.model import SegmentId, StreamCut


@dataclass(frozen=True, slots=True)
class ConvertTask:
    """Arguments of a task that converts one range.

    Attributes:
        source: the old archive.
        target: the new archive.
        row: the range in the old archive.
        stored: its layout in the old archive.
        start: offset of the first byte to write; the range's start, unless the new archive has a part of it.
        end: offset after the last byte to write.
        span: the generation.
        attempt: the plan's attempt.
        layout: the new layout.
        compression: the new compression.
        window: maximum data buffered in memory (bytes).
    """

    source: PlaceAddress
    target: PlaceAddress
    row: ArchivedRange
    stored: LayoutName
    start: int
    end: int
    span: GenerationSpan
    attempt: int
    layout: LayoutName
    compression: Compression
    window: int


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
    manifest, attempt, parts = part.manifest, planned.attempt, part.parts
    done: dict[SegmentId, list[RangeEntry]] = {}
    if planned.resumed:
        for segment, row in find_rows(archive.place, manifest.span, attempt=attempt):
            done.setdefault(segment, []).extend(row.ranges)
    total = sum(row.end - start for row, start in parts)
    finished = sum(one.end - one.start for held in done.values() for one in held)
    progress.begin(f"converting generation {manifest.generation}", total, finished)
    moved = 0
    # An earlier run may have written ranges with other bounds, if the old archive has been compacted since: keep them.
    target = archive.address.probe(total - finished)
    while missing := list(_missing(parts, done)):
        tasks = [
            ConvertTask(
                source=source.address,
                target=target,
                row=row,
                stored=generation.manifest.layout,
                start=start,
                end=end,
                span=manifest.span,
                attempt=attempt,
                layout=manifest.layout,
                compression=manifest.compression,
                window=options.window,
            )
            for row, start, end in missing
        ]
        for index, written in runner.run(convert_range, tasks, progress=progress):
            done.setdefault(tasks[index].row.segment, []).append(written)
            moved += written.end - written.start
            progress.advance(written.events, written.end - written.start)
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


def _missing(
    parts: Iterable[tuple[ArchivedRange, int]], done: Mapping[SegmentId, Sequence[RangeEntry]]
) -> Iterator[tuple[ArchivedRange, int, int]]:
    """Yield the parts of ranges that were not converted yet, as (range, start, end)."""
    for row, start in parts:
        at = start
        for one in sorted(done.get(row.segment, ()), key=lambda one: one.start):
            if at < one.end and one.start < row.end:
                if at < one.start:
                    yield row, at, one.start
                at = one.end
        if at < row.end:
            yield row, at, row.end


def convert_range(task: ConvertTask) -> RangeEntry:
    """Convert one range. Repeated and concurrent calls write the same objects.

    Raises:
        Damaged: its bytes differ from the manifest.
    """
    row, place = task.row, task.target.open()
    layout = open_layout(task.layout, task.compression)
    if row.is_large:
        data = read_verified(task.source.open(), task.stored, row, task.window)
        written = layout.write_large(place, row.stored, data, task.window)
        archived = RangeEntry(start=row.start, end=row.end, events=row.events, digest=row.digest, **written._asdict())
    else:
        if layout.one_object_per_event:
            for _ in _blocks(task):
                pass  # verify before writing: objects with wrong bytes would block the right ones
        to = StoredRange(row.segment, task.start, task.end)
        archived = write_again(place, layout, to, _blocks(task), task.window)
    finished = FinishedSpan(start=task.start, end=task.end, ranges=(archived,))
    return leave_row(place, task.span, row.segment, finished, attempt=task.attempt).ranges[0]


def _blocks(task: ConvertTask) -> Iterator[EventBlock]:
    part = (task.start, task.end)
    return verified_events(task.source.open(), task.stored, task.row, task.window, part=part)


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
