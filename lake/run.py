"""Handing generations of an archive to a table: its files, then the copy of the manifest, and last the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.files import files_of, rows_in_order
from lake.options import TableOptions
from lake.task import FileTask, write_file
from manifests.archive import Archive
from manifests.history import Generation
from objectstore.uri import RootAddress
from sparkrun.progress import Progress
from sparkrun.runner import Runner

__all__ = ["HandedOff", "Handoff", "hand_off", "tasks_of"]


@dataclass(frozen=True, slots=True)
class HandedOff:
    """What became of some generations: files, and their sizes; events, segment bytes moved, events not decoded."""

    files: int = 0
    file_bytes: int = 0
    moved_bytes: int = 0
    undecoded: int = 0


@dataclass(frozen=True, slots=True)
class Handoff:
    """Where from and where to.

    Attributes:
        source: the archive's root. target: the table's. table: the copy of the archive that the table is.
        options: the table's. window: bytes that a task may hold of what is on its way.
    """

    source: RootAddress
    target: RootAddress
    prefix: str
    table: Archive
    options: TableOptions
    window: int


def tasks_of(handoff: Handoff, generation: Generation) -> list[FileTask]:
    """A task for each file of a generation."""
    return [
        FileTask(
            source=handoff.source,
            target=handoff.target,
            prefix=handoff.prefix,
            layout=generation.layout,
            generation=generation.manifest.generation,
            rows=rows,
            options=handoff.options,
            window=handoff.window,
        )
        for rows in files_of(rows_in_order(generation), handoff.options.target_size)
    ]


def hand_off(handoff: Handoff, generations: Sequence[Generation], runner: Runner, progress: Progress) -> HandedOff:
    """Write what the table has not got yet of these generations, oldest first. After a kill the same call goes on.

    A generation belongs to the table once the copy of its manifest is there, which is written last.

    Raises:
        Damaged: the archive's bytes are not what its manifest says; the generation is not published.
        Conflict: something else is in the table's place.
    """
    done = HandedOff()
    for generation in generations:
        manifest = generation.manifest
        tasks = tasks_of(handoff, generation)
        progress.begin(f"handing off generation {manifest.generation}", manifest.bytes)
        for index, written in runner.run(write_file, tasks):
            size = sum(row.end - row.start for row in tasks[index].rows)
            progress.advance(written.events, size)
            done = HandedOff(
                done.files + 1,
                done.file_bytes + written.size,
                done.moved_bytes + written.moved,
                done.undecoded + max(written.undecoded, 0),
            )
        handoff.table.commit(manifest, list(rows_in_order(generation)))
    return done
