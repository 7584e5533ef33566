"""The *warm* command: finds an archive's objects in archive classes of S3, restores them, and waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from streamvault.common.neighbours import joined
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.waiting import pause
from streamvault.layouts.keys import MANIFESTS, Place
from streamvault.layouts.layout import open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.history import History
from streamvault.manifests.options import WarmOptions
from streamvault.manifests.verbs.reports import WarmReport
from streamvault.objectstore.store import ColdStorage, InArchiveClass, NoSuchObject, StoredObject
from streamvault.streamstore.model import SegmentId

SAMPLE_SIZE = 64
"""Maximum parts in a sample, so that it takes seconds for any archive."""

LOOKED_AT_ONCE = 8
"""Parts of a sample that are tested concurrently."""


Span = tuple[str, str, str]
"""A part of a root's listing: the folder, the key after which it starts, and the one before which it ends."""

_LAST = "\x7f"
"""Sorts after every key: keys are printable ASCII."""


class NeededPart(NamedTuple):
    """A part of a segment to be read in one layout, from `start` to `end` (bytes); `segment` is its int64 id."""

    layout: str
    segment: int
    start: int
    end: int


def needed_parts(history: History) -> Iterator[NeededPart]:
    """Yield what reading an archive needs: each range, generation by generation."""
    for generation in history.generations:
        for segment, rows in generation.rows.items():
            yield from (NeededPart(generation.manifest.layout, segment.value, row.start, row.end) for row in rows)


def joined_parts(parts: Iterable[NeededPart]) -> Iterator[NeededPart]:
    """Join neighbouring parts, of all generations, which saves listings."""

    def join(one: NeededPart, after: NeededPart) -> NeededPart | None:
        neighbours = (one.layout, one.segment, one.end) == (after.layout, after.segment, after.start)
        return one._replace(end=after.end) if neighbours else None

    return joined(sorted(parts), join)


def sample(parts: Sequence[NeededPart]) -> Sequence[NeededPart]:
    """Return a sample of parts, spread evenly: S3 moves objects to an archive class by age, so neighbours together."""
    step = -(-len(parts) // SAMPLE_SIZE) or 1
    return parts[::step]


def touch(place: Place, parts: Sequence[NeededPart]) -> None:
    """Read a byte of the first object of a sample of parts, to test whether they are readable.

    Raises:
        InArchiveClass: an object must first be restored by S3.
    """

    def test(one: NeededPart) -> None:
        found = open_layout(one.layout).between(place, SegmentId.of(one.segment), one.start, one.end)
        first = next(found, None)
        if first is not None and first.size:  # missing objects are reported when all is read
            with suppress(NoSuchObject):
                place.store.get_range(first.key, 0, 1)

    with ThreadPoolExecutor(LOOKED_AT_ONCE, thread_name_prefix="touch") as threads:
        for _ in threads.map(test, sample(parts)):
            pass


def spans_of(prefix: str, parts: Iterable[NeededPart]) -> list[Span]:
    """Return where the listing of a root has the objects of an archive's parts."""
    return [open_layout(one.layout).span(prefix, SegmentId.of(one.segment), one.start, one.end) for one in parts]


def manifests_span(prefix: str) -> Span:
    """Return where the listing of a root has an archive's manifests."""
    return prefix + MANIFESTS, prefix + MANIFESTS, prefix + MANIFESTS + _LAST


def cold_objects(storage: ColdStorage, spans: Iterable[Span], *, first_page: bool = False) -> Iterator[StoredObject]:
    """Yield the objects that are not readable now; with ``first_page``, of the first thousand of each span."""
    for span in spans:
        for found in storage.objects(*span, first_page=first_page):
            if found.warmth != "readable":
                yield found


def first_cold(storage: ColdStorage, spans: Sequence[Span]) -> tuple[StoredObject | None, Sequence[Span]]:
    """Return the first object that is not readable now, and the spans from it on, which are left to be checked."""
    for number, (folder, after, stop) in enumerate(spans):
        seen = after
        for found in storage.objects(folder, after, stop):
            if found.warmth != "readable":
                return found, [(folder, seen, stop), *spans[number + 1 :]]
            seen = found.key
    return None, []


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
    parts = list(joined_parts(needed_parts(source.history(options.generation, keep="none"))))
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
