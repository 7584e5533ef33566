"""What of an archive lies in an archive class of S3, so that it cannot be read before it is brought back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from layouts.layout import open_layout
from layouts.place import Place
from manifests.history import History
from objectstore.errors import NoSuchObject
from streamstore.model import SegmentId

if TYPE_CHECKING:
    from objectstore.s3.cold import ColdStorage, StoredObject  # which import botocore

__all__ = ["Stored", "cold_objects", "glanced", "joined", "stored_ranges", "touch"]

GLANCES = 64
"""Ranges of which a glance looks at the first objects: it is to cost seconds, whatever the archive."""

AT_ONCE = 8
"""Of them, looked at together."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A stretch of a segment without holes, in one layout: bytes `start` to `end`."""

    layout: str
    segment: SegmentId
    start: int
    end: int


def stored_ranges(history: History) -> Iterator[Stored]:
    """Every range of an archive, generation by generation."""
    for generation in history.generations:
        for segment, rows in generation.rows.items():
            yield from (Stored(generation.manifest.layout, segment, row.start, row.end) for row in rows)


def joined(stretches: Iterable[Stored]) -> Iterator[Stored]:
    """The same with neighbours joined: fewer listings."""
    held: Stored | None = None
    for one in stretches:
        if held is not None and (held.layout, held.segment, held.end) == (one.layout, one.segment, one.start):
            held = replace(held, end=one.end)
            continue
        if held is not None:
            yield held
        held = one
    if held is not None:
        yield held


def glanced(stretches: Sequence[Stored]) -> Sequence[Stored]:
    """Some of them, spread evenly: S3 moves objects to an archive class by their age, so neighbours go together."""
    step = -(-len(stretches) // GLANCES) or 1
    return stretches[::step]


def touch(place: Place, stretches: Sequence[Stored]) -> None:
    """Read a byte of the first object of some stretches: whether they can be read at all.

    Args:
        place: the archive.
        stretches: what is needed.

    Raises:
        InArchiveClass: one can't be read before S3 brings it back.
    """

    def look(one: Stored) -> None:
        found = open_layout(one.layout).between(place, one.segment, one.start, one.end)
        first = next(found, None)
        if first is not None and first.size:  # what is missing is told by who reads it all
            with suppress(NoSuchObject):
                place.store.get_range(first.key, 0, 1)

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="touch") as threads:
        for _ in threads.map(look, glanced(stretches)):
            pass


def cold_objects(
    storage: ColdStorage, prefix: str, stretches: Iterable[Stored], *, glance: bool = False
) -> Iterator[StoredObject]:
    """The objects of stretches that cannot be read now.

    Args:
        storage: of the archive's root.
        prefix: the archive below the root.
        stretches: what is needed.
        glance: look at the first thousand objects of each stretch only.
    """
    for one in stretches:
        layout = open_layout(one.layout)
        folder, after, stop = layout.span(prefix, one.segment, one.start, one.end)
        for found in storage.objects(folder, after, stop, first_page=glance):
            if found.warmth != "readable":
                yield found
