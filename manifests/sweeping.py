"""Going along the listing of what is archived: is every object there, and what lies beside it?

Before a generation is published, this proves that it is whole; nothing is deleted. Afterwards strays are removed: what
wrong guesses and runs that were cut off have left. Only what the published index proves to be off its chain is deleted,
so a sweep does no harm however late it comes, and any later run may do it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from layouts.layout import open_layout
from layouts.place import Place
from manifests.history import Generation
from manifests.model import Layout, segment_key
from objectstore.bulk import delete_all
from objectstore.store import ObjectStore
from objectstore.uri import RootAddress
from streamstore.model import SegmentId

__all__ = ["SweepTask", "count_strays", "remove_strays", "sweep_tasks", "tasks_of"]

RANGES_A_TASK = 16
"""Ranges that one task follows: a gigabyte of events, unless ranges are small."""


@dataclass(frozen=True, slots=True)
class SweepTask:
    """A stretch of a segment, and what is archived of it.

    Attributes:
        root, prefix, layout: the archive. segment: which.
        start, end: the stretch (bytes).
        ranges: start and end of each range that is archived of it, in order; the rest holds nothing.
        known: keys (below the archive) that other manifests speak of, and that therefore stay.
    """

    root: RootAddress
    prefix: str
    layout: Layout
    segment: SegmentId
    start: int
    end: int
    ranges: tuple[tuple[int, int], ...]
    known: frozenset[str] = frozenset()


def sweep_tasks(whole: SweepTask) -> Iterator[SweepTask]:
    """A segment's task in parts that can be done side by side."""
    at = whole.start
    for first in range(0, len(whole.ranges), RANGES_A_TASK):
        ranges = whole.ranges[first : first + RANGES_A_TASK]
        is_last = first + RANGES_A_TASK >= len(whole.ranges)
        end = whole.end if is_last else ranges[-1][1]
        yield replace(whole, start=at, end=end, ranges=ranges)
        at = end
    if not whole.ranges:
        yield whole


def tasks_of(
    generations: Iterable[Generation], root: RootAddress, prefix: str, known: Callable[[SegmentId], Iterable[str]]
) -> Iterator[SweepTask]:
    """What to go along of published generations.

    Args:
        generations: in force.
        root: the archive's root.
        prefix: the archive below it.
        known: of a segment, the keys (below the archive) of chunks that stay though these generations lack them.
    """
    for generation in generations:
        manifest = generation.manifest
        for entry in manifest.segments:
            if entry.start < entry.end:
                segment = segment_key(entry.name)
                ranges = tuple((row.start, row.end) for row in generation.rows.get(segment, ()))
                stays = frozenset(known(segment)) if open_layout(manifest.layout).joinable else frozenset()
                yield from sweep_tasks(
                    SweepTask(root, prefix, manifest.layout, segment, entry.start, entry.end, ranges, stays)
                )


def count_strays(task: SweepTask) -> int:
    """Prove that every object of a stretch is there; returns how many lie beside them.

    Raises:
        Damaged: one is missing, or has another size.
    """
    return sum(1 for _ in _strays(task.root.open(), task))


def remove_strays(task: SweepTask) -> int:
    """Delete what lies beside the ranges of a published index; returns how many objects.

    Raises:
        Damaged: an object of a range is missing or has another size; nothing behind it is deleted.
        Problem: the store cannot be reached, or deleting is not allowed there.
    """
    store = task.root.open()
    return delete_all(store, _strays(store, task))


def _strays(store: ObjectStore, task: SweepTask) -> Iterator[str]:
    place = Place(store, task.prefix)
    for key in open_layout(task.layout).off_chain(place, task.segment, task.start, task.end, task.ranges):
        if key.removeprefix(task.prefix) not in task.known:
            yield key
