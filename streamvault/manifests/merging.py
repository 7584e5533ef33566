"""Merged generations: how they are computed, what they have replaced, and what is left after one of their originals.

A merge is computed from the manifests and ranges of neighbours. It depends only on the original generations that it
contains, not on the steps in which they were merged. That holds only while each range size is a multiple of the smaller
ones: otherwise a step joins away a boundary that a merge of the originals would keep.

What merged generations have replaced is deleted once no reader can need it. An old chunk is deleted if no range in
force begins at its start, or none ends at its end. Ranges in force only ever grow, by being joined, so such a chunk is
never used again and may be deleted at any later time. The manifest is deleted last, so that an interrupted deletion can
be resumed.

What is in force and which of it was read back are judged in one listing. So whatever is merged meanwhile, the copy that
was read back stays: a later merge joins ranges that were in force then, and those are not deleted.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby, pairwise

from streamvault.common.errors import Damaged
from streamvault.common.progress import Progress
from streamvault.common.units import now_utc
from streamvault.layouts.archived_range import ArchivedRange, segment_digest
from streamvault.layouts.keys import (
    GenerationSpan,
    blocks_key,
    checked_key,
    chunk_key,
    manifest_key,
    ranges_key,
    work_folder,
)
from streamvault.layouts.layout import open_layout
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.damage import ArchivedPart, read_verified
from streamvault.manifests.decisions import check_mark
from streamvault.manifests.deleting import RANGES_A_TASK, DeletedData
from streamvault.manifests.history import NOT_MERGED, Generation, History, by_segment, check_follows, with_rows
from streamvault.manifests.listing import Listing, check_decisions, manifest_lost, work_spans
from streamvault.manifests.manifest import MAX_INDEX_BYTES, Manifest, Replaced, SchemaGroup, SegmentEntry
from streamvault.manifests.options import MIN_GRACE_SECONDS
from streamvault.manifests.plan import find_plan, find_rows
from streamvault.objectstore.bulk import delete_all
from streamvault.objectstore.retrying import CountedStore
from streamvault.objectstore.store import NoSuchObject
from streamvault.runner.inline import InlineRunner
from streamvault.runner.runner import UNSEEN, Runner
from streamvault.streamstore.cuts import segments_between
from streamvault.streamstore.model import Range, SegmentId


def can_merge(manifests: Iterable[Manifest]) -> bool:
    """Check whether generations can be merged with each other.

    Layout and compression must be the same, of chunks each range size must be a multiple of the smaller ones, and an
    encoding must have one schema.
    """
    manifests = tuple(manifests)
    try:
        SchemaGroup.union(one.schemas for one in manifests)
    except ValueError:
        return False
    held = {(one.layout, one.compression, one.range_size) for one in manifests}
    if len({(layout, compression) for layout, compression, _ in held}) > 1:
        return False
    joinable = any(open_layout(layout).joinable for layout, _, _ in held)
    return not joinable or all(large % small == 0 for small, large in pairwise(sorted(size for *_, size in held)))


class Merger:
    """Computes the merge of neighbouring generations.

    Args:
        generations: the generations in order, all of the same layout and compression.
        where: the archive's name in messages.

    Raises:
        Damaged: the generations are not contiguous.
    """

    def __init__(self, generations: Sequence[Generation], where: str) -> None:
        self._held = tuple(generations)
        for before, after in pairwise(self._held):
            check_follows(before.manifest, after.manifest, where)
        self.range_size = max(generation.manifest.range_size for generation in self._held)

    def spans(self) -> Iterator[tuple[ArchivedRange, ...]]:
        """Yield of every range of the merged generation the old ones of which it consists, in the stream's order.

        Chunks are joined up to the range size: of the old boundaries, the first at or after each multiple of it is
        kept, and those of a gap and of a large event, which is never joined. Ranges of events are kept, since an
        event's key does not depend on its range.
        """
        for segment in sorted({segment for generation in self._held for segment in generation.rows}):
            rows = [row for generation in self._held for row in generation.rows.get(segment, ())]
            if open_layout(self._held[0].manifest.layout).joinable:
                yield from self._joined(rows)
            else:
                yield from ((row,) for row in rows)

    def _joined(self, rows: Sequence[ArchivedRange]) -> Iterator[tuple[ArchivedRange, ...]]:
        for _, span in groupby(rows, key=lambda row: row.start // self.range_size):
            some: list[ArchivedRange] = []
            for row in span:
                if some and (some[-1].end != row.start or some[-1].is_large or row.is_large):
                    yield tuple(some)
                    some = []
                some.append(row)
            yield tuple(some)

    def manifest(self, rows: Mapping[SegmentId, Sequence[ArchivedRange]], *, tool: str) -> Manifest:
        """Return the manifest of the merged generation, given its ranges by segment, in order."""
        first, last = self._held[0].manifest, self._held[-1].manifest
        gaps = [gap for generation in self._held for gap in generation.manifest.gaps]
        return last.model_copy(
            update={
                "from_": first.from_,
                "replaces": tuple(as_replaced(one) for held in self._held for one in held.manifest.originals),
                "segments": tuple(self._entries(rows)),
                "gaps": tuple(sorted(gaps, key=lambda gap: (gap.id, gap.start))),
                "events": sum(generation.manifest.events for generation in self._held),
                "bytes": sum(generation.manifest.bytes for generation in self._held),
                "range_size": self.range_size,
                "schemas": SchemaGroup.union(generation.manifest.schemas for generation in self._held),
                "tool": tool,
            }
        )

    def _entries(self, rows: Mapping[SegmentId, Sequence[ArchivedRange]]) -> Iterator[SegmentEntry]:
        found: dict[SegmentId, list[SegmentEntry]] = {}
        for generation in self._held:
            for entry in generation.manifest.segments:
                found.setdefault(entry.id, []).append(entry)
        for segment in sorted(found):
            entries = found[segment]
            yield entries[-1].model_copy(
                update={
                    "start": entries[0].start,
                    "events": sum(entry.events for entry in entries),
                    "bytes": sum(entry.bytes for entry in entries),
                    "digest": segment_digest(row.digest for row in rows.get(segment, ())),
                }
            )


def as_replaced(original: Manifest | Replaced) -> Replaced:
    """Return one of `Manifest.originals` as a merged generation has it."""
    if isinstance(original, Replaced):
        return original
    return Replaced(**dict(original) | {"epochs": len(original.epochs)})


Ends = dict[SegmentId, tuple[set[int], set[int]]]
"""Segment → the starts and the ends of its ranges in force."""


@dataclass(frozen=True, slots=True)
class JoinedTask:
    """Specification of a task that compares what is in force with replaced ranges.

    Attributes:
        archive: the archive's URI.
        generation: the number of the merged generation.
        rows: replaced ranges of a segment, in order; those of several merges may overlap.
        origins: the ranges in force that have their bytes, in order.
    """

    archive: str
    generation: int
    rows: tuple[ArchivedRange, ...]
    origins: tuple[ArchivedPart, ...]

    @property
    def size(self) -> int:
        """Bytes to be read."""
        return sum(origin.end - origin.start for origin in self.origins)


def compare_joined(task: JoinedTask) -> int:
    """Compare what is in force with its own digests, and those and the events of replaced ranges; read it once.

    Returns:
        How many bytes were read.

    Raises:
        Damaged: it has other bytes, or other events.
    """
    digests = [hashlib.sha256() for _ in task.rows]
    events: dict[int, int] = {}
    before = 0
    for origin in task.origins:
        at = origin.start
        for block in read_verified(origin):
            for row, digest in zip(task.rows, digests, strict=True):
                low, high = max(row.start - at, 0), min(row.end - at, len(block))
                if low < high:
                    digest.update(memoryview(block)[low:high])
            at += len(block)
        events[origin.start], before = before, before + origin.row.events
        events[origin.end] = before
    for row, digest in zip(task.rows, digests, strict=True):
        others = "bytes" if digest.hexdigest() != row.digest else ""
        if row.start in events:  # unless what was before it is deleted already
            upto = events[row.start] + row.events
            others = others or ("events" if events.setdefault(row.end, upto) != upto else "")
        if others:
            raise Damaged(
                f"the merged generation {task.generation} differs in {others} from a generation that it replaced",
                where=f"{task.archive}, {row.segment} bytes {row.start} to {row.end}",
                todo=NOT_MERGED,
            )
    return task.size


@dataclass(frozen=True, slots=True)
class Replacement:
    """A merged generation in force, and the generations it replaced that still exist.

    Attributes:
        span: the span of the merged generation.
        old: the spans of the others: published ones, and those whose late plans were abandoned.
        due: when the replaced generations may be deleted, after their grace and the S3 lock that was found.
        unchecked: numbers of the generations in force, of those that overlap the old ones, whose data were not read
            back; before that nothing is deleted.
    """

    span: GenerationSpan
    old: tuple[GenerationSpan, ...]
    due: datetime
    unchecked: tuple[int, ...]


def replacements(archive: Archive, listing: Listing) -> list[Replacement]:
    """Return the replaced generations that still exist, oldest first."""
    found: dict[GenerationSpan, set[GenerationSpan]] = {}
    over = [*listing.replaced, *(span for span in merges_under_way(archive) if listing.decision.is_over(span))]
    decided = {one.span: one for one in listing.decision.merged}
    for old in over:
        # a partly expired one overlaps none, or a later one; it is deleted with the expired
        span = next((span for span in sorted(decided) if span.overlaps(old)), None)
        if span is not None and old.first > listing.dropped:
            found.setdefault(span, set()).add(old)
    return [_replacement(listing, span, tuple(sorted(old))) for span, old in sorted(found.items())]


def _replacement(listing: Listing, span: GenerationSpan, old: tuple[GenerationSpan, ...]) -> Replacement:
    held = list(_overlapping(listing, old))
    merges = (one for one in listing.decision.merged if one.span == span or one.span in held)
    return Replacement(
        span,
        old,
        due=max(one.at + timedelta(seconds=max(one.grace, MIN_GRACE_SECONDS)) for one in merges),
        unchecked=tuple(one.last for one in held if one.last not in listing.checked),
    )


def _overlapping(listing: Listing, others: Sequence[GenerationSpan]) -> Iterator[GenerationSpan]:
    """Yield the generations in force from the first of the others to the last."""
    whole = GenerationSpan(min(first for first, _ in others), max(last for _, last in others))
    return (span for span in listing.spans if span.overlaps(whole))


def delete_replaced(
    archive: Archive,
    runner_of: Callable[[], Runner] = lambda: InlineRunner(1),
    progress: Progress = UNSEEN,
    *,
    now: datetime | None = None,
) -> tuple[DeletedData, tuple[Replacement, ...]]:
    """Delete replaced generations, once their grace is over and the merged one was read back, unless S3 locks them.

    It may be killed, repeated, run concurrently, and be late. Memory grows with the number of a merged generation's
    ranges, not of its events.

    Where a generation in force was joined, is stored in another layout, or names anything else of a range, it is read
    again and compared with its own digests, and with the digests and events of what it has replaced.

    Args:
        archive: the archive.
        runner_of: opens the runner of tasks; called only if there is something to read.
        progress: receives the progress.
        now: the time; None for the current one.

    Returns:
        What was deleted, and what must wait.

    Raises:
        Damaged: a merged generation does not have all that it has replaced.
    """
    moment = now or now_utc()
    done = DeletedData()
    locks_of = cache(archive.root.open_locks)

    def delete(listing: Listing) -> list[Replacement]:
        nonlocal done
        if listing.missing is not None:
            raise manifest_lost(listing, archive.uri)
        found = replacements(archive, listing)
        waiting = [one for one in found if one.unchecked or one.due > moment]
        if len(waiting) < len(found):
            check_decisions(archive.place, listing)
            archive.check_merged(listing)
        for one in found:
            if one not in waiting:
                held = [archive.load_span(span) for span in _overlapping(listing, one.old)]
                ends, locks = _ends(archive, held), locks_of()
                lock = locks.first_lock(_keys(archive, one)) if locks else None
                if lock is None:
                    tasks = _joined_tasks(archive, held, one)
                    if tasks:
                        progress.begin("comparing merged generations", sum(task.size for task in tasks))
                        for _, size in runner_of().run(compare_joined, tasks, progress):
                            progress.advance(0, size)
                    done += _delete(archive, one, ends)
                else:
                    waiting.append(replace(one, due=max(one.due, lock.until or one.due)))
        return waiting

    waiting = archive.stable(delete)
    return done, tuple(waiting)


def _keys(archive: Archive, one: Replacement) -> Iterator[str]:
    """Yield the keys that may be deleted, manifests first: they were written last, so they are locked longest."""
    for key in (manifest_key, ranges_key):
        yield from (archive.prefix + key(old) for old in one.old)
    yield from (archive.prefix + _chunk(row) for old in one.old for row in _rows(archive, old))


def _delete(archive: Archive, one: Replacement, ends: Ends) -> DeletedData:
    counted = CountedStore(archive.root.open())
    store, prefix = counted.store, archive.prefix
    gone = (
        prefix + _chunk(row)
        for old in one.old
        for row in _written(archive, old)
        if _is_unused(row, ends.get(row.segment))
    )
    objects = delete_all(store, gone)
    for old in one.old:
        delete_all(store, (found.key for found in store.list(prefix + work_folder(old))) if old.is_merged else ())
    for key in (ranges_key, checked_key, blocks_key, manifest_key):
        delete_all(store, (prefix + key(old) for old in one.old))
    return DeletedData(objects, counted.requests)


def _ends(archive: Archive, generations: Iterable[Generation]) -> Ends:
    """Return the starts and ends of the ranges of generations in force.

    Raises:
        Damaged: the mark of one of them is of a different manifest.
    """
    found: Ends = {}
    for generation in generations:
        check_mark(archive.store, generation.manifest, generation.fingerprint)
        if not open_layout(generation.manifest.layout).joinable:
            continue
        for segment, rows in generation.rows.items():
            starts, ends = found.setdefault(segment, (set(), set()))
            starts.update(row.start for row in rows)
            ends.update(row.end for row in rows)
    return found


def _joined_tasks(archive: Archive, generations: Iterable[Generation], one: Replacement) -> list[JoinedTask]:
    """Return the tasks that compare what is in force with what it has replaced: anyone may have marked it.

    Only what is in force unchanged, in the same objects, is left out. A range in force is read by one task.
    """
    held: dict[SegmentId, list[ArchivedPart]] = {}
    stored = set()
    for generation in generations:
        stored.add(_stored(generation.manifest))
        for row in generation.all_rows():
            held.setdefault(row.segment, []).append(ArchivedPart.all_of(archive.address, generation.layout, row))
    same = {origin.row for origins in held.values() for origin in origins}
    moved = set[ArchivedRange]()
    for old in one.old:
        try:
            others = stored != {_stored(archive.read_manifest(old))}
        except NoSuchArchive:  # it is already deleted, but perhaps not what was joined
            others = False
        moved.update(
            row
            for row in _rows(archive, old)
            if others or (row not in same and _is_within(row, held.get(row.segment, ())))
        )
    tasks = []
    for segment, rows in by_segment(sorted(moved)).items():
        some, end = list[ArchivedRange](), 0
        for row in rows:
            if len(some) >= RANGES_A_TASK and row.start >= end:
                tasks.append(_task(archive, one, held.get(segment, ()), some))
                some, end = [], 0
            some.append(row)
            end = max(end, row.end, *(origin.end for origin in _origins(held.get(segment, ()), [row])))
        tasks.append(_task(archive, one, held.get(segment, ()), some))
    return tasks


def _task(
    archive: Archive, one: Replacement, held: Sequence[ArchivedPart], rows: Sequence[ArchivedRange]
) -> JoinedTask:
    return JoinedTask(archive.uri, one.span.last, tuple(rows), _origins(held, rows))


def _origins(held: Sequence[ArchivedPart], rows: Sequence[ArchivedRange]) -> tuple[ArchivedPart, ...]:
    """Return those of ranges in force, in order, that have some of other ranges."""
    first = bisect_right(held, rows[0].start, key=lambda origin: origin.end)
    return tuple(held[first : bisect_left(held, max(row.end for row in rows), key=lambda origin: origin.start)])


def _is_within(row: ArchivedRange, held: Sequence[ArchivedPart]) -> bool:
    """Check whether a row lies within the ranges in force: otherwise it is not of what they have replaced."""
    return bool(held) and held[0].start <= row.start < row.end <= held[-1].end


def _stored(manifest: Manifest) -> tuple[str, str, str]:
    return manifest.layout, manifest.compression, manifest.content


def _is_unused(row: Range, ends: tuple[set[int], set[int]] | None) -> bool:
    """Check whether the chunk of a row is not in force and never can be, as it does not consist of whole ranges.

    A row that lies outside of the ranges in force is not of a generation that they have replaced.
    """
    if ends is None or not min(ends[0]) <= row.start < row.end <= max(ends[1]):
        return False
    return row.start not in ends[0] or row.end not in ends[1]


def merges_under_way(archive: Archive) -> list[GenerationSpan]:
    """Return the merged generations that have a plan, finished or not."""
    place = archive.place
    return [span for span in work_spans(place) if span.is_merged and find_plan(place, span) is not None]


def state_of(archive: Archive) -> object:
    """Return a value that changes when generations expire or are merged: findings meanwhile must be checked again."""
    listing = archive.listing()
    return listing.decision.number, listing.spans, listing.replaced, merges_under_way(archive)


def extra_chunks(archive: Archive, listing: Listing, under_way: Iterable[GenerationSpan]) -> Iterator[Range]:
    """Yield chunks that may exist besides those in force: replaced ones, those of unfinished and abandoned merges."""
    for span in (*listing.replaced, *listing.undecided):
        yield from _rows(archive, span)
    for span in under_way:
        yield from _finished(archive, span)
        held = [archive.load_span(one) for one in listing.within(span)]
        if len(held) > 1:
            for join in Merger(held, archive.uri).spans():
                yield Range(join[0].segment, join[0].start, join[-1].end)


def _written(archive: Archive, span: GenerationSpan) -> Iterator[Range]:
    """Yield the ranges in a generation's index, and those in the rows of its unfinished work."""
    yield from _rows(archive, span)
    if span.is_merged:
        yield from _finished(archive, span)


