"""What layouts speak of: archived ranges, and what was written of them."""

from __future__ import annotations

from typing import NamedTuple

from streamstore.model import SegmentId

__all__ = ["Extent", "Written"]


class Extent(NamedTuple):
    """One archived range: the bytes ``[start, end)`` of a segment.

    Attributes:
        segment: which.
        start, end: offsets (bytes), event boundaries.
        frames: how many bytes each compressed frame has, in order; none if the range is not compressed.
    """

    segment: SegmentId
    start: int
    end: int
    frames: tuple[int, ...] = ()


class Written(NamedTuple):
    """What a run of events became: how many objects, and the frames of a compressed one (see `Extent`)."""

    objects: int
    frames: tuple[int, ...] = ()
