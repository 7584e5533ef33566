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
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.rotation.compact.task import JoinTask, join_ranges
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
        done = {} if created else _finished(archive, span, spans)
        todo = [join for join in spans if len(join.rows) > 1 and (join.segment, join.start) not in done]
        total = sum(join.end - join.start for join in todo)
        progress.begin(f"merging {span}", total)
        address, window = archive.address.probe(total), options.window
        tasks = [JoinTask(address, plan.layout, join, plan.compression, span, window) for join in todo]
        moved = 0
        for index, joined in runner_of().run(join_ranges, tasks, progress=progress) if tasks else ():
            done[todo[index].segment, joined.start] = joined
            moved += joined.end - joined.start
            progress.advance(joined.events, joined.end - joined.start)
        rows = [_row(join, done.get((join.segment, join.start))) for join in spans]
        # the plan has the last generation's line, which an earlier release left out
        manifest = merger.manifest(by_segment(rows), tool=TOOL).model_copy(update={"line": archive.line})
        prove(Generation(manifest, by_segment(rows)), archive.address, runner_of, progress)
        published = archive.commit(manifest, rows, grace=options.grace) is not None
        if published or span in archive.listing().spans:
            remove_work_files(archive, span, progress)
        # else it is part of a larger merge by now, and the plan lists the unused chunks
        return Compacted(moved, len(todo))
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
    archive: Archive, span: GenerationSpan, spans: Iterable[MergeSpan]
) -> dict[tuple[SegmentId, int], RangeEntry]:
    """Return the chunks that earlier runs have joined, by segment and start.

    A row that ends elsewhere is of another chunk.
    """
    ends = {(join.segment, join.start): join.end for join in spans}
    rows = find_rows(archive.place, span)
    found = {(segment, one.start): one for segment, row in rows for one in row.ranges}
    return {key: one for key, one in found.items() if ends.get(key) == one.end}


def _row(join: MergeSpan, joined: RangeEntry | None) -> ArchivedRange:
    if len(join.rows) == 1 or joined is None:
        return join.rows[0]
    return join.row(joined.digest, joined.frames, joined.crc64nvme)


def _gone(archive: Archive) -> Overtaken:
    return Overtaken(
        "generations to be merged have expired or were merged with others in the meantime", where=archive.uri
    )
