"""Validates the key ranges of a scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamvault.common.neighbours import joined
from streamvault.streamstore.errors import ScaleRefused
from streamvault.streamstore.model import KeyRange, SegmentId


def check_replaces(
    seal: Sequence[SegmentId], ranges: Sequence[KeyRange], current: Mapping[SegmentId, KeyRange]
) -> None:
    """Check that a scale's new ranges cover exactly what its sealed segments cover, once.

    Raises:
        ScaleRefused: the ranges differ, or a segment is not open.
    """
    if not seal or len(set(seal)) != len(seal):
        raise ScaleRefused("a scale must seal at least one segment, each once")
    for segment in seal:
        if segment not in current:
            raise ScaleRefused("a scale seals a segment that is not open in the current epoch", where=str(segment))
    replaced = (current[segment] for segment in seal)
    if list(joined(sorted(ranges), _join)) != list(joined(sorted(replaced), _join)):
        raise ScaleRefused(
            "a scale's new ranges do not cover what its sealed segments cover",
            where=", ".join(f"[{one.low!r}, {one.high!r})" for one in sorted(ranges)),
        )


def _join(one: KeyRange, after: KeyRange) -> KeyRange | None:
    return KeyRange(one.low, after.high) if one.high == after.low else None  # overlapping ranges are not joined
