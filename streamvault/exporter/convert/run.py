"""Copies an archive to another root in another layout, with the same generations, ranges and digests.

A generation of the new archive gets the plan that an export would have. So a conversion is resumed, raced and checked
like an export, and an export of the stream could finish it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamvault.common.errors import Conflict, Damaged
from streamvault.common.progress import Progress
from streamvault.exporter.archived_events import verified_events
from streamvault.exporter.finish import tidy_up
from streamvault.exporter.manifest_plan import plan_of
from streamvault.exporter.plan_options import other_options_error
from streamvault.layouts.keys import WORK, GenerationSpan, parse_work
from streamvault.layouts.layout import open_layout
from streamvault.layouts.place import Place
from streamvault.manifests.archive import Archive, Generation
from streamvault.manifests.archived_range import read_verified
from streamvault.manifests.listing import Listing
from streamvault.manifests.model import Compression, Layout, Manifest
from streamvault.manifests.plan import Plan, create_plan
from streamvault.manifests.range_row import RangeRow
from streamvault.manifests.remainder import Remainder, finish, remainder_of
from streamvault.manifests.rows import FinishedRange, Piece, find_rows, leave_row
from streamvault.objectstore.uri import RootAddress
from streamvault.sparkrun.runner import Runner
from streamvault.streamstore.model import SegmentId
from streamvault.streamstore.splitting import EventBlock

__all__ = ["Converted", "convert_generation"]


@dataclass(frozen=True, slots=True)
class ConvertTask:
    """Arguments of a task that converts one range.

    Attributes:
        source: the old archive's root.
        target: the new archive's root.
        prefix: the archive's folder below either root.
        row: the range in the old archive.
        stored: its layout in the old archive.
        start: offset of the first byte to write; the range's start, unless the new archive has a part of it.
        end: offset after the last byte to write.
        span: the generation.
        layout: the new layout.
        compression: the new compression.
        window: maximum data buffered in memory (bytes).
    """

    source: RootAddress
    target: RootAddress
    prefix: str
    row: RangeRow
    stored: Layout
    start: int
    end: int
    span: GenerationSpan
    layout: Layout
    compression: Compression
    window: int


@dataclass(frozen=True, slots=True)
class Converted:
    """Result of converting a generation: whether it already existed, and the bytes written by this run."""

    unchanged: bool
    moved_bytes: int


def convert_generation(
    source: tuple[RootAddress, Generation],
    target: tuple[RootAddress, Archive],
    runner: Runner,
    progress: Progress,
    *,
    layout: Layout,
    compression: Compression,
    window: int,
    tool: str,
) -> Converted:
    """Convert one generation; earlier ones have been converted.

    Args:
        source: the old archive's root, and the generation.
        target: the new archive's root, and the archive.
        runner: runs the tasks.
        progress: receives the progress.
        layout: the new layout.
        compression: the compression of its chunks.
        window: maximum data a task buffers in memory (bytes).
        tool: name and version of the program, for the manifest.

    Raises:
        Usage: an unfinished conversion has other options.
        Conflict: the new archive has a different generation of this number, or another plan of it.
        Damaged: a range's bytes differ from the manifest; nothing is published.
    """
    (old_root, generation), (new_root, archive) = source, target
    wanted = generation.manifest.model_copy(update={"layout": layout, "compression": compression, "tool": tool})
    listing = archive.listing()
    parts = [(row, row.start) for segment in sorted(generation.rows) for row in generation.rows[segment]]
    if listing.newest >= wanted.generation:
        _check_same(archive, listing, wanted)
        tidy_up(archive, wanted.span, progress)
        return Converted(unchanged=True, moved_bytes=0)
    remainder: Remainder | None = None
    if listing.newest >= wanted.first:  # the old archive has merged converted generations with others
        _check_same_end(archive, wanted)
        remainder = remainder_of(Generation(wanted, generation.rows), listing.newest)
        wanted, parts = remainder.manifest, list(remainder.parts)
    planned = plan_of(wanted)
    found, created = create_plan(archive.store, archive.prefix, planned)
    _check_same_plan(found, planned, archive)
    done: dict[SegmentId, list[Piece]] = {}
    if not created:
        for segment, row in find_rows(archive.store, archive.prefix, wanted.span):
            done.setdefault(segment, []).extend(row.pieces)
    total = sum(row.end - start for row, start in parts)
    progress.begin(
        f"converting generation {wanted.generation}",
        total,
        sum(p.end - p.start for held in done.values() for p in held),
    )
    moved = 0
    # An earlier run may have written ranges with other bounds, if the old archive has been compacted since: keep them.
    while missing := list(_missing(parts, done)):
        tasks = [
            ConvertTask(
                source=old_root,
                target=new_root,
                prefix=archive.prefix,
                row=row,
                stored=generation.manifest.layout,
                start=start,
                end=end,
                span=wanted.span,
                layout=layout,
                compression=compression,
                window=window,
            )
            for row, start, end in missing
        ]
        for index, piece in runner.run(convert_range, tasks):
            done.setdefault(tasks[index].row.segment, []).append(piece)
            moved += piece.end - piece.start
            progress.advance(piece.events, piece.end - piece.start)
    rows = [
        RangeRow(segment, piece.start, piece.end, piece.events, piece.digest, piece.frames)
        for segment in sorted(done)
        for piece in sorted(done[segment], key=lambda piece: piece.start)
    ]
    archive.commit(wanted if remainder is None else finish(remainder, rows, archive.uri), rows)
    for span in filter(None, map(parse_work, archive.store.folders(archive.prefix + WORK))):
        if wanted.first <= span.first and span.last <= wanted.generation:  # its own, and those of merged originals
            tidy_up(archive, span, progress)
    return Converted(unchanged=False, moved_bytes=moved)


def _check_same_plan(found: Plan, planned: Plan, archive: Archive) -> None:
    """Reject the plan of a conversion with other options, or of something else."""
    if found == planned:
        return
    where = f"{archive.uri}, generation {planned.generation}"
    if found == planned.model_copy(update={"layout": found.layout, "compression": found.compression}):
        begun = [f"--layout {found.layout}", f"--compress {found.compression or 'none'}"]
        raise other_options_error(begun, where, "Give these options to finish it, or convert to another root.")
    todo = "Finish it, or convert to another root."
    raise Conflict("an export or another conversion has begun the generation", where=where, todo=todo)


def _missing(
    parts: Iterable[tuple[RangeRow, int]], done: Mapping[SegmentId, Sequence[Piece]]
) -> Iterator[tuple[RangeRow, int, int]]:
    """Yield the parts of ranges that no piece covers, as (range, start, end)."""
    for row, start in parts:
        at = start
        for piece in sorted(done.get(row.segment, ()), key=lambda piece: piece.start):
            if at < piece.end and piece.start < row.end:
                if at < piece.start:
                    yield row, at, piece.start
                at = piece.end
        if at < row.end:
            yield row, at, row.end


def convert_range(task: ConvertTask) -> Piece:
    """Convert one range. Repeated and concurrent calls write the same objects.

    Raises:
        Damaged: its bytes differ from the manifest.
    """
    row, target = task.row, task.target.open()
    layout, place = open_layout(task.layout, task.compression), Place(target, task.prefix)
    if row.is_large:
        data = read_verified(Place(task.source.open(), task.prefix), task.stored, row, task.window)
        written = layout.write_large(place, row.extent, data, task.window)
        piece = Piece(start=row.start, end=row.end, events=row.events, digest=row.digest, frames=written.frames)
    else:
        if layout.one_object_per_event:
            for _ in _blocks(task):
                pass  # verify before writing: objects with wrong bytes would block the right ones
        digest, count = hashlib.sha256(), 0

        def counted() -> Iterator[EventBlock]:
            nonlocal count
            for block in _blocks(task):
                digest.update(block.data)
                count += block.count
                yield block

        written = layout.write_run(place, row.segment, counted(), task.window)
        piece = Piece(start=task.start, end=task.end, events=count, digest=digest.hexdigest(), frames=written.frames)
    finished = FinishedRange(start=task.start, end=task.end, pieces=(piece,))
    return leave_row(target, task.prefix, task.span, row.segment, finished).pieces[0]


def _blocks(task: ConvertTask) -> Iterator[EventBlock]:
    part = (task.start, task.end)
    return verified_events(Place(task.source.open(), task.prefix), task.stored, task.row, task.window, part=part)


def _check_same_end(archive: Archive, wanted: Manifest) -> None:
    """Reject a target archive that does not end like an original generation of the merged one."""
    newest = archive.manifest()
    ends = {one.generation: (one.to, one.created) for one in wanted.replaces}
    if ends.get(newest.generation) != (newest.to, newest.created):
        raise Conflict(
            f"the target has generation {newest.generation} of another archive",
            where=archive.uri,
            todo="Convert to another root.",
        )


def _check_same(archive: Archive, listing: Listing, wanted: Manifest) -> None:
    """Reject the archive of another stream; in either archive, generations may have been merged meanwhile."""
    holder = listing.holder(wanted.generation)
    if holder is None:
        raise Damaged(f"the manifest of generation {wanted.generation} is missing", where=archive.uri)
    found = archive.read_manifest(holder)
    if not wanted.replaces:
        is_same = found.is_same(wanted)
    else:
        ends = {one.generation: (one.to, one.created) for one in found.replaces}
        ends[found.generation] = (found.to, found.created)
        is_same = ends.get(wanted.generation) == (wanted.to, wanted.created)
    if not is_same:
        raise Conflict(
            f"the target has generation {found.generation} of another archive",
            where=archive.uri,
            todo="Convert to another root.",
        )
