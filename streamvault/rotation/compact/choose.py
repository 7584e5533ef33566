"""Choose the adjacent generations to merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from streamvault.common.neighbours import grouped
from streamvault.manifests.archive.merging import can_merge
from streamvault.manifests.format.manifest import Manifest
from streamvault.objectstore.store import SMALL

FACTOR = 8
"""How many adjacent generations of a size are merged into one of the next size while a stream is followed."""

MOST_METADATA = SMALL // 2
"""Maximum bytes that a merged manifest has about its original generations; readers accept twice as many."""

ENTRY_BYTES = 1024
"""What a manifest has about an original generation, or about a reader group, without its cut."""

POSITION_BYTES = 48
"""What a cut has for a segment, without the stream's name."""

Run = tuple[Manifest, ...]


def choose_runs(manifests: Sequence[Manifest], held: set[int], *, target: int, at_least: int) -> list[Run]:
    """Return the longest runs of adjacent generations with at most ``target`` bytes together, oldest first.

    Args:
        manifests: manifests of the generations in force, in order.
        held: numbers of generations that are not merged, for example since they have a hold.
        target: maximum bytes of a run; generations of this size or larger are not merged.
        at_least: minimum number of generations in a run.
    """
    groups = _mergeable_groups(manifests, held, target)
    return [run for group in groups for run in _cut(group, target) if len(run) >= at_least]


def choose_tiers(manifests: Sequence[Manifest], held: set[int], *, target: int) -> list[Run]:
    """Return the run to merge now if a new generation arrives every few seconds: `FACTOR` of the same size at a time.

    The size of a generation is the logarithm, to base `FACTOR`, of the number of original ones it contains. So fewer
    than `FACTOR` of a size remain in a row, and each byte is rewritten once per size. Smaller ones in between are
    merged along.
    """
    for group in _mergeable_groups(manifests, held, target):
        sizes = [_size(manifest) for manifest in group]
        for size in range(max(sizes, default=-1) + 1):
            for run in _alike(group, sizes, size):
                cut = next((some for some in _cut(run, target) if len(some) > 1), None)
                if cut is not None:
                    return [cut]
    return []


def _size(manifest: Manifest) -> int:
    size, count = 0, manifest.generation - manifest.first + 1
    while count >= FACTOR:
        size, count = size + 1, count // FACTOR
    return size


def _alike(group: Run, sizes: Sequence[int], size: int) -> Iterator[Run]:
    """Yield runs with at least `FACTOR` generations of a size and none larger; they begin and end with that size."""
    at = 0
    while at < len(sizes):
        end = at
        while end < len(sizes) and sizes[end] <= size:
            end += 1
        mine = [index for index in range(at, end) if sizes[index] == size]
        if len(mine) >= FACTOR:
            yield group[mine[0] : mine[-1] + 1]
        at = end + 1


def _mergeable_groups(manifests: Sequence[Manifest], held: set[int], target: int) -> Iterator[Run]:
    """Yield the longest runs of adjacent generations that may be merged with each other."""
    some: list[Manifest] = []
    kinds: dict[object, Manifest] = {}  # one of each, so that a long run takes no longer
    for manifest in manifests:
        is_free = manifest.generation not in held and _weight(manifest, target) < target
        if some and not (is_free and can_merge([*kinds.values(), manifest])):
            yield tuple(some)
            some, kinds = [], {}
        if is_free:
            some.append(manifest)
            kinds[manifest.layout, manifest.compression, manifest.range_size] = manifest
    if some:
        yield tuple(some)


def _cut(group: Run, target: int) -> Iterator[Run]:
    """Split a run into parts of at most ``target`` bytes, with at most `MOST_METADATA` about their originals."""
    return grouped(group, partial(_weight, target=target), target)


def _weight(manifest: Manifest, target: int) -> int:
    """Return a generation's size in relation to the larger of the shares that its bytes and its metadata have."""
    return max(manifest.bytes, _metadata(manifest) * target // MOST_METADATA)


def _metadata(manifest: Manifest) -> int:
    """Return about how many bytes a merged manifest has about the original generations of this one."""
    originals = manifest.replaces or (manifest,)
    noted = [group for one in originals for group in one.reader_groups or ()]
    cuts = [one.to for one in originals] + [cut for one in noted for cut in (one.position, one.start, one.end) if cut]
    positions = sum(len(cut.offsets) for cut in cuts)
    return ENTRY_BYTES * (len(originals) + len(noted)) + (len(str(manifest.name)) + POSITION_BYTES) * positions
