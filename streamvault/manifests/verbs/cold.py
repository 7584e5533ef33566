"""Objects in an archive class of S3 (Glacier), which cannot be read before they are restored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from streamvault.common.neighbours import joined
from streamvault.layouts.layout import open_layout
from streamvault.layouts.object_keys import MANIFESTS
from streamvault.layouts.place import Place
from streamvault.manifests.archive.history import History
from streamvault.objectstore.cold import ColdStorage, StoredObject
from streamvault.objectstore.errors import NoSuchObject
from streamvault.streamstore.model import SegmentId

SAMPLE_SIZE = 64
"""Maximum parts in a sample, so that it takes seconds for any archive."""

AT_ONCE = 8
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

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="touch") as threads:
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
