"""What all layouts have in common: one folder a segment, whose keys sort as offsets do."""

# ruff: noqa: PLR0917  (a stretch of a segment is six plain values: store, prefix, epoch, number, start, end)
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import takewhile

from layouts.keys import MAX_INT63, RangeKey, parse_segment
from objectstore.store import ObjectInfo, ObjectStore

__all__ = ["SegmentFolders"]


class SegmentFolders(ABC):
    """Listing by offsets; a layout says how its keys are made."""

    root: str
    """The layout's folder below the archive, with its slash."""

    @staticmethod
    @abstractmethod
    def folder(epoch: int, number: int) -> str:
        """A segment's folder, with its slash."""

    @staticmethod
    @abstractmethod
    def after(epoch: int, number: int, offset: int) -> str:
        """What sorts behind every key of a lower offset and before each of this one."""

    @staticmethod
    @abstractmethod
    def parse(key: str) -> RangeKey | None:
        """The numbers in a key below the archive; None for a foreign one."""

    def between(
        self, store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int
    ) -> Iterator[ObjectInfo]:
        """See `Layout.between`."""
        if start >= end:
            return iter(())
        folder, after, stop = self.span(prefix, epoch, number, start, end)
        return takewhile(lambda entry: entry.key < stop, store.list(folder, after))

    def span(self, prefix: str, epoch: int, number: int, start: int, end: int) -> tuple[str, str, str]:
        """See `Layout.span`."""
        after, stop = self.after(epoch, number, start), self.after(epoch, number, end)
        return prefix + self.folder(epoch, number), prefix + after, prefix + stop

    def _in_gap(self, store: ObjectStore, prefix: str, epoch: int, number: int, start: int, end: int) -> Iterator[str]:
        """Keys of the layout that begin in a stretch of which nothing is archived."""
        for entry in self.between(store, prefix, epoch, number, start, end):
            if self.parse(entry.key.removeprefix(prefix)) is not None:
                yield entry.key

    def strays(
        self, store: ObjectStore, prefix: str, epoch: int, number: int, ranges: Iterable[tuple[int, int]]
    ) -> Iterator[str]:
        """See `Layout.strays`."""
        folder = prefix + self.folder(epoch, number)
        after, upto = "", -1
        for start, end in ranges:
            if start != upto:
                yield from _keys(store, folder, after, prefix + self.after(epoch, number, start))
            after, upto = prefix + self.after(epoch, number, end), end
        yield from _keys(store, folder, after)

    def segments(self, store: ObjectStore, prefix: str) -> list[tuple[int, int]]:
        """See `Layout.segments`."""
        return [found for name in store.folders(prefix + self.root) if (found := parse_segment(name)) is not None]

    def foreign(self, store: ObjectStore, prefix: str, segments: Iterable[tuple[int, int]]) -> Iterator[str]:
        """See `Layout.foreign`."""
        after, last = "", None
        for epoch, number in segments:
            folder = prefix + self.folder(epoch, number)
            yield from (key for key in _keys(store, prefix + self.root, after, folder) if not _is_in(key, last))
            after, last = prefix + self.after(epoch, number, MAX_INT63), folder
        yield from (key for key in _keys(store, prefix + self.root, after) if not _is_in(key, last))


def _keys(store: ObjectStore, folder: str, after: str, stop: str = "") -> Iterator[str]:
    """A folder's keys after one and, if that is given, before another."""
    for entry in store.list(folder, after):
        if stop and entry.key >= stop:
            return
        yield entry.key


def _is_in(key: str, folder: str | None) -> bool:
    return folder is not None and key.startswith(folder)
