"""Deleting what a dropped mark speaks of: the one place where archived data goes.

The mark was made first and hides all of it from every reader at once, so what is done here may stop anywhere and be
taken up again, by whoever comes first, or by several at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from manifests.listing import Listing, read_listing
from manifests.marks import Deleted, Dropped, DroppedStretch, find_dropped
from manifests.model import segment_key
from objectstore.bulk import delete_all
from objectstore.errors import AlreadyExists
from objectstore.keys import deleted_key, dropped_key, parse_manifest, parse_merged, parse_ranges
from objectstore.layouts import open_layout
from objectstore.metered import MeteredStore
from objectstore.store import ObjectStore
from objectstore.uri import RootAddress
from problems import Usage
from streamstore.model import StreamName

__all__ = ["DeletedData", "delete_dropped", "resume_deletions", "unfinished_marks"]


@dataclass(frozen=True, slots=True)
class DeletedData:
    """What a deletion did.

    Attributes:
        objects: data objects that it deleted. requests: LIST and bulk DELETE requests that it made, and a PUT.
    """

    objects: int = 0
    requests: int = 0

    def __add__(self, other: DeletedData) -> DeletedData:
        return DeletedData(self.objects + other.objects, self.requests + other.requests)


def unfinished_marks(store: ObjectStore, stream: StreamName, listing: Listing) -> list[Dropped]:
    """The dropped marks whose data may still be there, oldest first.

    Raises:
        Damaged: one cannot be read.
    """
    found = (find_dropped(store, stream, number) for number in listing.unfinished)
    return [mark for mark in found if mark is not None]


def delete_dropped(root: RootAddress, prefix: str, mark: Dropped) -> DeletedData:
    """Delete manifests, indexes and marks of dropped generations, then their data, then older dropped marks.

    May be called again after a kill at any moment, and twice at once: it deletes what is still there. Memory does not
    grow with the number of objects. The newest dropped mark stays: it says that the archive's head has moved.

    Args:
        root: the archive's root.
        prefix: the archive below it, ``SCOPE/STREAM/``.
        mark: as it lies in the archive.

    Raises:
        Usage: the archive has no such mark, so nothing may be deleted.
        Problem: the store cannot be reached, or deleting is not allowed there.
    """
    store = MeteredStore(root.open())
    listing = read_listing(store, prefix)
    if mark.generation not in listing.dropped_marks:
        if mark.generation < listing.dropped:
            return DeletedData()  # done, and its mark is gone
        raise Usage(
            "these generations were not dropped", where=f"{store.uri}/{prefix}, {mark.first} to {mark.generation}"
        )
    _delete_records(store, prefix, listing, mark)
    objects = delete_all(store, _data_keys(store, prefix, mark.stretches))
    done = Deleted(scope=mark.scope, stream=mark.stream, generation=mark.generation, objects=objects, tool=mark.tool)
    with suppress(AlreadyExists):  # another run was done first
        store.put(prefix + deleted_key(mark.generation), done.encode())
    _remove_older_marks(store, prefix, read_listing(store, prefix))
    return DeletedData(objects, store.meter.requests)


def resume_deletions(root: RootAddress, stream: StreamName) -> tuple[bool, DeletedData]:
    """Finish what earlier runs began and did not end.

    Args:
        root: the archive's root.
        stream: which archive.

    Returns:
        Whether there was anything, and what was done. Without anything it costs one listing of the manifests.

    Raises:
        Damaged: a mark cannot be read. Problem: as for `delete_dropped`.
    """
    store, prefix = root.open(), f"{stream}/"
    listing = read_listing(store, prefix)
    done = DeletedData()
    marks = unfinished_marks(store, stream, listing)
    for mark in marks:
        done += delete_dropped(root, prefix, mark)
    if not marks:
        _remove_older_marks(store, prefix, listing)
    return bool(marks), done


def _delete_records(store: ObjectStore, prefix: str, listing: Listing, mark: Dropped) -> None:
    """Manifests first, then indexes, then marks and holds."""
    mine = (number for number in sorted(listing.remains) if number <= mark.generation)
    keys = [key for number in mine for key in listing.remains[number]]
    merged = {key: one.kind for key in keys if (one := parse_merged(key)) is not None}
    manifests = [key for key in keys if parse_manifest(key) is not None or merged.get(key) == "manifest"]
    indexes = [key for key in keys if parse_ranges(key) is not None or merged.get(key) == "ranges"]
    rest = sorted({*keys}.difference(manifests, indexes))
    for some in (manifests, indexes, rest):
        delete_all(store, [prefix + key for key in some])


def _data_keys(store: ObjectStore, prefix: str, stretches: tuple[DroppedStretch, ...]) -> Iterator[str]:
    for stretch in stretches:
        segment = segment_key(stretch.segment)
        place = (store, prefix, segment.epoch, segment.number)
        for entry in open_layout(stretch.layout).between(*place, stretch.start, stretch.end):
            yield entry.key


def _remove_older_marks(store: ObjectStore, prefix: str, listing: Listing) -> None:
    """Marks of deletions that are through, but for the newest; a dropped mark goes before its deleted mark."""
    through = [number for number in listing.deleted_marks if number < listing.dropped]
    if through:
        store.delete([prefix + dropped_key(number) for number in through])
        store.delete([prefix + deleted_key(number) for number in through])
