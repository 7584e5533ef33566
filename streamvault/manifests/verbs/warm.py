"""The *warm* command: restore an archive's objects from an archive class, and wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from streamvault.common.joint_run import pause
from streamvault.common.progress import Progress
from streamvault.common.verb import verb
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.options import WarmOptions
from streamvault.manifests.verbs.cold import (
    NeededPart,
    Span,
    cold_objects,
    joined_parts,
    needed_parts,
    sample,
    spans_of,
)
from streamvault.manifests.verbs.reports import WarmReport
from streamvault.objectstore.cold import ColdStorage
from streamvault.objectstore.errors import InArchiveClass

AT_ONCE = 1000


@verb(WarmOptions)
def warm_archive(archive: str, options: WarmOptions, progress: Progress) -> WarmReport:
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
    source = Archive.open(archive)
    storage = source.root.open_cold_storage()
    parts = list(joined_parts(needed_parts(source.history(options.generation))))
    cold, size, asked = request_cold(storage, spans_of(source.prefix, parts), options, progress)
    if options.wait and cold and not options.dry_run:
        await_warm(source, parts, progress, options.poll)
    return WarmReport(
        archive=source.uri,
        cold=cold,
        bytes=size,
        asked=asked,
        readable=not cold or (options.wait and not options.dry_run),
        dry_run=options.dry_run,
    )


def request_cold(
    storage: ColdStorage, spans: Iterable[Span], options: WarmOptions, progress: Progress
) -> tuple[int, int, int]:
    """Ask S3 to restore every object that cannot be read; return how many there are, their bytes, and new requests."""
    cold = size = asked = 0
    # In batches, since an archive may have millions of objects. Requested ones stay in the listing, as coming.
    found = cold_objects(storage, spans)
    while some := list(islice(found, AT_ONCE)):
        cold += len(some)
        size += sum(one.size for one in some)
        if not options.dry_run:
            asked += storage.ask([one for one in some if one.warmth == "cold"], options.days, options.tier)
            progress.say(f"requested {asked:,} of {cold:,} objects from S3")
    return cold, size, asked


def name_cold(archive: Archive, parts: Sequence[NeededPart], found: InArchiveClass) -> InArchiveClass:
    """Return the error for objects in an archive class: it names the class, and whether S3 is restoring them.

    If no such object is found, it is the error that was met when reading.
    """
    storage = archive.root.open_cold_storage()
    one = next(cold_objects(storage, spans_of(archive.prefix, sample(parts)), first_page=True), None)
    return found if one is None else one.problem(storage.uri)


def await_warm(archive: Archive, parts: Sequence[NeededPart], progress: Progress, poll: float) -> None:
    """Wait until every object of the parts to be read is readable.

    Raises:
        InArchiveClass: an object is in an archive class, and its restore was not requested.
    """
    storage, spans = archive.root.open_cold_storage(), spans_of(archive.prefix, joined_parts(parts))
    least: int | None = None
    while True:
        waiting = left = 0
        for found in cold_objects(storage, spans):
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
        pause(poll)
