"""The *compact* command: merge adjacent small generations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from streamvault.common.errors import Conflict, Problem
from streamvault.common.progress import Progress
from streamvault.common.times import moment_text, now_utc
from streamvault.common.verb import verb
from streamvault.exporter.archived_events import rewrite_range
from streamvault.exporter.cleanup import remove_work_files
from streamvault.layouts.layout import open_layout
from streamvault.layouts.object_keys import GenerationSpan
from streamvault.layouts.windows import check_window
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.deleting import DeletedData
from streamvault.manifests.archive.listing import Listing, manifest_lost
from streamvault.manifests.archive.merging import Merger, can_merge
from streamvault.manifests.archive.replaced import compare_joined, delete_replaced, merges_under_way, replacements
from streamvault.manifests.format.manifest import Manifest
from streamvault.manifests.verbs.read_back import read_back
from streamvault.rotation.compact.choose import choose_runs
from streamvault.rotation.compact.run import Compacted, compact_generations
from streamvault.rotation.options import CompactOptions
from streamvault.rotation.reports import CompactedRun, CompactReport
from streamvault.sparkrun.opening import Tasks
from streamvault.sparkrun.runner import Runner

Choose = Callable[[Sequence[Manifest], set[int]], list[tuple[Manifest, ...]]]
"""Chooses runs of generations to merge, given the manifests in force and the numbers of those to leave alone."""


@verb(CompactOptions)
def compact_archive(archive: str, options: CompactOptions, progress: Progress) -> CompactReport:
    """Merge runs of adjacent small generations into one each, and delete objects that earlier calls have replaced.

    Events, pointers, cuts and digests stay the same, and each original generation can still be restored. Small chunks
    are read, checked and joined; objects of layout ``events`` stay as they are. At any time, readers see either the old
    generations or the new one, and replaced objects are kept for ``grace`` seconds. After a kill, repeat the call to
    resume.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        target: maximum size of a merged generation (bytes); larger generations stay as they are.
        at_least: minimum number of adjacent generations to merge.
        grace: seconds to keep replaced objects; at least 600. A later call deletes them, after reading back the
            generation that replaced them.
        storage_class: S3 storage class of joined chunks; empty for the bucket's default.
        window: maximum data a task buffers in memory (bytes); for chunks at least the archive's range size.
        master: a Spark master, or ``"inline"`` for no Spark; used only if chunks must be joined.
        dry_run: only report what would be done.
        progress: receives the progress.

    Raises:
        NoSuchArchive: there is no archive.
        Damaged: data differ from what was archived; nothing was replaced.
        Problem: the compaction failed; the exception has the command's exit code.
    """
    source = Archive.open(archive, data_class=options.storage_class)
    source.root.check_read_at_once()
    source.manifest()  # raises if there is no archive
    choose = partial(choose_runs, target=options.target, at_least=options.at_least)
    with ExitStack() as stack:
        tasks = Tasks(options.master, stack, [rewrite_range, compare_joined])
        compaction = Compaction(source, options, tasks, progress)
        if options.dry_run:
            return compaction.rehearse(choose).report(source, dry_run=True)
        compaction.run(choose)
        compaction.clear()
        progress.end()
        if compaction.problems:
            raise compaction.problems[0]  # all else is done
        return replace(compaction.done.report(source), seconds=tasks.seconds)


@dataclass
class Done:
    """Totals of a compaction.

    Attributes:
        runs: the merged runs.
        resumed: how many of the runs an earlier call had begun.
        moved_bytes: rewritten segment bytes.
        joined: number of chunks written.
        deleted: deleted replaced objects.
        waits_until: when the next replaced objects are due for deletion; None if there are none.
    """

    runs: list[CompactedRun] = field(default_factory=list)
    resumed: int = 0
    moved_bytes: int = 0
    joined: int = 0
    deleted: DeletedData = field(default_factory=DeletedData)
    waits_until: datetime | None = None

    def report(self, archive: Archive, *, dry_run: bool = False) -> CompactReport:
        """Return the report of the command."""
        return CompactReport(
            archive=archive.uri,
            runs=tuple(self.runs),
            unchanged=not self.runs,
            resumed_runs=self.resumed,
            moved_bytes=self.moved_bytes,
            joined=self.joined,
            generations_in_force=len(archive.generations()),
            objects_deleted=self.deleted.objects,
            waits_until="" if self.waits_until is None else moment_text(self.waits_until),
            dry_run=dry_run,
        )


@dataclass
class Compaction:
    """Merges the runs that a policy chooses, and deletes replaced objects.

    Generations that cannot be merged or read back are skipped from then on; the others are still processed.

    Attributes:
        done: the totals so far.
        problems: why generations were skipped.
    """

    archive: Archive
    options: CompactOptions
    tasks: Tasks
    progress: Progress
    done: Done = field(default_factory=Done, init=False)
    problems: list[Problem] = field(default_factory=list, init=False)
    _left_alone: set[int] = field(default_factory=set, init=False)

    def run(self, choose: Choose) -> None:
        """Finish merges in progress, then merge the runs that a policy chooses."""
        self.done.resumed += self._finish()
        for run in self._chosen(choose):
            span = GenerationSpan(run[0].first, run[-1].generation)
            with self._leaving_alone(span):
                self._merge(span)

    def rehearse(self, choose: Choose) -> Done:
        """Return what `run` and `clear` would do."""
        archive = self.archive
        listing = archive.listing()
        done = Done(
            resumed=sum(bool(listing.within(span)) and span not in listing.spans for span in merges_under_way(archive))
        )
        for run in self._chosen(choose):
            held = [archive.load_span(manifest.span) for manifest in run]
            spans = [join for join in Merger(held, archive.uri).spans() if len(join.rows) > 1]
            done.runs.append(_merged_run([generation.manifest for generation in held]))
            done.moved_bytes += sum(join.end - join.start for join in spans)
            done.joined += len(spans)
        waiting = archive.stable(lambda now: replacements(archive, now))
        done.waits_until = min((one.due for one in waiting), default=None)
        return done

    def clear(self) -> None:
        """Delete objects that were replaced long enough ago, after reading back the generations that replaced them."""
        archive = self.archive
        for one in archive.stable(lambda now: replacements(archive, now)):
            if one.due <= now_utc() and self._left_alone.isdisjoint(one.unchecked):
                with self._leaving_alone(one.span):
                    read_back(archive, self._runner, self.progress, one.unchecked)
        deleted, waiting = delete_replaced(archive, self._runner, self.progress)
        self.done.deleted += deleted
        self.done.waits_until = min((one.due for one in waiting), default=None)

    def _runner(self) -> Runner:
        return self.tasks.runner

    def _chosen(self, choose: Choose) -> list[tuple[Manifest, ...]]:
        archive = self.archive

        def chosen(now: Listing) -> list[tuple[Manifest, ...]]:
            if now.missing is not None:
                raise manifest_lost(now, archive.uri)
            return choose([archive.read_manifest(span) for span in now.spans], {*now.holds, *self._left_alone})

        return archive.stable(chosen)

    @contextmanager
    def _leaving_alone(self, span: GenerationSpan) -> Iterator[None]:
        """Record a problem and skip these generations from then on, unless a retry may succeed."""
        try:
            yield
        except Problem as problem:
            if problem.transient:
                raise
            self._left_alone.update(span.generations)
            self.problems.append(problem)

    def _finish(self) -> int:
        """Finish merges in progress; return how many."""
        found = 0
        for span in merges_under_way(self.archive):
            listing = self.archive.listing()
            if span in listing.spans or span.last <= listing.dropped:
                remove_work_files(self.archive, span, self.progress)
            elif listing.within(span) and self._left_alone.isdisjoint(span.generations):
                self.progress.say(f"resuming the merge of {span}")
                with self._leaving_alone(span):
                    found += self._merge(span)
            # else it was abandoned: its objects are deleted with the generations, and until then the plan lists them
        return found

    def _merge(self, span: GenerationSpan) -> bool:
        archive = self.archive
        manifests = archive.stable(lambda now: [archive.read_manifest(one) for one in now.within(span)])
        if not manifests:
            return False  # they have expired, or were merged with others
        if not can_merge(manifests):  # an earlier version has planned it
            self.progress.say(f"not merging {span}: their range sizes are not multiples of each other")
            return False
        range_size = max(manifest.range_size for manifest in manifests)
        check_window(
            self.options.window, max(open_layout(manifest.layout).min_window(range_size) for manifest in manifests)
        )
        try:
            compacted: Compacted = compact_generations(archive, span, self.options, self._runner, self.progress)
        except Conflict as conflict:
            listing = archive.listing()
            archive.check_open(listing)
            if listing.within(span):
                raise
            self.progress.say(str(conflict))  # they have expired, or were merged with others
            return False
        self.done.moved_bytes += compacted.moved_bytes
        self.done.joined += compacted.joined
        self.done.runs.append(_merged_run(manifests))
        return True


def _merged_run(manifests: Sequence[Manifest]) -> CompactedRun:
    return CompactedRun(
        first=manifests[0].first,
        generation=manifests[-1].generation,
        merged=len(manifests),
        events=sum(manifest.events for manifest in manifests),
        bytes=sum(manifest.bytes for manifest in manifests),
    )
