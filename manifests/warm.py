"""The verb *warm*: bringing an archive back from an archive class, and waiting for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice

from common.progress import Progress
from manifests.archive import Archive, History
from manifests.cold import StoredRange, cold_objects, joined, sample, stored_ranges
from manifests.options import POLL_SECONDS, WarmOptions
from manifests.reports import WarmReport
from objectstore.errors import InArchiveClass
from objectstore.s3.cold import ColdStorage, StoredObject
from objectstore.s3.tiers import Tier

__all__ = ["POLL_SECONDS", "await_warm", "name_cold", "warm_archive"]

AT_ONCE = 1000


def warm_archive(
    archive: str,
    *,
    generation: int | None = None,
    days: int = 7,
    tier: Tier = "Standard",
    wait: bool = False,
    poll_seconds: float = POLL_SECONDS,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> WarmReport:
    """Ask S3 to bring back what of an archive is in an archive class (Glacier), so that it can be read for some days.

    Calling it again is harmless and tells how far S3 is.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        generation: what an import up to this generation needs; None for the newest.
        days: how long the objects stay readable.
        tier: how quick, and how dear: ``Bulk``, ``Standard`` or ``Expedited``.
        wait: return only when everything can be read.
        poll_seconds: how often to look meanwhile.
        dry_run: only say what would be asked for.
        progress: told how it goes on.

    Raises:
        Problem: with the exit code that the command line ends with.
    """
    began = time.monotonic()
    progress = progress or Progress()
    WarmOptions(generation=generation, days=days, tier=tier, wait=wait, poll_seconds=poll_seconds)
    source, history = _open(archive, generation)
    storage, ranges = ColdStorage(source.root), list(joined(stored_ranges(history)))
    cold = size = asked = 0
    # In batches: an archive may have millions of objects. Those asked for stay in the listing, as coming.
    found = cold_objects(storage, source.prefix, ranges)
    while some := list(islice(found, AT_ONCE)):
        cold += len(some)
        size += sum(one.size for one in some)
        if not dry_run:
            asked += storage.ask([one for one in some if one.warmth == "cold"], days, tier)
            progress.say(f"asked S3 for {asked:,} of {cold:,} objects")
    if wait and cold and not dry_run:
        _await_readable(storage, source.prefix, ranges, poll_seconds=poll_seconds, progress=progress)
    return WarmReport(
        archive=source.uri,
        cold=cold,
        bytes=size,
        asked=asked,
        readable=not cold or (wait and not dry_run),
        total_seconds=round(time.monotonic() - began, 3),
        dry_run=dry_run,
    )


def name_cold(archive: Archive, ranges: Sequence[StoredRange], found: InArchiveClass) -> InArchiveClass:
    """What to say of objects one of which was found to be in an archive class: in which, and whether it is coming.

    Args:
        archive: which.
        ranges: what is needed.
        found: what was met.
    """
    storage = ColdStorage(archive.root)
    one = next(cold_objects(storage, archive.prefix, sample(ranges), first_page=True), None)
    return found if one is None else _named(one, storage.uri)


def await_warm(archive: Archive, ranges: Sequence[StoredRange], progress: Progress) -> None:
    """Wait until all that is needed can be read.

    Args:
        archive: which.
        ranges: what is needed.
        progress: told how it goes on.

    Raises:
        InArchiveClass: S3 was never asked for an object.
    """
    storage, ranges = ColdStorage(archive.root), list(joined(ranges))
    _await_readable(storage, archive.prefix, ranges, poll_seconds=POLL_SECONDS, progress=progress)


def _await_readable(
    storage: ColdStorage, prefix: str, ranges: Sequence[StoredRange], *, poll_seconds: float, progress: Progress
) -> None:
    """Wait until every object of some ranges can be read.

    Raises:
        InArchiveClass: one is in an archive class and nobody has asked S3 for it.
    """
    least: int | None = None
    while True:
        waiting = left = 0
        for found in cold_objects(storage, prefix, ranges):
            if found.warmth == "cold":
                raise _named(found, storage.uri)
            waiting += 1
            left += found.size
        if least is None:
            progress.begin("waiting for S3", left)
        elif left < least:
            progress.advance(0, least - left)
        least = left if least is None else min(least, left)
        if not waiting:
            progress.end()
            return
        progress.say(f"waiting for S3: {waiting:,} objects are not readable yet")
        time.sleep(poll_seconds)


def _named(found: StoredObject, where: str) -> InArchiveClass:
    if found.warmth == "coming":
        todo = "S3 is bringing it back: wait with 'streamvault warm --wait', or import with --wait-for-warm."
        return InArchiveClass(
            f"an object is in the archive class {found.storage_class}", where=f"{where}/{found.key}", todo=todo
        )
    return InArchiveClass.of(found.storage_class, f"{where}/{found.key}")


def _open(archive: str, generation: int | None) -> tuple[Archive, History]:
    source = Archive.open(archive)
    return source, source.history(generation)