def _finished(archive: Archive, span: GenerationSpan) -> Iterator[Range]:
    for segment, row in find_rows(archive.place, span):
        for each in row.ranges:
            yield Range(segment, each.start, each.end)


def _rows(archive: Archive, span: GenerationSpan) -> Iterator[ArchivedRange]:
    """Yield the rows of an index; none if it is already deleted."""
    from streamvault.manifests.index import decode_ranges  # noqa: PLC0415  (see `load_index_code`)

    key = archive.prefix + ranges_key(span)
    try:
        data = archive.store.get(key, MAX_INDEX_BYTES)
    except NoSuchObject:
        return
    yield from decode_ranges(archive.stream, data, f"{archive.store.uri}/{key}")


def _chunk(row: Range) -> str:
    return chunk_key(row.segment, row.start, row.end - row.start)


UNKNOWN = "0" * 64
"""Placeholder for a digest that is computed by reading."""


@dataclass(frozen=True, slots=True)
class Remainder:
    """The later original generations of a merged one, as one generation; a plain one if it is only the last.

    Attributes:
        manifest: its manifest; events and digests are unknown until it is read (see `completed`).
        parts: its ranges in the stream's order: each range of the merged one, and the offset (bytes) at which the
            remainder begins.
        events: number of events.
    """

    manifest: Manifest
    parts: tuple[tuple[ArchivedRange, int], ...]
    events: int

    def completed(self, rows: Sequence[ArchivedRange], where: str) -> Manifest:
        """Return the complete manifest, given the ranges as read.

        Raises:
            Damaged: the ranges do not have as many events as the original generations.
        """
        return with_rows(self.manifest, rows, self.events, where)


