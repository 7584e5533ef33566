"""The *follow* command: archive a stream as it grows, in small generations that are merged later."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.units import bytes_text, count_text
from streamvault.common.waiting import Retrier, Round, repeat_rounds
from streamvault.exporter.archived_events import rewrite_range
from streamvault.exporter.compact import Choose, Compaction, choose_tiers
from streamvault.exporter.export import Export
from streamvault.exporter.reports import (
    CompactOptions,
    ExportReport,
    FollowedGeneration,
    FollowOptions,
    FollowReport,
    RotateOptions,
)
from streamvault.exporter.rotate import Rotation
from streamvault.exporter.run import export_range
from streamvault.manifests.archive import Archive
from streamvault.manifests.merging import compare_joined
from streamvault.runner.opening import Tasks
from streamvault.sources.archive_comparison import compare_range
from streamvault.streamstore.model import StreamDescription
from streamvault.streamstore.own import describe_source

REMEMBERED = 100
"""Maximum generations and warnings in a report."""

LONGEST_REST = 600.0
"""How long at most the archive is not looked at while nothing comes (seconds)."""


@verb(FollowOptions)
def follow_stream(stream: str, root: str, options: FollowOptions, progress: Progress) -> FollowReport:
    """Archive a stream as it grows: each round archives the new events as a generation.

    One Spark session serves all rounds. Every eight adjacent generations of about the same size are merged into one, so
    that the number of generations stays small and each byte is rewritten only a few times. It ends after ``idle``
    seconds without new events, after ``lasting`` seconds, or when the stream is sealed and archived completely. It can
    be interrupted or killed at any time and called again.

    Generations that cannot be merged (in Glacier, for example) stay as they are, with a warning, and archiving
    continues. If a server does not answer, throttles or fails, the step is retried with growing pauses; only a server
    that has never answered ends the call at once. The duration of an outage does not count as ``idle``.

    Args:
        stream: as for `export_stream`.
        root: as for `export_stream`.
        rotate: whether each round also reads back, lets generations expire and truncates, as `rotate_stream` does;
            implied by `keep`, `keep_for` and `truncate_source`.
        idle: return after this many seconds without new events; None: never.
        lasting: return after this many seconds; None: never.
        every: seconds between checks for new events.
        retry_for: how long failed steps are retried (seconds; restarts whenever data was moved), and at most until
            `lasting` is over; then the last error is raised. 0: the first error is raised.
        keep: as for `rotate_stream`; counts original generations.
        keep_for: as for `rotate_stream`.
        truncate_source: as for `rotate_stream`.
        target: as for `compact_archive`.
        grace: as for `compact_archive`.
        storage_class: as for `rotate_stream`.
        content: as for `export_stream`.
        layout: as for `export_stream`.
        compress: as for `export_stream`.
        range_size: as for `export_stream`.
        window: as for `export_stream`.
        largest_event: as for `export_stream`.
        same_stream: as for `export_stream`.
        line: as for `export_stream`.
        reader_groups: as for `export_stream`.
        schemas: as for `export_stream`.
        schema_group: as for `export_stream`.
        master: a Spark master, or ``"inline"`` for no Spark.
        progress: receives the progress, with a `note` for each generation.

    Raises:
        Problem: as for `export_stream`, `rotate_stream` and `compact_archive`.
    """
    began = time.monotonic()
    export = Export.of(stream, root, options)
    if options.rotates:
        export.root.check_read_at_once()
    retrier = Retrier(options.retry_for, progress, until=began + (options.lasting or math.inf))
    with ExitStack() as stack:
        tasks = Tasks(options.master, stack, [export_range, rewrite_range, compare_range, compare_joined])
        report = _Following(export, options, retrier, progress).run(tasks, began)
        progress.end()
        return replace(report, seconds=tasks.seconds)


class _Rest:
    """When an archive need not be looked at: after rounds without anything new, each time twice as long.

    Attributes:
        begun: whether the last round that looked at it had nothing new.
    """

    def __init__(self, every: float) -> None:
        self.begun = False
        self._every = every
        self._seconds = self._until = 0.0
        self._seen: StreamDescription | None = None

    def holds(self, seen: StreamDescription) -> bool:
        """Return whether it lasts, and the stream is still the same."""
        return seen == self._seen and time.monotonic() < self._until

    def after(self, seen: StreamDescription | None, *, changed: bool) -> None:
        """Take note of a round that looked at the archive, and of the stream as it was before; None if not known."""
        self.begun = not changed
        self._seen = None if changed else seen
        self._seconds = 0.0 if self._seen is None else min(2 * max(self._seconds, self._every), LONGEST_REST)
        self._until = time.monotonic() + self._seconds


class _Following:
    """A stream that is archived as it grows.

    Attributes:
        report: totals of all rounds so far; of bounded size, however long the stream is followed.
    """

    def __init__(self, export: Export, options: FollowOptions, retrier: Retrier, progress: Progress) -> None:
        self.export = export
        self.options = options
        self.retrier = retrier
        self.progress = progress
        self.report = FollowReport(archive=export.archive().uri, generation=0, ended="idle")
        self._rest = _Rest(options.every)

    def run(self, tasks: Tasks, began: float) -> FollowReport:
        """Repeat rounds until one of the ends that the options name."""
        options, archive = self.options, self.export.archive()
        compaction = Compaction(archive, options.shared_with(CompactOptions), tasks, self.retrier.watched)
        # one that has never answered is probably not the right one, and is not waited for
        archive.listing()
        self._described()
        ended = repeat_rounds(
            partial(self._round, tasks, compaction),
            self.retrier,
            every=options.every,
            idle=options.idle,
            began=began,
        )
        self._count(objects_deleted=compaction.done.objects_deleted)
        return replace(
            self.report,
            ended=ended,
            retries=self.retrier.retries,
            moved_bytes=compaction.done.moved_bytes,
            generations_in_force=len(self.retrier(archive.generations)),
        )

    def _round(self, tasks: Tasks, compaction: Compaction) -> Round:
        """Archive what is new, and merge; return whether the archive changed, and whether it is complete.

        While nothing comes, most rounds ask only the stream whether it is still the same. They would not see that
        reader groups have moved on; for schemas, the registry is asked before, and again when there are new events.
        """
        registry = self.export.registry
        rests = self._rest.begun and not self.options.reader_groups and (registry is None or registry.asked)
        seen = self.retrier(self._described) if rests else None
        if seen is not None and self._rest.holds(seen):
            self._count(rounds=1)
            return Round(changed=False, sealed=False)
        exported = self._archive_new(tasks)
        self._add(exported)
        if not exported.unchanged:
            choose = partial(choose_tiers, target=self.options.target)
            self.retrier(partial(self._merge, compaction, choose))
        self.retrier(compaction.clear)
        for problem in compaction.problems:
            warning = f"some generations were not merged or read back: {problem}"
            self._warn(warning)
            self.progress.warn(warning)
        compaction.problems.clear()
        sealed = exported.unchanged and self.retrier(partial(_is_sealed, compaction.archive))
        self._rest.after(seen, changed=not exported.unchanged)
        return Round(changed=not exported.unchanged, sealed=sealed)

    def _described(self) -> StreamDescription:
        with self.export.source.open() as store:
            return describe_source(store, self.export.name)

    def _archive_new(self, tasks: Tasks) -> ExportReport:
        """Archive what is new; rotate, too, if the options say so."""
        rotation = Rotation(self.export, self.options.shared_with(RotateOptions), tasks, self.retrier.watched)
        exported = self.retrier(rotation.archive_new)
        if not self.options.rotates:
            return exported
        rotated = self.retrier(partial(rotation.complete, exported, sweep=not self.report.rounds))
        self._count(expired_count=len(rotated.expired), objects_deleted=rotated.objects_deleted)
        if rotated.truncated:
            self.report = replace(self.report, cut=rotated.cut)
        return exported

    def _merge(self, compaction: Compaction, choose: Choose) -> None:
        """Merge until there is nothing left to merge."""
        while True:
            compaction.done = replace(compaction.done, runs=())
            try:
                compaction.run(choose)
            finally:
                runs = compaction.done.runs
                self._count(merges=len(runs))
                for run in runs:
                    self.progress.say(f"merged generations {run.first} to {run.generation}")
            if not runs:
                return

    def _add(self, exported: ExportReport) -> None:
        """Add what a round has archived."""
        self._count(rounds=1)
        self.report = replace(self.report, generation=exported.generation, reader_groups=exported.reader_groups)
        for warning in exported.warnings:
            if warning not in self.report.warnings:
                self._warn(warning)
        if exported.unchanged:
            return
        number, size, seconds = exported.generation, exported.bytes, exported.seconds
        made = FollowedGeneration(generation=number, events=exported.events, bytes=size, seconds=seconds)
        self._count(made=1, events=exported.events, bytes=size)
        self.report = replace(self.report, newest=(*self.report.newest, made)[-REMEMBERED:])
        events = f"{count_text(exported.events, 'event')}, " if exported.events or not size else ""
        self.progress.note(f"generation {number}: {events}{bytes_text(size)} in {seconds:.2f} s")

    def _count(self, **more: int) -> None:
        self.report = replace(self.report, **{name: getattr(self.report, name) + n for name, n in more.items()})

    def _warn(self, warning: str) -> None:
        self.report = replace(self.report, warnings=(*self.report.warnings, warning)[-REMEMBERED:])


def _is_sealed(archive: Archive) -> bool:
    newest = archive.newest()
    return newest is not None and newest.sealed
