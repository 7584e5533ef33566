"""Which segments of two streams with the same history correspond, although their numbers differ.

A store numbers segments itself, and goes on numbering when a name is used again. So a stream that repeats another's
scales has the same epochs and key ranges, but its segments may have other numbers. Two segments correspond if they hold
the same key range in the same epoch; nothing needs to be stored to find them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamvault.streamstore.model import Epoch, KeyRange, SegmentId

NEAR = 1e-12
"""How far corresponding boundaries may lie apart: an import moves some by a few units in the last place."""


def counterparts(
    source: Sequence[Epoch], target: Sequence[Epoch], known: Mapping[SegmentId, SegmentId] | None = None
) -> dict[SegmentId, SegmentId] | None:
    """Return source segment → target segment, for the epochs that both have.

    Args:
        source: consecutive epochs of a stream.
        target: epochs of another stream, beginning with the same one.
        known: the result for earlier epochs.

    Returns:
        One entry for each segment of those epochs and of `known`; None if they differ in more than segment numbers.
    """
    found = dict(known or {})
    return found if _pair_epochs(source, target, found) else None


def common_counterparts(source: Sequence[Epoch], target: Sequence[Epoch]) -> dict[SegmentId, SegmentId]:
    """Return source segment → target segment, for the first epochs up to where the histories differ."""
    found: dict[SegmentId, SegmentId] = {}
    _pair_epochs(source, target, found)
    return found


def _pair_epochs(source: Sequence[Epoch], target: Sequence[Epoch], found: dict[SegmentId, SegmentId]) -> bool:
    """Add the pairs of each epoch, up to the first that differs; return whether none does."""
    taken = set(found.values())
    for ours, theirs in zip(source, target, strict=False):
        if len(ours.segments) != len(theirs.segments):
            return False
        added: dict[SegmentId, SegmentId] = {}
        for (segment, held), (other, other_held) in zip(ours.segments.items(), theirs.segments.items(), strict=True):
            if not _near(held, other_held) or (segment.epoch == ours.number) != (other.epoch == theirs.number):
                return False
            if segment not in found and other not in taken:
                added[segment] = other
            elif found.get(segment) != other:
                return False
        found.update(added)
        taken.update(added.values())
    return True


def _near(one: KeyRange, other: KeyRange) -> bool:
    return abs(one.low - other.low) <= NEAR and abs(one.high - other.high) <= NEAR
