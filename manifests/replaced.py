"""What merged generations have replaced: which objects that are, and deleting them once no reader can need them.

Old chunks are deleted by name, each because the index that replaced it has it joined with others: never "all else that
lies there". So a run that is late deletes nothing that others have written since: a joined chunk is longer than each
that it was made of, and later ones are longer still. The manifest goes last, so whoever comes next finds what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from manifests.archive import Archive, NoSuchArchive
from manifests.deleting import DeletedData
from manifests.listing import Listing, Name
from manifests.merging import Merger
from manifests.model import now_utc
from manifests.plan import find_plan
from manifests.range_row import RangeRow
from manifests.ranges import MOST_INDEX_BYTES, decode_ranges
from manifests.rows import find_rows
from objectstore.bulk import delete_all
from objectstore.errors import NoSuchObject
from objectstore.keys import WORK, checked_key, chunk_key, manifest_key, parse_merged_work, ranges_key, work_folder
from objectstore.metered import MeteredStore
from objectstore.uri import RootAddress
from problems import Damaged

__all__ = ["LEAST_GRACE", "Replacement", "delete_replaced", "joins_of", "merges_under_way", "replacements", "state_of"]

LEAST_GRACE = 60.0
"""Seconds for which replaced pieces stay at least: longer than a dropped mark is on its way (docs/design.md)."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A merged generation in force and what it replaced and is still there.

    Attributes:
        name: of the merged generation.
        old: names of the others: of manifests, and of plans that were given up since they came too late.
        merged: when it was published.
        retained: until when S3 locks an object of what it replaced, as far as was looked.
    """

    name: Name
    old: tuple[Name, ...]
    merged: datetime
    retained: datetime | None = None

    def due(self, grace: float) -> datetime:
        """When what it replaced may go, after a grace (seconds)."""
        after = self.merged + timedelta(seconds=max(grace, LEAST_GRACE))
        return after if self.retained is None else max(after, self.retained)


def replacements(archive: Archive, listing: Listing) -> list[Replacement]:
    """What is still there and replaced, oldest first.

    Raises:
        NoSuchArchive: it is replaced itself by now. Damaged: a manifest cannot be read.
    """
    found: dict[int, list[Name]] = {}
    for name in listing.replaced:
        holder = listing.holder(name[0])
        if holder is not None:
            found.setdefault(holder, []).append(name)
    for name in merges_under_way(archive):
        holder = listing.holder(name[0])
        if holder is not None and listing.first_of(holder) <= name[1] and (holder, listing.first_of(holder)) != name:
            found.setdefault(holder, []).append(name)
    made = []
    for number, old in sorted(found.items()):
        manifest = archive.read_manifest(number, listing.first_of(number))
        made.append(Replacement((number, manifest.first), tuple(sorted(set(old))), manifest.merged or manifest.created))
    return made


def delete_replaced(
    archive: Archive, root: RootAddress, grace: float, *, now: datetime | None = None
) -> tuple[DeletedData, tuple[Replacement, ...]]:
    """Delete what was replaced longer ago than the grace, unless S3 locks an object of it.

    May be killed at any moment, called again, and run twice at once. Memory grows with the number of a merged
    generation's ranges, not with that of its events.

    Args:
        archive: where.
        root: the same root.
        grace: seconds since the merged generation was published; never less than a minute.
        now: this moment, for tests.

    Returns:
        What was deleted, and what has to wait.
    """
    moment = now or now_utc()
    done = DeletedData()
    waiting: list[Replacement] = []
    due: list[Replacement] = []
    for one in archive.stable(lambda listing: replacements(archive, listing)):
        (waiting if moment < one.due(grace) else due).append(one)
    if not due:
        return done, tuple(waiting)
    from objectstore.locks import open_locks  # noqa: PLC0415  (it imports botocore; a check never comes here)

    locks = open_locks(root)
    for one in due:
        lock = locks.first_lock(_keys(archive, one)) if locks else None
        if lock is None:
            done += _delete(archive, root, one)
        else:
            waiting.append(replace(one, retained=lock.until))
    return done, tuple(waiting)


def _keys(archive: Archive, one: Replacement) -> Iterator[str]:
    """What may go, manifests first: they were written last, so they are locked longest."""
    for key in (manifest_key, ranges_key):
        yield from (archive.prefix + key(*old) for old in one.old)
    yield from (archive.prefix + _chunk(row) for old in one.old for row in _rows(archive, old))


def _delete(archive: Archive, root: RootAddress, one: Replacement) -> DeletedData:
    store = MeteredStore(root.open())
    prefix = archive.prefix
    try:
        merged = archive.load_name(*one.name)
    except (NoSuchArchive, Damaged):
        if one.name in archive.listing().names:
            raise
        return DeletedData()  # replaced itself, and gone
    kept = {_chunk(row) for rows in merged.rows.values() for row in rows}
    if one.name not in archive.listing().names:
        return DeletedData()  # dropped within, or replaced itself: what it replaced is not this one's any more
    objects = 0
    if merged.manifest.layout == "chunks":
        objects = delete_all(
            store,
            (prefix + _chunk(row) for old in one.old for row in _written(archive, old) if _chunk(row) not in kept),
        )
    for old in one.old:
        delete_all(store, (found.key for found in store.list(prefix + work_folder(*old))) if old[0] != old[1] else ())
    for key in (ranges_key, checked_key, manifest_key):
        delete_all(store, (prefix + key(*old) for old in one.old))
    return DeletedData(objects, store.meter.requests)


def merges_under_way(archive: Archive) -> list[Name]:
    """The merged generations that have a plan, finished or not."""
    names = (parse_merged_work(folder) for folder in archive.store.folders(archive.prefix + WORK))
    return [name for name in names if name is not None and find_plan(archive.store, archive.prefix, *name) is not None]


def state_of(archive: Archive) -> object:
    """What changes if generations expire or are merged: who has found something wrong meanwhile looks again."""
    listing = archive.listing()
    return listing.dropped, listing.names, listing.replaced, merges_under_way(archive)


def joins_of(archive: Archive, listing: Listing, under_way: Iterable[Name]) -> Iterator[RangeRow]:
    """Chunks that may lie beside those in force: replaced ones, and those of compactions under way or given up."""
    for name in (*listing.replaced, *listing.void):
        yield from _rows(archive, name)
    for generation, first in under_way:
        yield from _finished(archive, (generation, first))
        held = [archive.load_name(n, listing.first_of(n)) for n in listing.within(generation, first)]
        if len(held) > 1:
            for join in Merger(held, archive.uri).joins():
                yield join.row(join.rows[0].digest, ())


def _written(archive: Archive, name: Name) -> Iterator[RangeRow]:
    """What a generation's index has, and what rows of its unfinished work have."""
    yield from _rows(archive, name)
    if name[0] != name[1]:
        yield from _finished(archive, name)


def _finished(archive: Archive, name: Name) -> Iterator[RangeRow]:
    for segment, row in find_rows(archive.store, archive.prefix, *name):
        for piece in row.pieces:
            yield RangeRow(segment, piece.start, piece.end, piece.events, piece.digest)


def _rows(archive: Archive, name: Name) -> Iterator[RangeRow]:
    """The rows of an index; none if it is gone already."""
    key = archive.prefix + ranges_key(*name)
    try:
        data = archive.store.get(key, MOST_INDEX_BYTES)
    except NoSuchObject:
        return
    yield from decode_ranges(archive.stream, data, f"{archive.store.uri}/{key}")


def _chunk(row: RangeRow) -> str:
    return chunk_key(row.segment.epoch, row.segment.number, row.start, row.end - row.start)
