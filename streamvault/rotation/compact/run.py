"""Merge adjacent generations into one: tasks join small chunks, and one manifest replaces the others.

The first and the last generation alone determine the result. So a merge can be resumed and raced like an export: its
plan only names the generations, finished ranges leave rows, and all runs write the same manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streamvault.common.errors import Conflict, Damaged, Overtaken
from streamvault.common.progress import Progress
from streamvault.common.version import TOOL
from streamvault.exporter.archived_events import RewriteTask, rewrite_ranges
from streamvault.exporter.cleanup import remove_work_files
from streamvault.layouts.object_keys import GenerationSpan
from streamvault.manifests.archive.agreement import by_segment
from streamvault.manifests.archive.archive import Archive, NoSuchArchive
from streamvault.manifests.archive.history import Generation
from streamvault.manifests.archive.listing import Listing
from streamvault.manifests.archive.merging import Merger, MergeSpan
from streamvault.manifests.archive.plan import Plan, create_plan
from streamvault.manifests.archive.rows import RangeEntry, find_rows
from streamvault.manifests.archive.sweeping import prove
from streamvault.rotation.options import CompactOptions
from streamvault.sparkrun.runner import Runner
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
    """Merge generations into one. Replaced objects are kept for now; see `manifests.archive.replaced`.

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
        plan = Plan.of(merger.manifest(by_segment(join.rows[0] for join in spans), tool=""))
        found, created = create_plan(archive.place, plan)
        if found != plan:
            raise Conflict("another compaction with the same name is in progress", where=archive.uri)
        if created and not archive.listing().within(span):
            remove_work_files(archive, span, progress)  # too late, and nothing was written yet
            raise _gone(archive)
        joins = [join for join in spans if len(join.rows) > 1]
        done = {} if created else _finished(archive, span, joins)
        before = sum(map(len, done.values()))
        here, window = archive.address, options.window
        task = RewriteTask(here, plan.layout, here, plan.layout, plan.compression, span, 1, window)
        tasks = [task.of(join.rows, join.start) for join in joins]
        moved = rewrite_ranges(f"merging {span}", tasks, done, runner_of, progress)
        joined = {(segment, one.start): one.of_segment(segment) for segment, held in done.items() for one in held}
        rows = [joined.get((join.segment, join.start), join.rows[0]) for join in spans]
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


def _finished(archive: Archive, span: GenerationSpan, joins: Iterable[MergeSpan]) -> dict[SegmentId, list[RangeEntry]]:
    """Return the chunks that earlier runs have joined, by segment.

    A row that ends elsewhere is of another chunk.
    """
    ends = {(join.segment, join.start): join.end for join in joins}
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
