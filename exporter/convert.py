"""An archive written again in another layout: the same generations, ranges and digests, below another root.

A generation of the new archive gets the plan that an export of it would have: so a conversion is resumed, raced and
checked like an export, and the stream itself could finish it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from exporter.planned import plan_of
from exporter.proving import proved_blocks
from exporter.tidy import tidy_up
from manifests.archive import Archive, Generation
from manifests.listing import Listing
from manifests.model import Compression, Layout, Manifest
from manifests.plan import create_plan
from manifests.range_row import RangeRow
from manifests.rows import FinishedRange, Piece, find_rows, leave_row
from objectstore.layouts import open_layout
from objectstore.uri import RootAddress
from problems import Conflict
from sparkrun.progress import Progress
from sparkrun.runner import Runner
from streamstore.splitting import EventBlock

__all__ = ["Converted", "convert_generation"]


@dataclass(frozen=True, slots=True)
class ConvertTask:
    """All that a task needs to write one range again.

    Attributes:
        source, target: the roots. prefix: the archive below either.
        row: the range. stored: the layout it has.
        generation, first, layout, compression: what it becomes.
        window: bytes to hold in memory at most, of what is on its way.
    """

    source: RootAddress
    target: RootAddress
    prefix: str
    row: RangeRow
    stored: Layout
    generation: int
    first: int
    layout: Layout
    compression: Compression
    window: int


@dataclass(frozen=True, slots=True)
class Converted:
    """What became of a generation: whether it was there already, and how many bytes this run wrote of it."""

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
    """Write one generation again; those before it have been.

    Args:
        source: the old archive's root, and the generation.
        target: the new archive's root, and the archive.
        runner: where tasks run.
        progress: told how it goes on.
        layout: of the new archive.
        compression: of its chunks.
        window: bytes that a task may hold of what is on its way.
        tool: name and version to note in the manifest.

    Raises:
        Conflict: the new archive has another generation of this number, or an export of another kind is under way.
        Damaged: a range's bytes are not what the manifest says; nothing is published.
    """
    (old_root, generation), (new_root, archive) = source, target
    wanted = generation.manifest.model_copy(update={"layout": layout, "compression": compression, "tool": tool})
    listing = archive.listing()
    if listing.newest >= wanted.first:
        _check_same(archive, listing, wanted)
        tidy_up(archive, wanted.generation, progress, wanted.first)
        return Converted(unchanged=True, moved_bytes=0)
    planned = plan_of(wanted)
    found, created = create_plan(archive.store, archive.prefix, planned)
    if found != planned:
        todo = "Finish or remove it, or convert to another root."
        raise Conflict("another run is under way there with other options", where=archive.uri, todo=todo)
    done: dict[tuple[object, int], Piece] = {}
    if not created:
        for segment, row in find_rows(archive.store, archive.prefix, wanted.generation, wanted.first):
            done.update({(segment, piece.start): piece for piece in row.pieces})
    rows = [row for segment in sorted(generation.rows) for row in generation.rows[segment]]
    tasks = [
        ConvertTask(
            source=old_root,
            target=new_root,
            prefix=archive.prefix,
            row=row,
            stored=generation.manifest.layout,
            generation=wanted.generation,
            first=wanted.first,
            layout=layout,
            compression=compression,
            window=window,
        )
        for row in rows
        if (row.segment, row.start) not in done
    ]
    progress.begin(
        f"converting generation {wanted.generation}", wanted.bytes, sum(p.end - p.start for p in done.values())
    )
    moved = 0
    for index, piece in runner.run(convert_range, tasks):
        done[tasks[index].row.segment, piece.start] = piece
        moved += piece.end - piece.start
        progress.advance(piece.events, piece.end - piece.start)
    archive.commit(wanted, [_converted(row, done[row.segment, row.start]) for row in rows])
    tidy_up(archive, wanted.generation, progress, wanted.first)
    return Converted(unchanged=False, moved_bytes=moved)


def convert_range(task: ConvertTask) -> Piece:
    """Write one range again. Doing it twice, or in two places at once, writes the same objects.

    Raises:
        Damaged: its bytes are not what the manifest says.
    """
    row, target = task.row, task.target.open()
    if task.layout == "events":
        for _ in _blocks(task):
            pass  # proved before anything is written: objects of wrong bytes would be in the way of the right ones
    written = open_layout(task.layout, task.compression).write_run(
        target, task.prefix, row.segment.epoch, row.segment.number, _blocks(task), task.window
    )
    piece = Piece(start=row.start, end=row.end, events=row.events, digest=row.digest, frames=written.frames)
    finished = FinishedRange(start=row.start, end=row.end, pieces=(piece,))
    return leave_row(target, task.prefix, task.generation, row.segment, finished, first=task.first).pieces[0]


def _blocks(task: ConvertTask) -> Iterator[EventBlock]:
    return proved_blocks(task.source.open(), task.prefix, task.stored, task.row, task.window)


def _converted(row: RangeRow, piece: Piece) -> RangeRow:
    return RangeRow(row.segment, row.start, row.end, row.events, row.digest, piece.frames)


def _check_same(archive: Archive, listing: Listing, wanted: Manifest) -> None:
    """Refuse another stream's archive; here or there, generations may have been merged since."""
    holder = listing.holder(wanted.generation)
    if holder is None:
        raise Conflict(
            f"the archive there ends with generation {listing.newest}, and the old one has merged it with later ones",
            where=archive.uri,
            todo="Convert to another root.",
        )
    found = archive.read_manifest(holder, listing.first_of(holder))
    if not wanted.replaces:
        is_same = found.is_same(wanted)
    else:
        ends = {one.generation: (one.to, one.created) for one in found.replaces}
        ends[found.generation] = (found.to, found.created)
        is_same = ends.get(wanted.generation) == (wanted.to, wanted.created)
    if not is_same:
        raise Conflict(
            f"generation {found.generation} of another archive is already there",
            where=archive.uri,
            todo="Convert to another root.",
        )