def remainder_of(generation: Generation, after: int) -> Remainder:
    """Return the part of a merged generation after one of its original generations, which is not the last."""
    merged = generation.manifest
    cut = next(one.to for one in merged.replaces if one.generation == after)
    left = tuple(one for one in merged.replaces if one.generation > after)
    between = segments_between(History([generation]).description, cut, merged.to)
    starts = {segment: start for segment, (start, _) in between.items()}
    parts = tuple(
        (row, max(row.start, start))
        for segment, start in sorted(starts.items())
        for row in generation.rows.get(segment, ())
        if row.end > start
    )
    entries = []
    for entry in merged.segments:
        segment = entry.id
        if segment in starts:
            size = sum(row.end - start for row, start in parts if row.segment == segment)
            found = {"start": starts[segment], "events": 0, "bytes": size, "digest": UNKNOWN}
            entries.append(entry.model_copy(update=found))
    manifest = merged.model_copy(
        update={
            "from_": cut,
            "replaces": left if len(left) > 1 else (),
            "segments": tuple(entries),
            "gaps": tuple(gap for gap in merged.gaps if gap.id in starts and gap.end > starts[gap.id] <= gap.start),
            "events": 0,
            "bytes": sum(entry.bytes for entry in entries),
        }
    )
    return Remainder(manifest, parts, sum(one.events for one in left))
