"""Deletion of expired data.

Before it, a decision has put the data out of force for all readers at once. All objects below the archive's head are
deleted; the head is where the first generation in force begins. It only ever rises, so a deletion may be interrupted,
repeated or late. It also removes what a late task has written there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from streamvault.layouts.layout import LAYOUTS, open_layout
from streamvault.layouts.object_keys import MAX_INT63, WORK, parse_record, parse_segment, parse_work, work_folder
from streamvault.layouts.place import Place
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.expiry_rule import ExpiryRule
from streamvault.manifests.archive.history import Generation, History
from streamvault.manifests.archive.listing import Listing, check_decisions, manifest_lost
from streamvault.manifests.format.manifest import Manifest
from streamvault.objectstore.bulk import delete_all
from streamvault.objectstore.locks import Lock, ObjectLocks
from streamvault.objectstore.metered import CountedStore
from streamvault.objectstore.store import ObjectStore
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.arithmetic.cuts import segments_between
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
        first = _first(archive, listing)
        check_decisions(archive.place, listing)
        archive.check_merged(listing)
        return listing, first, rule.keeps(archive, listing, made=made)

    listing, first, kept = archive.stable(look)
    if first is None or kept:
        return DeletedData(kept=kept)
    locks = LockCheck(root)
    objects = _delete_below(archive, listing, first, locks)
    if locks.found is None and listing.unfinished:
        upto = listing.dropped
        archive.decide(lambda now: now.decision.sweep(upto) if now.decision.swept < upto else None)
    return DeletedData(objects, counted.requests, locks.found)


def _first(archive: Archive, listing: Listing) -> Manifest | None:
    """Return the manifest of the first generation in force; None if there is no archive."""
    if listing.missing is not None:
        raise manifest_lost(listing, archive.uri)
    return archive.read_manifest(listing.spans[0]) if listing.spans else None


def _delete_below(archive: Archive, listing: Listing, first: Manifest, locks: LockCheck) -> int:
    """Delete manifests first, so that a lock on one of them, set since the decision, still keeps all of the data."""
    store, prefix = archive.store, archive.prefix
    kinds: dict[str, list[str]] = {"manifest": [], "ranges": [], "checked": []}
    for key in listing.remains:
        if (record := parse_record(key)) is not None:
            kinds[record.kind].append(prefix + key)
    for keys in kinds.values():
        delete_all(store, locks.until_locked(keys))
    objects = delete_all(store, locks.until_locked(_data(store, prefix, below_head(first))))
    for folder in store.folders(prefix + WORK):
        span = parse_work(folder)
        if span is not None and span.first <= listing.dropped:
            work = store.list(prefix + work_folder(span))
            delete_all(store, locks.until_locked(entry.key for entry in work))
    return objects


def _data(store: ObjectStore, prefix: str, below: dict[SegmentId, tuple[int, int]]) -> Iterator[str]:
    for layout in map(open_layout, LAYOUTS):
        segments = (parse_segment(segment) for segment in store.folders(prefix + layout.keys.root))
        for segment in segments:
            if segment is not None and (bounds := below.get(segment)) is not None:
                yield from (entry.key for entry in layout.between(Place(store, prefix), segment, *bounds))


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
