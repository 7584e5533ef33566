"""Which segment of the target takes which part of a source, so that the events of each key stay in order.

All stretches of bytes that may have events of one key go into one segment of the target, one behind the other. So if a
source's segment covers the keys of several segments of the target, these must become one first. Two boundaries of key
ranges are the same if no key is hashed between them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from streamvault.common.errors import Usage
from streamvault.streamstore.model import KeyRange, SegmentId, StreamName

HASHES = 1 << 52
"""The hash of a routing key is a multiple of 1 / 2^52."""


@dataclass(frozen=True, slots=True)
class TargetScale:
    """A scale of the target.

    Attributes:
        seal: the segments that it replaces.
        ranges: the key ranges of the new ones.
    """

    seal: tuple[SegmentId, ...]
    ranges: tuple[KeyRange, ...]


class Places:
    """Finds the segments of an epoch that share keys with a range.

    Args:
        segments: open segments, which cover the key space once.
    """

    def __init__(self, segments: Mapping[SegmentId, KeyRange]) -> None:
        self._ordered = sorted(segments.items(), key=lambda item: item[1].low)
        self._firsts = [_first_hash(held.low) for _, held in self._ordered]

    def of(self, held: KeyRange) -> Sequence[SegmentId]:
        """Return the segments to which a key of a range may be hashed, in order; at least one."""
        first, last = self._indexes(held)
        return [segment for segment, _ in self._ordered[first : last + 1]]

    def scale_for(self, ranges: Iterable[KeyRange]) -> TargetScale | None:
        """Return the scale after which each range lies in one segment; None if each does already."""
        groups: list[tuple[int, int]] = []
        for first, last in sorted(map(self._indexes, ranges)):
            if groups and first <= groups[-1][1]:
                groups[-1] = groups[-1][0], max(last, groups[-1][1])
            else:
                groups.append((first, last))
        joined = [self._ordered[first : last + 1] for first, last in groups if last > first]
        if not joined:
            return None
        return TargetScale(
            tuple(segment for group in joined for segment, _ in group),
            tuple(KeyRange(group[0][1].low, group[-1][1].high) for group in joined),
        )

    def _indexes(self, held: KeyRange) -> tuple[int, int]:
        first = max(bisect_right(self._firsts, _first_hash(held.low)) - 1, 0)
        return first, max(bisect_left(self._firsts, _first_hash(held.high)) - 1, first)


def shared_ranges(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """Return the smallest ranges that cover the key space, and of which each given range lies in one."""
    given = list(ranges)
    bounds = {0: 0.0, HASHES: 1.0}
    for held in given:
        bounds.setdefault(_first_hash(held.low), held.low)
        bounds.setdefault(_first_hash(held.high), held.high)
    lows = [bounds[at] for at in sorted(bounds)]
    pieces = [KeyRange(low, high) for low, high in pairwise(lows)]
    segments = {SegmentId(0, number): piece for number, piece in enumerate(pieces)}
    scale = Places(segments).scale_for(given)
    if scale is None:
        return pieces
    kept = [held for segment, held in segments.items() if segment not in scale.seal]
    return sorted([*kept, *scale.ranges])


def _first_hash(position: float) -> int:
    """Return the first hash, in steps of 1 / 2^52, that is not below a position; exact, as it moves no bit."""
    return math.ceil(position * HASHES)


Ranges = Mapping[SegmentId, KeyRange]


def choose_count(stream: StreamName, ranges: Ranges, current: int, asked: int | None) -> int:
    """Return the number of segments of a target for which no key is known: an event's source segment tells its place.

    Args:
        stream: the source.
        ranges: the source's segments that are copied.
        current: how many segments the source has now; the target gets at most as many if nothing is asked for.
        asked: the user's wish.

    Raises:
        Usage: a segment of the source does not fit into one of the target.
    """
    divided, fitting = _divided(ranges, asked or current), fitting_count(ranges, asked or current)
    if asked is None or divided is None:
        return asked or fitting
    held = ranges[divided]
    raise Usage(
        f"the keys of a segment, {held.low:g} to {held.high:g}, lie in several of {asked} segments, and without a key "
        "nobody knows which event goes where",
        where=divided.in_stream(stream),
        todo=f"Give --key, or --segments {fitting}.",
    )


def fitting_count(ranges: Ranges, most: int) -> int:
    """Return the largest number of segments, up to ``most``, into one of which each of the source's fits."""
    return next(count for count in range(most, 0, -1) if _divided(ranges, count) is None)


def _divided(ranges: Ranges, count: int) -> SegmentId | None:
    """Return a segment whose keys lie in several of as many segments of equal width; None if there is none."""
    width = 1.0 / count
    places = Places({SegmentId(0, i): KeyRange(i * width, (i + 1) * width) for i in range(count)})
    return next((segment for segment, held in ranges.items() if len(places.of(held)) > 1), None)
