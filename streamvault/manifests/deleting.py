"""Deletes expired data and strays; sweeps prove that every object of a generation exists.

A decision has put expired data out of force for all readers at once. All objects below the archive's head, where the
first generation in force begins, are then deleted, if the rule of the run that deletes agrees (`manifests.expiry`). The
head only ever rises, so a deletion may be interrupted, repeated or late. It also removes what a late task has written.

A sweep walks the listing of archived ranges. Before a generation is published, it proves that the generation is
complete, and deletes nothing. Afterwards, it deletes the strays of wrong guesses and interrupted runs: only objects
that the published index proves to be off its chain. So a late sweep is harmless, and any later run may repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from streamvault.common.progress import Progress
from streamvault.layouts.keys import MAX_INT63, Place, PlaceAddress, parse_record, work_folder
from streamvault.layouts.layout import LAYOUTS, LayoutName, open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.expiry import ExpiryRule
from streamvault.manifests.history import Generation, History
from streamvault.manifests.listing import Listing, check_decisions, manifest_lost, work_spans
from streamvault.manifests.manifest import Manifest
from streamvault.objectstore.bulk import delete_all
from streamvault.objectstore.retrying import CountedStore
from streamvault.objectstore.store import PAGE, Lock, ObjectLocks
from streamvault.objectstore.uri import RootAddress
from streamvault.runner.inline import InlineRunner
from streamvault.runner.runner import Runner
from streamvault.streamstore.cuts import segments_between
from streamvault.streamstore.model import SegmentId, StreamCut, StreamName

AT_ONCE = 1000
"""Objects whose locks are queried before the first of them is deleted."""


@dataclass(frozen=True, slots=True)
class DeletedData:
    """Result of a deletion.

    Attributes:
        objects: number of deleted data objects.
        requests: number of LIST and bulk DELETE requests.
        lock: the lock of the first object that S3 does not delete yet; it and those after it remain.
        kept: why nothing was deleted of what has expired, see `ExpiryRule.keeps`; empty if it was.
    """

    objects: int = 0
    requests: int = 0
    lock: Lock | None = None
    kept: str = ""

    def __add__(self, other: DeletedData) -> DeletedData:
        return DeletedData(
            self.objects + other.objects,
            self.requests + other.requests,
            self.lock or other.lock,
            self.kept or other.kept,
        )


def below_head(first: Manifest) -> dict[SegmentId, tuple[int, int]]:
    """Return, for each segment, the start and end (bytes) of what lies before the first generation in force."""
    described = History([Generation(first, {})]).description
    beginning = StreamCut(described.name, dict.fromkeys(described.epochs[0].segments, 0))
    between = segments_between(described, beginning, described.head)
    ends = {segment: MAX_INT63 if end is None else end for segment, (_, end) in between.items()}
    return {segment: (0, end) for segment, end in ends.items() if end}


def delete_expired(root: RootAddress, stream: StreamName, rule: ExpiryRule, *, made: int | None = None) -> DeletedData:
    """Delete everything below the archive's head: manifests, indexes and marks, data, unfinished work.

    Deletes nothing if the caller's own rule keeps any of it (`ExpiryRule.keeps`, also for ``made``), so that a decision
    alone deletes nothing, whoever made it. Stops at an object that S3 locks. If nothing is to be deleted, it costs one
    listing of the manifests, and one for each segment whose beginning has expired. Memory does not grow with the number
    of objects.

    Raises:
        Damaged: a manifest is missing, so the archive's head is unknown; or the newest decision does not follow from
            those before it.
        Problem: the store cannot be reached, or does not allow deletion.
    """
    counted = CountedStore(root.open())
    archive = Archive(root, stream, counted.store)

    def look(listing: Listing) -> tuple[Listing, Manifest | None, str]:
        if listing.missing is not None:
            raise manifest_lost(listing, archive.uri)
        first = archive.read_manifest(listing.spans[0]) if listing.spans else None
        check_decisions(archive.place, listing)
        archive.check_merged(listing)
        kept = rule.keeps(archive, listing, made=made)
        if not kept:  # so that a rotation that would delete nothing only warns
            archive.check_beginning(listing)
        return listing, first, kept

    listing, first, kept = archive.stable(look)
    if first is None or kept:
        return DeletedData(kept=kept)
    locks = LockCheck(root)
    objects = _delete_below(archive, listing, first, locks)
    if locks.found is None and listing.unfinished:
        upto = listing.dropped
        archive.decide(lambda now: now.decision.sweep(upto) if now.decision.swept < upto else None)
    return DeletedData(objects, counted.requests, locks.found)


def _delete_below(archive: Archive, listing: Listing, first: Manifest, locks: LockCheck) -> int:
    """Delete manifests first, so that a lock on one of them, set since the decision, still keeps all of the data."""
    store, prefix = archive.store, archive.prefix
    kinds: dict[str, list[str]] = {"manifest": [], "ranges": [], "checked": [], "blocks": []}
    for key in listing.remains:
        if (record := parse_record(key)) is not None:
            kinds[record.kind].append(prefix + key)
    for keys in kinds.values():
        delete_all(store, locks.until_locked(keys))
    objects = delete_all(store, locks.until_locked(_data(archive.place, below_head(first))))
    for span in work_spans(archive.place):
        if span.first <= listing.dropped:
            work = store.list(prefix + work_folder(span))
            delete_all(store, locks.until_locked(entry.key for entry in work))
    return objects


def _data(place: Place, below: dict[SegmentId, tuple[int, int]]) -> Iterator[str]:
    for layout in map(open_layout, LAYOUTS):
        for segment in layout.segments(place):
            if segment in below:
                yield from (entry.key for entry in layout.between(place, segment, *below[segment]))


class LockCheck:
    """Check of keys that stops at a locked object: it may have been locked after the decision that it expires."""

    def __init__(self, root: RootAddress) -> None:
        self._root = root
        self.found: Lock | None = None

    def until_locked(self, keys: Iterable[str]) -> Iterator[str]:
        """Yield the keys up to the first batch with a locked one, which is then `found`."""
        left = iter(keys)
        while self.found is None and (batch := list(islice(left, AT_ONCE))):
            self.found = None if self._locks is None else self._locks.first_lock(batch)
            if self.found is None:
                yield from batch

    @cached_property
    def _locks(self) -> ObjectLocks | None:
        """The bucket's locks, opened only if there is something to delete."""
        return self._root.open_locks()


