"""What goes into a layout and comes out of it: runs of events, archived ranges, what was written of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

__all__ = ["EventRun", "Extent", "Written"]


class EventRun(Protocol):
    """Whole events that follow each other in a segment (`streamstore.splitting.EventBlock`)."""

    @property
    def offset(self) -> int:
        """Of the first one's header in the segment (bytes)."""

    @property
    def data(self) -> memoryview:
        """Their bytes, headers included."""

    def events(self) -> Iterator[tuple[int, memoryview]]:
        """Each event: offset of its header, payload."""


class Extent(NamedTuple):
    """One archived range: the bytes ``[start, end)`` of a segment.

    Attributes:
        epoch, number: the segment's id. start, end: offsets (bytes), event boundaries.
        frames: how many bytes each compressed frame has, in order; none if the range is not compressed.
    """

    epoch: int
    number: int
    start: int
    end: int
    frames: tuple[int, ...] = ()


class Written(NamedTuple):
    """What a run of events became: how many objects, and the frames of a compressed one (see `Extent`)."""

    objects: int
    frames: tuple[int, ...] = ()
