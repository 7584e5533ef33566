"""Run of a handoff: write each generation's files, then its manifest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from streamvault.common.errors import Conflict, Overtaken
from streamvault.common.progress import Progress
from streamvault.lake.plan import (
    TablePlan,
    empty_generation,
    end_plan,
    files_of,
    find_plan,
    finished,
    fix_plan,
    is_empty,
    is_given_up,
    published_plan,
)
from streamvault.lake.resolve import ResolvedTable
from streamvault.lake.task import FileTask, WrittenFile, blank_file, write_file
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.manifests.format.manifest import Manifest
from streamvault.objectstore.errors import AccessDenied
from streamvault.reading.ranges import NotEvents
from streamvault.sparkrun.runner import Runner
from streamvault.streamstore.errors import InvalidCut


@dataclass(slots=True)
class HandoffTotals:
    """Totals of a handoff.

    Attributes:
        manifests: manifests of the added generations.
        files: number of their files.
        file_bytes: size of their files.
        moved_bytes: segment bytes that this run wrote.
        written: events that this run wrote.
        undecoded: those of them that could not be decoded, or not all of their values.
    """

    manifests: list[Manifest] = field(default_factory=list)
    files: int = 0
    file_bytes: int = 0
    moved_bytes: int = 0
    written: int = 0
    undecoded: int = 0

    def add(self, written: WrittenFile) -> None:
        """Count a file."""
        self.files += 1
        self.file_bytes += written.size
        self.moved_bytes += written.moved
        if written.undecoded >= 0:
            self.written += sum(row.events for row in written.ranges)
            self.undecoded += written.undecoded


def plans_of(resolved: ResolvedTable) -> Iterator[TablePlan]:
    """Yield the plans of all missing generations; nothing is written, and ranges are not proved.

    Raises:
        Conflict: as `hand_off`.
    """
    last = resolved.place.archive.newest()
    while (following := _following(resolved, last)) is not None:
        plan, _ = following
        yield plan
        last = plan.manifest


def tasks_of(resolved: ResolvedTable, plan: TablePlan) -> list[FileTask]:
    """Return a task for each file of a generation.

    Raises:
        Damaged: the archive lacks some of its ranges.
    """
    return [
        FileTask(
            source=resolved.origin.source,
            folder=resolved.place.folder,
            generation=plan.generation,
            ranges=ranges,
            options=resolved.place.options,
        )
        for ranges in files_of(resolved.origin.ranges(plan), resolved.place.options.target_size)
    ]


def hand_off(resolved: ResolvedTable, runner: Runner, progress: Progress) -> HandoffTotals:
    """Write the generations that the table lacks, oldest first. After a kill, repeat the call to resume.

    A generation becomes part of the table with its manifest, which is written last.

    Raises:
        Damaged: the archive's bytes are missing or do not match the manifest; the generation is not published.
        Conflict: another table is at the location, or the origin does not continue the table's stream.
        NotEvents, InvalidCut: the stream contains other data than events, or ends inside an event; the plan can never
            be finished and is given up: its generation stays empty.
    """
    done = HandoffTotals()
    table, origin = resolved.place.archive, resolved.origin
    while True:
        last = table.newest()
        if last is not None and is_empty(last):
            _blank(resolved, published_plan(table, last))  # repeats it if a run was killed in the middle
        following = _following(resolved, last)
        if following is None:
            return done
        plan, is_fixed = following
        if not is_fixed:
            # after a plan was given up, read everything before recording the next: else each attempt adds a generation
            proved = origin.prove(plan, runner, progress, all_of_it=last is not None and is_empty(last))
            plan = fix_plan(table, proved)
            origin.check(plan, table.uri)
        _finish(resolved, plan, done, runner, progress)


def _finish(resolved: ResolvedTable, plan: TablePlan, done: HandoffTotals, runner: Runner, progress: Progress) -> None:
    """Carry out a plan and publish its generation, empty if the plan was given up."""
    table = resolved.place.archive
    if is_given_up(table, plan.after):
        _give_up(resolved, plan)
        return
    try:
        rows = _write(resolved, plan, done, runner, progress)
    except (NotEvents, InvalidCut):
        if end_plan(table, plan.after, given_up=True):
            _give_up(resolved, plan)
        raise
    except Conflict:
        if is_given_up(table, plan.after):  # the names of its files are taken
            raise _gave_up(table, plan) from None
        raise
    manifest = finished(plan, rows, table.uri)
    if end_plan(table, plan.after, given_up=False):
        raise _gave_up(table, plan)
    if plan.first > 1 and not plan.after:  # the archive's first generations have expired
        table.decide(lambda listing: listing.begin_after(plan.first - 1))
    table.commit(manifest, rows)
    done.manifests.append(manifest)


def _write(
    resolved: ResolvedTable, plan: TablePlan, done: HandoffTotals, runner: Runner, progress: Progress
) -> list[ArchivedRange]:
    """Write a generation's files; return their ranges."""
    tasks = tasks_of(resolved, plan)
    progress.begin(f"handing off generation {plan.generation}", plan.manifest.bytes)
    written: dict[int, WrittenFile] = {}
    for index, file in runner.run(write_file, tasks, progress=progress):
        written[index] = file
        progress.advance(sum(row.events for row in file.ranges), sum(row.end - row.start for row in file.ranges))
        done.add(file)
    return [row for index in range(len(tasks)) for row in written[index].ranges]


def _give_up(resolved: ResolvedTable, plan: TablePlan) -> None:
    """Publish a plan that was given up as an empty generation, so that the next one has another number.

    It then has another folder, too: files that a late task of this plan writes are never registered.
    """
    table = resolved.place.archive
    table.commit(empty_generation(plan, table.manifest(plan.after) if plan.after else None), ())
    _blank(resolved, plan)


def _gave_up(table: Archive, plan: TablePlan) -> Overtaken:
    return Overtaken(f"another run abandoned generation {plan.generation} in the meantime", where=table.uri)


def _blank(resolved: ResolvedTable, plan: TablePlan) -> None:
    """Write files without rows in place of a plan's files, none of which belongs to the published generation."""
    with suppress(AccessDenied):
        for task in tasks_of(resolved, plan):
            blank_file(task)


def _following(resolved: ResolvedTable, last: Manifest | None) -> tuple[TablePlan, bool] | None:
    """Return the next plan, and whether it is recorded already; None if the table is up to date.

    Args:
        resolved: the table and its source.
        last: the table's newest generation; None if it has none.
    """
    table, origin = resolved.place.archive, resolved.origin
    plan = find_plan(table, 0 if last is None else last.generation)
    is_fixed = plan is not None
    if plan is None:
        plan = origin.draft(last, resolved.place.options, table.uri)
    if plan is None:
        return None
    origin.check(plan, table.uri)
    return plan, is_fixed
