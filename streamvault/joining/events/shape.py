"""How many segments the target gets, and whether the source's segments fit into them without a key."""

from __future__ import annotations

from collections.abc import Mapping

from streamvault.common.errors import Usage
from streamvault.joining.placing import Places
from streamvault.streamstore.model import KeyRange, SegmentId, StreamName

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
