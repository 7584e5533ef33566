"""Handing a stream or its archive to a table: a generation's files, then its manifest, and last the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from common.errors import Conflict
from common.progress import Progress
from exporter.ranges import NotEvents
from lake.files import files_of
from lake.options import TableOptions
from lake.origin import Origin
from lake.plan import (
    TablePlan,
    empty_generation,
    end_plan,
    find_end,
    find_plan,
    finished,
    fix_plan,
    is_empty,
    plan_of,
)
from lake.task import FileTask, WrittenFile, blank_file, write_file
from layouts.keys import table_data
from manifests.archive import Archive
from manifests.listing import Listing
from manifests.marks import Decision
from manifests.model import Manifest
from manifests.range_row import RangeRow
from objectstore.errors import AccessDenied
from objectstore.uri import RootAddress
from sparkrun.runner import Runner
from streamstore.errors import InvalidCut

__all__ = ["HandedOff", "Handoff", "hand_off", "plans_of", "tasks_of"]


@dataclass(frozen=True, slots=True)
class HandedOff:
    """What became of some generations.

    Attributes:
        manifests: theirs. files, file_bytes: that they have. moved_bytes: segment bytes that this run wrote.
        undecoded: events among those whose payload did not decode.
    """

    manifests: tuple[Manifest, ...] = ()
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
        origin: what the table is made of.
        target: the table's root. table: the copy of an archive that the table is.
        options: the table's.
    """

    origin: Origin
    target: RootAddress
    table: Archive
    options: TableOptions


def plans_of(handoff: Handoff) -> Iterator[TablePlan]:
    """What would be handed off, generation by generation; nothing is written, and ranges are not proved.

    Raises:
        Conflict: as `hand_off`.
    """
    last = handoff.table.newest()
    while (following := _following(handoff, last)) is not None:
        plan, _ = following
        yield plan
        last = plan.manifest


def tasks_of(handoff: Handoff, plan: TablePlan) -> list[FileTask]:
    """A task for each file of a generation.

    Raises:
        Damaged: the archive has not got some of it.
    """
    return [
        FileTask(
            source=handoff.origin.source,
            target=handoff.target,
            folder=table_data(handoff.table.prefix),
            generation=plan.generation,
            ranges=ranges,
            options=handoff.options,
        )
        for ranges in files_of(handoff.origin.ranges(plan), handoff.options.target_size)
    ]


def hand_off(handoff: Handoff, runner: Runner, progress: Progress) -> HandedOff:
    """Write what the table has not got yet, oldest first. After a kill the same call goes on.

    A generation belongs to the table once its manifest is there, which is written last.

    Raises:
        Damaged: the archive's bytes are not what its manifest says, or are gone; the generation is not published.
        Conflict: something else is in the table's place, or what follows the table's end is not of the same stream.
        NotEvents, InvalidCut: the stream holds something else than events, or ended inside of one; the plan, which can
            never be finished, is given up: its generation stays empty.
    """
    done = HandedOff()
    table, origin = handoff.table, handoff.origin
    while True:
        last = table.newest()
        if last is not None and is_empty(last):
            _blank(handoff, plan_of(table.store, table.prefix, last))  # also after a kill in the middle of it
        following = _following(handoff, last)
        if following is None:
            return done
        plan, is_fixed = following
        if not is_fixed:
            # where a plan was given up all is read before the next is fixed: else each attempt would leave a generation
            proved = origin.prove(plan, runner, progress, all_of_it=last is not None and is_empty(last))
            plan = fix_plan(table.store, table.prefix, proved)
            origin.check(plan, table.uri)
        done = _finish(handoff, plan, done, runner, progress)


def _finish(handoff: Handoff, plan: TablePlan, done: HandedOff, runner: Runner, progress: Progress) -> HandedOff:
    """Publish what was planned, or that it was given up; returns what was done by then."""
    table = handoff.table
    end = find_end(table.store, table.prefix, plan.after)
    if end is not None and end.given_up:
        _give_up(handoff, plan)
        return done
    try:
        done, rows = _write(handoff, plan, done, runner, progress)
    except (NotEvents, InvalidCut):
        if end_plan(table.store, table.prefix, plan.after, given_up=True):
            _give_up(handoff, plan)
        raise
    except Conflict:
        end = find_end(table.store, table.prefix, plan.after)
        if end is not None and end.given_up:  # the names of its files are taken
            raise _gave_up(table, plan) from None
        raise
    manifest = finished(plan, rows, table.uri)
    if end_plan(table.store, table.prefix, plan.after, given_up=False):
        raise _gave_up(table, plan)
    _begin(table, plan)
    table.commit(manifest, rows)
    return replace(done, manifests=(*done.manifests, manifest))


def _write(
    handoff: Handoff, plan: TablePlan, done: HandedOff, runner: Runner, progress: Progress
) -> tuple[HandedOff, list[RangeRow]]:
    """Write a generation's files; returns what was done by then, and what they hold."""
    tasks = tasks_of(handoff, plan)
    progress.begin(f"handing off generation {plan.generation}", plan.manifest.bytes)
    written: dict[int, WrittenFile] = {}
    for index, file in runner.run(write_file, tasks):
        written[index] = file
        progress.advance(sum(row.events for row in file.ranges), sum(row.end - row.start for row in file.ranges))
        done = done.with_file(file)
    return done, [row for index in range(len(tasks)) for row in written[index].ranges]


def _give_up(handoff: Handoff, plan: TablePlan) -> None:
    """Publish a plan that is decided to be given up as a generation without events: the next has another number.

    So it has another folder, too: whatever a late task of this plan writes is no part of what catalogs are told of.
    """
    table = handoff.table
    table.commit(empty_generation(plan, table.manifest(plan.after) if plan.after else None), ())
    _blank(handoff, plan)


def _gave_up(table: Archive, plan: TablePlan) -> Conflict:
    what = f"another run gave up generation {plan.generation} meanwhile"
    return Conflict(what, where=table.uri, todo="Run the same command again.")


def _blank(handoff: Handoff, plan: TablePlan) -> None:
    """Leave files without rows where a plan's would be: the published manifest says that none is of the table."""
    with suppress(AccessDenied):
        for task in tasks_of(handoff, plan):
            blank_file(task)


def _following(handoff: Handoff, last: Manifest | None) -> tuple[TablePlan, bool] | None:
    """What follows in the table, and whether that is fixed already; None if it has all.

    Args:
        handoff: where from and where to.
        last: the table's newest generation; None if it has none.
    """
    table, origin = handoff.table, handoff.origin
    plan = find_plan(table.store, table.prefix, 0 if last is None else last.generation)
    is_fixed = plan is not None
    if plan is None:
        plan = origin.draft(last, handoff.options, table.uri)
    if plan is None:
        return None
    origin.check(plan, table.uri)
    return plan, is_fixed


def _begin(table: Archive, plan: TablePlan) -> None:
    """Say that the table begins where it does, if that is not the archive's own beginning."""
    before = plan.first - 1

    def change(listing: Listing) -> Decision | None:
        return None if listing.newest else listing.decision.expire(before).sweep(before)

    if before and not plan.after:
        table.decide(change)
