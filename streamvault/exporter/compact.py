"""The *compact* command: chooses small generations that are neighbours, and merges them.

Tasks join small chunks, and one manifest replaces the others. The first and the last generation alone determine the
result. So a merge can be resumed and raced like an export: its plan only names the generations, finished ranges leave
rows, and all runs write the same manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from streamvault.common.errors import Conflict, Damaged, Overtaken, Problem
from streamvault.common.neighbours import grouped
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.units import moment_text, now_utc
from streamvault.common.version import TOOL
from streamvault.exporter.archived_events import RewriteTask, rewrite_range, rewrite_ranges
from streamvault.exporter.reports import CompactedRun, CompactOptions, CompactReport
from streamvault.exporter.run import Destination, remove_work_files
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import GenerationSpan
from streamvault.layouts.layout import check_window, open_layout
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.deleting import prove
from streamvault.manifests.history import Generation, by_segment
from streamvault.manifests.listing import Listing, manifest_lost
from streamvault.manifests.manifest import Manifest
from streamvault.manifests.merging import (
    Merger,
    Replacement,
    can_merge,
    compare_joined,
    delete_replaced,
    merges_under_way,
    replacements,
)
from streamvault.manifests.plan import Plan, RangeEntry, create_plan, find_rows
from streamvault.manifests.verbs.check import read_back
from streamvault.objectstore.store import SMALL
from streamvault.runner.opening import Tasks
from streamvault.runner.runner import Runner
from streamvault.streamstore.model import SegmentId


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of a merge.

    Attributes:
        moved_bytes: segment bytes that this run rewrote.
        joined: number of chunks that this run wrote.
    """

    moved_bytes: int = 0
    joined: int = 0


def compact_generations(
    archive: Archive,
    span: GenerationSpan,
    options: CompactOptions,
    runner_of: Callable[[], Runner],
    progress: Progress,
) -> Compacted:
    """Merge generations into one. Replaced objects are kept for now; see `manifests.merging`.

    Args:
        archive: the archive.
        span: the original generations to merge.
        options: how chunks are joined, and how long replaced objects are kept.
        runner_of: returns the runner of tasks; called only if chunks must be joined.
        progress: receives the progress.

    Raises:
        Damaged: a range's bytes do not match the manifest; nothing is published.
        Conflict: some of the generations have expired or were merged with others in the meantime.
    """
    with _unless_merged(archive, span, progress):
        merger = Merger(_load(archive, span), archive.uri)
        spans = list(merger.spans())
        # the plan needs no digests
        plan = Plan.of(merger.manifest(by_segment(join[0] for join in spans), tool=""))
        found, created = create_plan(archive.place, plan)
        if found != plan:
            raise Conflict("another compaction with the same name is in progress", where=archive.uri)
        if created and not archive.listing().within(span):
            remove_work_files(archive, span, progress)  # too late, and nothing was written yet
            raise _gone(archive)
        joins = [join for join in spans if len(join) > 1]
        done = {} if created else _finished(archive, span, joins)
        before = sum(map(len, done.values()))
        to = Destination.of(archive, plan, 1, options.window)
        rewrite = partial(RewriteTask, archive.address, plan.layout, to)
        tasks = [rewrite(join, join[0].start, join[-1].end) for join in joins]
        moved = rewrite_ranges(f"merging {span}", tasks, done, runner_of, progress)
        joined = {(segment, one.start): one.of_segment(segment) for segment, held in done.items() for one in held}
        rows = [joined.get((join[0].segment, join[0].start), join[0]) for join in spans]
        # the plan has the last generation's line, which an earlier release left out
        manifest = merger.manifest(by_segment(rows), tool=TOOL).model_copy(update={"line": archive.line})
        prove(Generation(manifest, by_segment(rows)), archive.address, runner_of, progress)
        published = archive.commit(manifest, rows, grace=options.grace) is not None
        if published or span in archive.listing().spans:
            remove_work_files(archive, span, progress)
        # else it is part of a larger merge by now, and the plan lists the unused chunks
        return Compacted(moved, len(joins) - before)
    return Compacted()


@contextmanager
def _unless_merged(archive: Archive, span: GenerationSpan, progress: Progress) -> Iterator[None]:
    """Ignore missing data if another run has merged the generations and deleted the originals already.

    Raises:
        Conflict: data are missing since the generations have expired or were merged with others.
    """
    before = archive.listing().within(span)
    try:
        yield
    except (Damaged, NoSuchArchive):
        listing = archive.listing()
        holder = listing.holder(span.last)
        if holder is not None and holder.first <= span.first:
            if span in listing.spans:
                remove_work_files(archive, span, progress)
            return
        if listing.within(span) != before:
            raise _gone(archive) from None
        raise


