"""What all layouts share: one folder per segment, in which keys sort in the order of offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import ClassVar

from streamvault.layouts.keys import MAX_INT63, RangeKeys, parse_segment
from streamvault.layouts.place import Place
from streamvault.objectstore.store import ObjectInfo, ObjectStore
from streamvault.streamstore.model import SegmentId


class SegmentFolders:
    """Listing by offset; a layout defines its keys."""

    name: ClassVar[str]
    keys: ClassVar[RangeKeys]

    def between(self, place: Place, segment: SegmentId, start: int, end: int) -> Iterator[ObjectInfo]:
        """See `Layout.between`."""
        if start >= end:
            return iter(())
        folder, after, stop = self.span(place.prefix, segment, start, end)
        return takewhile(lambda entry: entry.key < stop, place.store.list(folder, after))

    def span(self, prefix: str, segment: SegmentId, start: int, end: int) -> tuple[str, str, str]:
        """See `Layout.span`."""
        after, stop = self.keys.after(segment, start), self.keys.after(segment, end)
        return prefix + self.keys.folder(segment), prefix + after, prefix + stop

    def _in_gap(self, place: Place, segment: SegmentId, start: int, end: int) -> Iterator[str]:
        """Yield the layout's keys that begin in ``[start, end)``, of which nothing is archived."""
        for entry in self.between(place, segment, start, end):
            if self.keys.parse(entry.key.removeprefix(place.prefix)) is not None:
                yield entry.key

    def strays(self, place: Place, segment: SegmentId, ranges: Iterable[tuple[int, int]]) -> Iterator[str]:
        """See `Layout.strays`."""
        store, prefix = place
        folder = prefix + self.keys.folder(segment)
        after, upto = "", -1
        for start, end in ranges:
            if start != upto:
                yield from _keys(store, folder, after, prefix + self.keys.after(segment, start))
            after, upto = prefix + self.keys.after(segment, end), end
        yield from _keys(store, folder, after)

    def segments(self, place: Place) -> list[SegmentId]:
        """See `Layout.segments`."""
        names = place.store.folders(place.prefix + self.keys.root)
        return [found for name in names if (found := parse_segment(name)) is not None]

    def foreign(self, place: Place, segments: Iterable[SegmentId]) -> Iterator[str]:
        """See `Layout.foreign`."""
        store, prefix = place
        after, last = "", None
        for segment in segments:
            folder = prefix + self.keys.folder(segment)
            yield from (key for key in _keys(store, prefix + self.keys.root, after, folder) if not _is_in(key, last))
            after, last = prefix + self.keys.after(segment, MAX_INT63), folder
        yield from (key for key in _keys(store, prefix + self.keys.root, after) if not _is_in(key, last))


def _keys(store: ObjectStore, folder: str, after: str, stop: str = "") -> Iterator[str]:
    """Yield a folder's keys after one and, if given, before another."""
    for entry in store.list(folder, after):
        if stop and entry.key >= stop:
            return
        yield entry.key


def _is_in(key: str, folder: str | None) -> bool:
    return folder is not None and key.startswith(folder)
