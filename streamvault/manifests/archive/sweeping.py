"""Sweeps: walk the listing of archived ranges to prove that every object exists, and to find strays.

Before a generation is published, a sweep proves that it is complete, and deletes nothing. Afterwards, a sweep deletes
the strays of wrong guesses and interrupted runs: only objects that the published index proves to be off its chain. So a
late sweep is harmless, and any later run may repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from streamvault.common.progress import Progress
from streamvault.layouts.layout import LayoutName, open_layout
from streamvault.layouts.place import Place, PlaceAddress
from streamvault.manifests.archive.history import Generation
from streamvault.objectstore.bulk import delete_all
from streamvault.objectstore.store import PAGE
from streamvault.sparkrun.inline import InlineRunner
from streamvault.sparkrun.runner import Runner
from streamvault.streamstore.model import SegmentId

FEW_OBJECTS = 10_000
"""Up to this many objects are listed faster by the driver than by tasks."""

RANGES_A_TASK = 16
"""Ranges per task: a gigabyte of events, unless ranges are small."""

CHUNKS_A_LISTING = PAGE - 1
"""Ranges per task if each is one object and only listed: with the key after them, one page of a listing."""


@dataclass(frozen=True, slots=True)
class SweepTask:
    """A sweep of a part of a segment.

    Attributes:
        address: the archive.
        layout: the layout of the ranges.
        segment: the segment.
        start: offset of the part's first byte.
        end: offset after its last byte.
        ranges: (start, end) of each archived range of the part, in order; the rest is not archived.
        known: keys (relative to the archive) that other manifests name, which are therefore kept.
    """

    address: PlaceAddress
    layout: LayoutName
    segment: SegmentId
    start: int
    end: int
    ranges: tuple[tuple[int, int], ...]
    known: frozenset[str] = frozenset()


def ranges_a_task(layout: str, *, reads: bool) -> int:
    """Return how many ranges a task lists, or also reads."""
    return RANGES_A_TASK if reads or open_layout(layout).one_object_per_event else CHUNKS_A_LISTING


def _parts(whole: SweepTask) -> Iterator[SweepTask]:
    """Divide the sweep of a segment into tasks that can run in parallel."""
    at, size = whole.start, ranges_a_task(whole.layout, reads=False)
    for first in range(0, len(whole.ranges), size):
        ranges = whole.ranges[first : first + size]
        is_last = first + size >= len(whole.ranges)
        end = whole.end if is_last else ranges[-1][1]
        yield replace(whole, start=at, end=end, ranges=ranges)
        at = end
    if not whole.ranges:
        yield whole


def tasks_of(
    generations: Iterable[Generation], address: PlaceAddress, known: Callable[[SegmentId], Iterable[str]]
) -> Iterator[SweepTask]:
    """Yield the tasks that sweep published generations.

    Args:
        generations: generations in force.
        address: the archive.
        known: returns, for a segment, the keys (relative to the archive) of chunks to keep besides those of the
            generations.
    """
    for generation in generations:
        manifest = generation.manifest
        for entry in manifest.segments:
            if entry.start < entry.end:
                segment = entry.id
                ranges = tuple((row.start, row.end) for row in generation.rows.get(segment, ()))
                kept = frozenset(known(segment)) if open_layout(manifest.layout).joinable else frozenset()
                yield from _parts(SweepTask(address, manifest.layout, segment, entry.start, entry.end, ranges, kept))


def prove(generation: Generation, address: PlaceAddress, runner_of: Callable[[], Runner], progress: Progress) -> int:
    """Prove, before a generation is published, that every object of its ranges exists; return the number of strays.

    The runner of tasks is opened only if there are many objects.

    Raises:
        Damaged: an object has disappeared, or has the wrong size.
    """
    manifest = generation.manifest
    tasks = list(tasks_of([generation], address, lambda _: ()))
    objects = open_layout(manifest.layout).object_count(sum(map(len, generation.rows.values())), manifest.events)
    progress.begin("verifying", sum(task.end - task.start for task in tasks))
    strays = 0
    for index, found in (InlineRunner(4) if objects <= FEW_OBJECTS else runner_of()).run(count_strays, tasks):
        strays += found
        progress.advance(0, tasks[index].end - tasks[index].start)
    return strays


def count_strays(task: SweepTask) -> int:
    """Prove that every object of the task's ranges exists; return the number of strays.

    Raises:
        Damaged: an object is missing or has the wrong size.
    """
    return sum(1 for _ in _strays(task.address.open(), task))


def remove_strays(task: SweepTask) -> int:
    """Delete the strays around the ranges of a published index; return the number of deleted objects.

    Raises:
        Damaged: an object of a range is missing or has the wrong size; no strays after it are deleted.
        Problem: the store cannot be reached, or does not allow deletion.
    """
    place = task.address.open()
    return delete_all(place.store, _strays(place, task))


def _strays(place: Place, task: SweepTask) -> Iterator[str]:
    for key in open_layout(task.layout).off_chain(place, task.segment, task.start, task.end, task.ranges):
        if key.removeprefix(place.prefix) not in task.known:
            yield key