def _load(archive: Archive, span: GenerationSpan) -> list[Generation]:
    """Load the generations in force that consist of the original ones of a span.

    Raises:
        Conflict: no generations in force begin and end with the span.
    """

    def load(listing: Listing) -> list[Generation]:
        held = listing.within(span)
        if not held:
            raise _gone(archive)
        return [archive.load_span(one) for one in held]

    return archive.stable(load)


def _finished(
    archive: Archive, span: GenerationSpan, joins: Iterable[Sequence[ArchivedRange]]
) -> dict[SegmentId, list[RangeEntry]]:
    """Return the chunks that earlier runs have joined, by segment.

    A row that ends elsewhere is of another chunk.
    """
    ends = {(join[0].segment, join[0].start): join[-1].end for join in joins}
    found: dict[SegmentId, list[RangeEntry]] = {}
    for segment, row in find_rows(archive.place, span):
        for one in row.ranges:
            if ends.get((segment, one.start)) == one.end:
                found.setdefault(segment, []).append(one)
    return found


def _gone(archive: Archive) -> Overtaken:
    return Overtaken(
        "generations to be merged have expired or were merged with others in the meantime", where=archive.uri
    )


FACTOR = 8
"""How many adjacent generations of a size are merged into one of the next size while a stream is followed."""

MOST_METADATA = SMALL // 2
"""Maximum bytes that a merged manifest has about its original generations; readers accept twice as many."""

ENTRY_BYTES = 1024
"""What a manifest has about an original generation, or about a reader group, without its cut."""

POSITION_BYTES = 48
"""What a cut has for a segment, without the stream's name."""

Run = tuple[Manifest, ...]


def choose_runs(manifests: Sequence[Manifest], held: set[int], *, target: int, at_least: int) -> list[Run]:
    """Return the longest runs of adjacent generations with at most ``target`` bytes together, oldest first.

    Args:
        manifests: manifests of the generations in force, in order.
        held: numbers of generations that are not merged, for example since they have a hold.
        target: maximum bytes of a run; generations of this size or larger are not merged.
        at_least: minimum number of generations in a run.
    """
    groups = _mergeable_groups(manifests, held, target)
    return [run for group in groups for run in _cut(group, target) if len(run) >= at_least]


def choose_tiers(manifests: Sequence[Manifest], held: set[int], *, target: int) -> list[Run]:
    """Return the run to merge now if a new generation arrives every few seconds: `FACTOR` of the same size at a time.

    The size of a generation is the logarithm, to base `FACTOR`, of the number of original ones it contains. So fewer
    than `FACTOR` of a size remain in a row, and each byte is rewritten once per size. Smaller ones in between are
    merged along.
    """
    for group in _mergeable_groups(manifests, held, target):
        sizes = [_size(manifest) for manifest in group]
        for size in range(max(sizes, default=-1) + 1):
            for run in _alike(group, sizes, size):
                cut = next((some for some in _cut(run, target) if len(some) > 1), None)
                if cut is not None:
                    return [cut]
    return []


def _size(manifest: Manifest) -> int:
    size, count = 0, manifest.generation - manifest.first + 1
    while count >= FACTOR:
        size, count = size + 1, count // FACTOR
    return size


def _alike(group: Run, sizes: Sequence[int], size: int) -> Iterator[Run]:
    """Yield runs with at least `FACTOR` generations of a size and none larger; they begin and end with that size."""
    at = 0
    while at < len(sizes):
        end = at
        while end < len(sizes) and sizes[end] <= size:
            end += 1
        mine = [index for index in range(at, end) if sizes[index] == size]
        if len(mine) >= FACTOR:
            yield group[mine[0] : mine[-1] + 1]
        at = end + 1


def _mergeable_groups(manifests: Sequence[Manifest], held: set[int], target: int) -> Iterator[Run]:
    """Yield the longest runs of adjacent generations that may be merged with each other."""
    some: list[Manifest] = []
    kinds: dict[object, Manifest] = {}  # one of each, so that a long run takes no longer
    for manifest in manifests:
        is_free = manifest.generation not in held and _weight(manifest, target) < target
        if some and not (is_free and can_merge([*kinds.values(), manifest])):
            yield tuple(some)
            some, kinds = [], {}
        if is_free:
            some.append(manifest)
            kinds[manifest.layout, manifest.compression, manifest.range_size, manifest.schemas] = manifest
    if some:
        yield tuple(some)


def _cut(group: Run, target: int) -> Iterator[Run]:
    """Split a run into parts of at most ``target`` bytes, with at most `MOST_METADATA` about their originals."""
    return grouped(group, partial(_weight, target=target), target)


