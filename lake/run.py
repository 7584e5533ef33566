"""Handing generations of an archive to a table: its files, then its manifest, and last the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from lake.files import files_of
from lake.options import TableOptions
from lake.plan import TablePlan, draft_plan, find_plan, finished, fix_plan
from lake.sources import wanted_ranges
from lake.task import FileTask, WrittenFile, write_file
from manifests.archive import Archive
from manifests.history import History
from manifests.marks import Dropped
from manifests.model import Manifest
from objectstore.errors import AlreadyExists
from objectstore.keys import dropped_key
from objectstore.uri import RootAddress
from problems import Conflict
from sparkrun.progress import Progress
from sparkrun.runner import Runner

__all__ = ["HandedOff", "Handoff", "hand_off", "plans_of", "tasks_of"]


@dataclass(frozen=True, slots=True)
class HandedOff:
    """What became of some generations.

    Attributes:
        plans: what they are. files, file_bytes: that they have. moved_bytes: segment bytes that this run wrote.
        undecoded: events among those whose payload did not decode.
    """

    plans: tuple[TablePlan, ...] = ()
    files: int = 0
    file_bytes: int = 0
    moved_bytes: int = 0
    undecoded: int = 0

    def with_file(self, written: WrittenFile) -> HandedOff:
        """With one file more."""
        return replace(
            self,
            files=self.files + 1,
            file_bytes=self.file_bytes + written.size,
            moved_bytes=self.moved_bytes + written.moved,
            undecoded=self.undecoded + max(written.undecoded, 0),
        )


@dataclass(frozen=True, slots=True)
class Handoff:
    """Where from and where to.

    Attributes:
        source: the archive's root. prefix: the archive in it. history: its generations in force.
        target: the table's root. table: the copy of the archive that the table is.
        options: the table's. window: bytes that a task may hold of what is on its way.
    """

    source: RootAddress
    prefix: str
    history: History
    target: RootAddress
    table: Archive
    options: TableOptions
    window: int


def plans_of(handoff: Handoff) -> Iterator[TablePlan]:
    """What would be handed off, generation by generation; nothing is written.

    Raises:
        Conflict: as `hand_off`.
    """
    last = handoff.table.newest()
    while (plan := _next_plan(handoff, last)) is not None:
        yield plan
        last = plan.manifest


def tasks_of(handoff: Handoff, plan: TablePlan) -> list[FileTask]:
    """A task for each file of a generation.

    Raises:
        Damaged: the archive has not got some of it.
    """
    return [
        FileTask(
            source=handoff.source,
            target=handoff.target,
            prefix=handoff.prefix,
            generation=plan.generation,
            ranges=ranges,
            options=handoff.options,
            window=handoff.window,
        )
        for ranges in files_of(wanted_ranges(plan, handoff.history), handoff.options.target_size)
    ]


def hand_off(handoff: Handoff, runner: Runner, progress: Progress) -> HandedOff:
    """Write what the table has not got yet of the archive, oldest first. After a kill the same call goes on.

    A generation belongs to the table once its manifest is there, which is written last.

    Raises:
        Damaged: the archive's bytes are not what its manifest says, or are gone; the generation is not published.
        Conflict: something else is in the table's place, or what follows the table's end is no part of the archive.
    """
    done = HandedOff()
    table = handoff.table
    while (draft := _next_plan(handoff, table.newest())) is not None:
        plan = fix_plan(table.store, table.prefix, draft)
        _check_there(handoff, plan)
        tasks = tasks_of(handoff, plan)
        progress.begin(f"handing off generation {plan.generation}", plan.manifest.bytes)
        written: dict[int, WrittenFile] = {}
        for index, file in runner.run(write_file, tasks):
            written[index] = file
            progress.advance(sum(row.events for row in file.ranges), sum(row.end - row.start for row in file.ranges))
            done = done.with_file(file)
        rows = [row for index in range(len(tasks)) for row in written[index].ranges]
        manifest = finished(plan, rows, table.uri)
        _begin(table, plan)
        table.commit(manifest, rows)
        done = replace(done, plans=(*done.plans, plan))
    return done


def _next_plan(handoff: Handoff, last: Manifest | None) -> TablePlan | None:
    """What follows in the table: as it was planned already, or as the archive is now; None if it has all.

    Args:
        handoff: where from and where to.
        last: the table's newest generation; None if it has none.
    """
    table, history = handoff.table, handoff.history
    after = 0 if last is None else last.generation
    plan = find_plan(table.store, table.prefix, after)
    if plan is None:
        generation = next((one for one in history.generations if one.manifest.generation > after), None)
        if generation is None:
            return None
        if last is not None:
            _check_not_expired(handoff, after + 1)
        plan = draft_plan(generation, last, table.uri)
    _check_there(handoff, plan)
    return plan


def _check_there(handoff: Handoff, plan: TablePlan) -> None:
    """Raise `Conflict` unless the archive has what was planned, by now or by another run."""
    _check_not_expired(handoff, plan.first)
    if plan.generation > handoff.history.generation:
        what = f"another run hands off generation {plan.generation}, which is newer than this run knows"
        raise Conflict(what, where=handoff.table.uri, todo="Run the same command again.")


def _check_not_expired(handoff: Handoff, number: int) -> None:
    first = handoff.history.first
    if number < first:
        gone = f"generation {number}" if number == first - 1 else f"generations {number} to {first - 1}"
        raise Conflict(
            f"{gone} expired before the table had got all of it",
            where=handoff.table.uri,
            todo="Begin another table (--table NAME); it begins where the archive does now.",
        )


def _begin(table: Archive, plan: TablePlan) -> None:
    """Say that the table begins where it does, if that is not the archive's own beginning."""
    number = plan.first - 1
    if plan.after or not number:
        return
    stream = table.stream
    mark = Dropped(scope=stream.scope, stream=stream.stream, generation=number, first=1, stretches=())
    with suppress(AlreadyExists):
        table.store.put(table.prefix + dropped_key(number), mark.encode())
