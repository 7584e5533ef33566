"""Arguments and results of layouts: archived ranges, and what was written for them."""

from __future__ import annotations

from typing import Literal, NamedTuple

from streamvault.streamstore.model import SegmentId

Compression = Literal["", "zstd"]


class Extent(NamedTuple):
    """One archived range: the bytes ``[start, end)`` of a segment.

    Attributes:
        segment: the segment's id.
        start: offset (bytes) of its first event.
        end: offset after its last event.
        frames: size of each compressed frame (bytes), in order; empty if the range is not compressed.
    """

    segment: SegmentId
    start: int
    end: int
    frames: tuple[int, ...] = ()


class Written(NamedTuple):
    """Result of writing a run of events: the number of objects, and the frames of a compressed one (see `Extent`)."""

    objects: int
    frames: tuple[int, ...] = ()