def _weight(manifest: Manifest, target: int) -> int:
    """Return a generation's size in relation to the larger of the shares that its bytes and its metadata have."""
    return max(manifest.bytes, _metadata(manifest) * target // MOST_METADATA)


def _metadata(manifest: Manifest) -> int:
    """Return about how many bytes a merged manifest has about the original generations of this one."""
    originals = manifest.originals
    noted = [group for one in originals for group in one.reader_groups or ()]
    cuts = [one.to for one in originals] + [cut for one in noted for cut in (one.position, one.start, one.end) if cut]
    positions = sum(len(cut.offsets) for cut in cuts)
    return ENTRY_BYTES * (len(originals) + len(noted)) + (len(str(manifest.name)) + POSITION_BYTES) * positions


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
            return compaction.rehearse(choose)
        compaction.run(choose)
        compaction.clear()
        progress.end()
        if compaction.problems:
            raise compaction.problems[0]  # all else is done
        return replace(compaction.report(), seconds=tasks.seconds)


@dataclass
class Compaction:
    """Merges the runs that a policy chooses, and deletes replaced objects.

    Generations that cannot be merged or read back are skipped from then on; the others are still processed.

    Attributes:
        done: what was done so far; see `report`.
        problems: why generations were skipped.
    """

    archive: Archive
    options: CompactOptions
    tasks: Tasks
    progress: Progress
    done: CompactReport = field(init=False)
    problems: list[Problem] = field(default_factory=list, init=False)
    _left_alone: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.done = CompactReport(archive=self.archive.uri)

    def report(self) -> CompactReport:
        """Return what was done so far, and what is in force now."""
        in_force = len(self.archive.generations())
        return replace(self.done, unchanged=not self.done.runs, generations_in_force=in_force)

    def run(self, choose: Choose) -> None:
        """Finish merges in progress, then merge the runs that a policy chooses."""
        resumed = self._finish()
        self.done = replace(self.done, resumed_runs=self.done.resumed_runs + resumed)
        for run in self._chosen(choose):
            span = GenerationSpan(run[0].first, run[-1].generation)
            with self._leaving_alone(span):
                self._merge(span, run)

    def rehearse(self, choose: Choose) -> CompactReport:
        """Return what `run` and `clear` would do."""
        archive = self.archive
        listing = archive.listing()
        resumed = sum(bool(listing.within(span)) and span not in listing.spans for span in merges_under_way(archive))
        for run in self._chosen(choose):
            held = [archive.load_span(manifest.span) for manifest in run]
            spans = [join for join in Merger(held, archive.uri).spans() if len(join) > 1]
            moved = sum(join[-1].end - join[0].start for join in spans)
            self._count([generation.manifest for generation in held], Compacted(moved, len(spans)))
        until = _wait_of(archive.stable(lambda now: replacements(archive, now)))
        return replace(self.report(), resumed_runs=resumed, waits_until=until, dry_run=True)

    def clear(self) -> None:
        """Delete objects that were replaced long enough ago, after reading back the generations that replaced them."""
        archive = self.archive
        for one in archive.stable(lambda now: replacements(archive, now)):
            if one.due <= now_utc() and self._left_alone.isdisjoint(one.unchecked):
                with self._leaving_alone(one.span):
                    read_back(archive, self._runner, self.progress, one.unchecked)
        deleted, waiting = delete_replaced(archive, self._runner, self.progress)
        objects = self.done.objects_deleted + deleted.objects
        self.done = replace(self.done, objects_deleted=objects, waits_until=_wait_of(waiting))

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

    def _merge(self, span: GenerationSpan, manifests: Sequence[Manifest] = ()) -> bool:
        """Merge generations, whose manifests are read unless they were just chosen by them; return whether it did."""
        archive = self.archive
        if not manifests:
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
            compacted = compact_generations(archive, span, self.options, self._runner, self.progress)
        except Conflict as conflict:
            listing = archive.listing()
            archive.check_open(listing)
            if listing.within(span):
                raise
            self.progress.say(str(conflict))  # they have expired, or were merged with others
            return False
        self._count(manifests, compacted)
        return True

    def _count(self, manifests: Sequence[Manifest], compacted: Compacted) -> None:
        run = CompactedRun(
            first=manifests[0].first,
            generation=manifests[-1].generation,
            merged=len(manifests),
            events=sum(manifest.events for manifest in manifests),
            bytes=sum(manifest.bytes for manifest in manifests),
        )
        self.done = replace(
            self.done,
            runs=(*self.done.runs, run),
            moved_bytes=self.done.moved_bytes + compacted.moved_bytes,
            joined=self.done.joined + compacted.joined,
        )


def _wait_of(waiting: Iterable[Replacement]) -> str:
    due = min((one.due for one in waiting), default=None)
    return "" if due is None else moment_text(due)
