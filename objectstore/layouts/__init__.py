"""How a segment's events become objects: one module per layout, one protocol for all.

Exporter, importer and check speak of a *range* only: the bytes ``[start, end)`` of the segment (epoch, number), both
ends at event boundaries. Which objects that makes is the layout's business. All methods take the store, the archive's
prefix in it (``SCOPE/STREAM/``, or empty if the store's root is the archive), and the segment.
"""

# ruff: noqa: PLR0917  (a range is six plain values: store, prefix, epoch, number, start, end)
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from objectstore.errors import ObjectStoreError
from objectstore.layouts.chain import Finding, RangeCheck, Stored
from objectstore.layouts.events import EventsLayout
from objectstore.store import ObjectStore

__all__ = ["Finding", "Layout", "RangeCheck", "Stored", "UnknownLayout", "open_layout"]


class UnknownLayout(ObjectStoreError):
    """A layout that this release does not know."""


class Layout(Protocol):
    """The objects of one way to lay out segments."""

    @property
    def name(self) -> str:
        """As in a manifest and on the command line."""

    def write_events(
        self,
        store: ObjectStore,
        prefix: str,
        epoch: int,
        number: int,
        events: Iterable[tuple[int, bytes | memoryview]],
    ) -> int:
        """Write events that follow each other without a hole, so far as they are not there; returns how many objects.

        ``events`` are (offset of the header in the segment, payload). They are taken one at a time, by one thread at a
        time but not always the same; a payload needs to be valid only until the next event is asked for.

        Raises:
            Conflict: an object with other bytes is there.
        """

    def read_range(
        self, store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int
    ) -> Iterator[bytes]:
        """The segment's bytes ``[start, end)``, as blocks of whole events of about 1 MiB, or one larger event each.

        Raises:
            Damaged: an object is missing, too much or has another size; names it.
        """

    def list_range(
        self, store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int
    ) -> Iterator[Stored]:
        """The range's objects in order; nothing is read.

        Raises:
            Damaged: as `read_range`.
        """

    def check_range(self, store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int) -> RangeCheck:
        """Compare the listing of a range with what must be there; nothing is read and nothing is raised for it."""

    def remove_extra(self, store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int) -> int:
        """Delete what lies in a range but does not belong to its chain of events; returns how many objects.

        For a range whose start is proved, and which is complete: what a wrongly guessed start had written.

        Raises:
            Damaged: something is missing, so that nobody can say what is too much. Nothing more is deleted then.
        """

    def remove_all(self, store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int) -> int:
        """Delete every object that begins in ``[start, end)``: a stretch that holds nothing; returns how many."""

    def strays(
        self, store: ObjectStore, prefix: str, epoch: int, number: int, ranges: Iterable[tuple[int, int]]
    ) -> Iterator[str]:
        """Every key in the segment's folder that lies in none of its ranges (given in order, not overlapping)."""

    def segments(self, store: ObjectStore, prefix: str) -> list[tuple[int, int]]:
        """(epoch, number) of each segment that has objects, in the stream's order."""

    def foreign(self, store: ObjectStore, prefix: str, segments: Iterable[tuple[int, int]]) -> Iterator[str]:
        """Every key of the layout that lies in none of these segments' folders (given in the stream's order)."""


_LAYOUTS: dict[str, Layout] = {"events": EventsLayout()}


def open_layout(name: str) -> Layout:
    """The layout of this name.

    Raises:
        UnknownLayout: there is none.
    """
    if name not in _LAYOUTS:
        raise UnknownLayout("unknown layout", where=repr(name), todo=f"This release knows: {', '.join(_LAYOUTS)}.")
    return _LAYOUTS[name]
