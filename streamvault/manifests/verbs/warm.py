"""The *warm* command: restore an archive's objects from an archive class, and wait for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice

from streamvault.common.progress import Progress
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.options import POLL_SECONDS, WarmOptions
from streamvault.manifests.verbs.cold import NeededPart, cold_objects, joined_parts, needed_parts, sample
from streamvault.manifests.verbs.reports import WarmReport
from streamvault.objectstore.cold import Tier
from streamvault.objectstore.errors import InArchiveClass

AT_ONCE = 1000


def warm_archive(
    archive: str,
    *,
    generation: int | None = None,
    days: int = 7,
    tier: Tier = "Standard",
    wait: bool = False,
    poll: float = POLL_SECONDS,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> WarmReport:
    """Request that S3 restores an archive's objects from an archive class (Glacier), so that they are readable.

    Repeating it is harmless and reports how far S3 is.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        generation: restore what an import up to this generation needs; None for the newest.
        days: how long the objects stay readable.
        tier: speed and price: ``Bulk``, ``Standard`` or ``Expedited``.
        wait: return only when everything is readable.
        poll: interval of polling while waiting.
        dry_run: report what would be requested without requesting it.
        progress: receives the progress.

    Raises:
        Problem: with the exit code of the command line.
    """
    began = time.monotonic()
    progress = progress or Progress()
    WarmOptions(generation=generation, days=days, tier=tier, wait=wait, poll=poll)
    source = Archive.open(archive)
    storage, parts = source.root.open_cold_storage(), list(joined_parts(needed_parts(source.history(generation))))
    cold = size = asked = 0
    # In batches, since an archive may have millions of objects. Requested ones stay in the listing, as coming.
    found = cold_objects(storage, source.prefix, parts)
    while some := list(islice(found, AT_ONCE)):
        cold += len(some)
        size += sum(one.size for one in some)
        if not dry_run:
            asked += storage.ask([one for one in some if one.warmth == "cold"], days, tier)
            progress.say(f"requested {asked:,} of {cold:,} objects from S3")
    if wait and cold and not dry_run:
        await_warm(source, parts, progress, poll)
    return WarmReport(
        archive=source.uri,
        cold=cold,
        bytes=size,
        asked=asked,
        readable=not cold or (wait and not dry_run),
        total_seconds=round(time.monotonic() - began, 3),
        dry_run=dry_run,
    )


def name_cold(archive: Archive, parts: Sequence[NeededPart], found: InArchiveClass) -> InArchiveClass:
    """Return the error for objects in an archive class: it names the class, and whether S3 is restoring them.

    If no such object is found, it is the error that was met when reading.
    """
    storage = archive.root.open_cold_storage()
    one = next(cold_objects(storage, archive.prefix, sample(parts), first_page=True), None)
    return found if one is None else one.problem(storage.uri)


def await_warm(archive: Archive, parts: Sequence[NeededPart], progress: Progress, poll: float) -> None:
    """Wait until every object of the parts to be read is readable.

    Raises:
        InArchiveClass: an object is in an archive class, and its restore was not requested.
    """
    storage, parts = archive.root.open_cold_storage(), list(joined_parts(parts))
    least: int | None = None
    while True:
        waiting = left = 0
        for found in cold_objects(storage, archive.prefix, parts):
            if found.warmth == "cold":
                raise found.problem(storage.uri)
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
        time.sleep(poll)
