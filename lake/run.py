"""Run of a handoff: write each generation's files, then its manifest."""

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
    """Result of a handoff.

    Attributes:
        manifests: manifests of the added generations.
        files: number of their files.
        file_bytes: size of their files.
        moved_bytes: segment bytes that this run wrote.
        undecoded: events written by this run whose payload could not be decoded.
    """

    manifests: tuple[Manifest, ...] = ()
    files: int = 0
    file_bytes: int = 0
    moved_bytes: int = 0
    undecoded: int = 0

    def with_file(self, written: WrittenFile) -> HandedOff:
        """Return a copy that includes one more file."""
        return replace(
            self,
            files=self.files + 1,
            file_bytes=self.file_bytes + written.size,
            moved_bytes=self.moved_bytes + written.moved,
            undecoded=self.undecoded + max(written.undecoded, 0),
        )


@dataclass(frozen=True, slots=True)
class Handoff:
    """Source and destination of a handoff.

    Attributes:
        origin: the table's origin.
        target: the table's root.
        table: the copy of an archive that the table is.
        options: the table's options.
    """

    origin: Origin
    target: RootAddress
    table: Archive
    options: TableOptions


def plans_of(handoff: Handoff) -> Iterator[TablePlan]:
    """Yield the plans of all missing generations; nothing is written, and ranges are not proved.

    Raises:
        Conflict: as `hand_off`.
    """
    last = handoff.table.newest()
    while (following := _following(handoff, last)) is not None:
        plan, _ = following
        yield plan
        last = plan.manifest


def tasks_of(handoff: Handoff, plan: TablePlan) -> list[FileTask]:
    """Return a task for each file of a generation.

    Raises:
        Damaged: the archive lacks some of its ranges.
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
    """Write the generations that the table lacks, oldest first. After a kill, repeat the call to resume.

    A generation becomes part of the table with its manifest, which is written last.

    Raises:
        Damaged: the archive's bytes are missing or do not match the manifest; the generation is not published.
        Conflict: another table is at the location, or the origin does not continue the table's stream.
        NotEvents, InvalidCut: the stream contains other data than events, or ends inside an event; the plan can never
            be finished and is given up: its generation stays empty.
    """
    done = HandedOff()
    table, origin = handoff.table, handoff.origin
    while True:
        last = table.newest()
        if last is not None and is_empty(last):
            _blank(handoff, plan_of(table.store, table.prefix, last))  # repeats it if a run was killed in the middle
        following = _following(handoff, last)
        if following is None:
            return done
        plan, is_fixed = following
        if not is_fixed:
            # after a plan was given up, read everything before recording the next: else each attempt adds a generation
            proved = origin.prove(plan, runner, progress, all_of_it=last is not None and is_empty(last))
            plan = fix_plan(table.store, table.prefix, proved)
            origin.check(plan, table.uri)
        done = _finish(handoff, plan, done, runner, progress)


def _finish(handoff: Handoff, plan: TablePlan, done: HandedOff, runner: Runner, progress: Progress) -> HandedOff:
    """Carry out a plan and publish its generation, empty if the plan was given up; return the totals."""
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
    """Write a generation's files; return the totals, and the files' ranges."""
    tasks = tasks_of(handoff, plan)
    progress.begin(f"handing off generation {plan.generation}", plan.manifest.bytes)
    written: dict[int, WrittenFile] = {}
    for index, file in runner.run(write_file, tasks):
        written[index] = file
        progress.advance(sum(row.events for row in file.ranges), sum(row.end - row.start for row in file.ranges))
        done = done.with_file(file)
    return done, [row for index in range(len(tasks)) for row in written[index].ranges]


def _give_up(handoff: Handoff, plan: TablePlan) -> None:
    """Publish a plan that was given up as an empty generation, so that the next one has another number.

    It then has another folder, too: files that a late task of this plan writes are never registered.
    """
    table = handoff.table
    table.commit(empty_generation(plan, table.manifest(plan.after) if plan.after else None), ())
    _blank(handoff, plan)


def _gave_up(table: Archive, plan: TablePlan) -> Conflict:
    what = f"another run abandoned generation {plan.generation} in the meantime"
    return Conflict(what, where=table.uri, todo="Run the same command again.")


def _blank(handoff: Handoff, plan: TablePlan) -> None:
    """Write files without rows in place of a plan's files, none of which belongs to the published generation."""
    with suppress(AccessDenied):
        for task in tasks_of(handoff, plan):
            blank_file(task)


def _following(handoff: Handoff, last: Manifest | None) -> tuple[TablePlan, bool] | None:
    """Return the next plan, and whether it is recorded already; None if the table is up to date.

    Args:
        handoff: source and destination.
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
    """Record the table's first generation if it is not the archive's first."""
    before = plan.first - 1

    def change(listing: Listing) -> Decision | None:
        return None if listing.newest else listing.decision.expire(before).sweep(before)

    if before and not plan.after:
        table.decide(change)
