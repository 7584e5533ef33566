"""Which neighbouring generations are merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from manifests.merging import can_merge
from manifests.model import Manifest

__all__ = ["FACTOR", "choose_runs", "choose_tiers"]

FACTOR = 8
"""How many neighbours of about the same size make one of the next size, while a stream is followed."""

Run = tuple[Manifest, ...]


def choose_runs(manifests: Sequence[Manifest], held: Iterable[int], *, target: int, at_least: int) -> list[Run]:
    """Runs of neighbours that together have no more than `target` bytes, as long as may be, the oldest first.

    Args:
        manifests: of the generations in force, in their order.
        held: numbers of those that have a hold; they stay as they are.
        target: bytes; generations that have as many are left alone.
        at_least: how many generations a run has.
    """
    found: list[Run] = []
    for stretch in _stretches(manifests, set(held), target):
        found += [run for run in _cut(stretch, target) if len(run) >= at_least]
    return found


def choose_tiers(manifests: Sequence[Manifest], held: Iterable[int], *, target: int) -> list[Run]:
    """The runs to merge now if another generation comes every few seconds: `FACTOR` of the same size at a time.

    The size of a generation is the power of `FACTOR` in the number of original ones that it stands for. So of each
    size there are fewer than `FACTOR` in a row, and a byte is written again once for each size. Smaller ones between
    those of a size are merged with them.
    """
    for stretch in _stretches(manifests, set(held), target):
        sizes = [_size(manifest) for manifest in stretch]
        for size in range(max(sizes, default=-1) + 1):
            for run in _alike(stretch, sizes, size):
                cut = next((some for some in _cut(run, target) if len(some) > 1), None)
                if cut is not None:
                    return [cut]
    return []


def _size(manifest: Manifest) -> int:
    size, count = 0, manifest.generation - manifest.first + 1
    while count >= FACTOR:
        size, count = size + 1, count // FACTOR
    return size


def _alike(stretch: Run, sizes: Sequence[int], size: int) -> Iterator[Run]:
    """Runs with `FACTOR` generations of a size, or more, and none larger; from the first of that size to the last."""
    at = 0
    while at < len(sizes):
        end = at
        while end < len(sizes) and sizes[end] <= size:
            end += 1
        mine = [index for index in range(at, end) if sizes[index] == size]
        if len(mine) >= FACTOR:
            yield stretch[mine[0] : mine[-1] + 1]
        at = end + 1


def _stretches(manifests: Sequence[Manifest], held: set[int], target: int) -> Iterator[Run]:
    """Neighbours that may be merged with each other."""
    some: list[Manifest] = []
    for manifest in manifests:
        is_free = manifest.generation not in held and manifest.bytes < target
        if some and not (is_free and can_merge(some[-1], manifest)):
            yield tuple(some)
            some = []
        if is_free:
            some.append(manifest)
    if some:
        yield tuple(some)


def _cut(stretch: Iterable[Manifest], target: int) -> Iterator[Run]:
    """Parts of no more than `target` bytes each."""
    some: list[Manifest] = []
    size = 0
    for manifest in stretch:
        if some and size + manifest.bytes > target:
            yield tuple(some)
            some, size = [], 0
        some.append(manifest)
        size += manifest.bytes
    if some:
        yield tuple(some)