FEW_OBJECTS = 10_000
"""Up to this many objects are listed faster by the driver than by tasks."""

RANGES_A_TASK = 16
"""Ranges per task: a gigabyte of events, unless ranges are small."""

CHUNKS_A_LISTING = PAGE - 1
"""Ranges per task if each is one object and only listed: with the key after them, one page of a listing."""


@dataclass(frozen=True, slots=True)
class SweepTask:
    """A sweep of a part of a segment.

    Attributes:
        address: the archive.
        layout: the layout of the ranges.
        segment: the segment.
        start: offset of the part's first byte.
        end: offset after its last byte.
        ranges: (start, end) of each archived range of the part, in order; the rest is not archived.
        known: keys (relative to the archive) that other manifests name, which are therefore kept.
    """

    address: PlaceAddress
    layout: LayoutName
    segment: SegmentId
    start: int
    end: int
    ranges: tuple[tuple[int, int], ...]
    known: frozenset[str] = frozenset()


def ranges_a_task(layout: str, *, reads: bool) -> int:
    """Return how many ranges a task lists, or also reads."""
    return RANGES_A_TASK if reads or open_layout(layout).one_object_per_event else CHUNKS_A_LISTING


def _parts(whole: SweepTask) -> Iterator[SweepTask]:
    """Divide the sweep of a segment into tasks that can run in parallel."""
    at, size = whole.start, ranges_a_task(whole.layout, reads=False)
    for first in range(0, len(whole.ranges), size):
        ranges = whole.ranges[first : first + size]
        is_last = first + size >= len(whole.ranges)
        end = whole.end if is_last else ranges[-1][1]
        yield replace(whole, start=at, end=end, ranges=ranges)
        at = end
    if not whole.ranges:
        yield whole


def tasks_of(
    generations: Iterable[Generation], address: PlaceAddress, known: Callable[[SegmentId], Iterable[str]]
) -> Iterator[SweepTask]:
    """Yield the tasks that sweep published generations.

    Args:
        generations: generations in force.
        address: the archive.
        known: returns, for a segment, the keys (relative to the archive) of chunks to keep besides those of the
            generations.
    """
    for generation in generations:
        manifest = generation.manifest
        for entry in manifest.segments:
            if entry.start < entry.end:
                segment = entry.id
                ranges = tuple((row.start, row.end) for row in generation.rows.get(segment, ()))
                kept = frozenset(known(segment)) if open_layout(manifest.layout).joinable else frozenset()
                yield from _parts(SweepTask(address, manifest.layout, segment, entry.start, entry.end, ranges, kept))


def prove(generation: Generation, address: PlaceAddress, runner_of: Callable[[], Runner], progress: Progress) -> int:
    """Prove, before a generation is published, that every object of its ranges exists; return the number of strays.

    The runner of tasks is opened only if there are many objects.

    Raises:
        Damaged: an object has disappeared, or has the wrong size.
    """
    manifest = generation.manifest
    tasks = list(tasks_of([generation], address, lambda _: ()))
    objects = open_layout(manifest.layout).object_count(generation.row_count, manifest.events)
    progress.begin("verifying", sum(task.end - task.start for task in tasks))
    strays = 0
    for index, found in (InlineRunner(4) if objects <= FEW_OBJECTS else runner_of()).run(count_strays, tasks):
        strays += found
        progress.advance(0, tasks[index].end - tasks[index].start)
    return strays


def count_strays(task: SweepTask) -> int:
    """Prove that every object of the task's ranges exists; return the number of strays.

    Raises:
        Damaged: an object is missing or has the wrong size.
    """
    return sum(1 for _ in _strays(task.address.open(), task))


def remove_strays(task: SweepTask) -> int:
    """Delete the strays around the ranges of a published index; return the number of deleted objects.

    Raises:
        Damaged: an object of a range is missing or has the wrong size; no strays after it are deleted.
        Problem: the store cannot be reached, or does not allow deletion.
    """
    place = task.address.open()
    return delete_all(place.store, _strays(place, task))


def _strays(place: Place, task: SweepTask) -> Iterator[str]:
    for key in open_layout(task.layout).off_chain(place, task.segment, task.start, task.end, task.ranges):
        if key.removeprefix(place.prefix) not in task.known:
            yield key
