"""What all layouts share, which map a segment's events to objects; each layout has its own module.

Exporter, importer and check deal only with ranges: the bytes ``[start, end)`` of a segment, both ends at event
boundaries. The layout decides which objects hold them. A task's window is the maximum data that it buffers in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self, get_args

from streamvault.common.errors import Usage
from streamvault.common.units import bytes_text
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.chain import RangeCheck
from streamvault.layouts.keys import MAX_INT63, Place, RangeKeys, parse_segment
from streamvault.objectstore.bulk import WINDOW_BYTES
from streamvault.objectstore.store import ObjectInfo, ObjectStore
from streamvault.streamstore.model import ContentKind, Range, SegmentId

if TYPE_CHECKING:
    from streamvault.streamstore.events import EventBlock


WINDOW = 64 * 1024 * 1024
"""Default window (bytes): a range of the default size."""

MIN_WINDOW = 16 * 1024 * 1024
"""Minimum window (bytes): an event of 8 MiB and a copy of it. Larger events are moved in parts."""


def check_window(window: int, whole: int = 0) -> None:
    """Reject a window that is too small.

    Args:
        window: the window (bytes).
        whole: size of a range that is written as one object (bytes), which must fit in the window.

    Raises:
        Usage: the window is too small.
    """
    if window < MIN_WINDOW:
        raise Usage(f"the window must be at least {bytes_text(MIN_WINDOW)}", where=f"--window {bytes_text(window)}")
    if window < whole:
        raise Usage(
            "the window must be at least the range size, because a chunk is written whole",
            where=f"--window {bytes_text(window)}, --range-size {bytes_text(whole)}",
            todo="Increase --window or, for a new archive, decrease --range-size.",
        )


LayoutName = Literal["events", "chunks"]
LAYOUTS: dict[str, str] = {name: f"streamvault.layouts.{name}" for name in get_args(LayoutName)}
"""Name → the module whose ``LAYOUT`` implements it."""

Buffer = bytes | bytearray | memoryview


Compression = Literal["", "zstd"]


class WrittenRange(NamedTuple):
    """What is recorded of a range's object, besides where the range is.

    Attributes:
        frames: see `ArchivedRange`.
        crc64nvme: CRC64NVME of the bytes of the object that is in the store, in base64 as S3 has it; empty if the range
            is not one object.
        block_checksums: see `ArchivedRange`; empty if the range is not one object.
    """

    frames: tuple[int, ...] = ()
    crc64nvme: str = ""
    block_checksums: str = ""


class UnknownLayout(Usage):
    """A layout that this release does not know."""


class RangeReader(ABC):
    """Reader of archived ranges, independent of how they are stored.

    Attributes:
        name: the name that `open_reader` accepts; a layout's is also used in manifests and on the command line.
    """

    name: str

    @abstractmethod
    def read_range(
        self, place: Place, stored: ArchivedRange, start: int, end: int, window_bytes: int = WINDOW_BYTES
    ) -> Iterator[bytes | memoryview]:
        """Yield the segment's bytes ``[start, end)`` of an archived range, as blocks that may split events.

        Objects that are not on the range's chain of events are skipped. If they form several chains, the range's digest
        decides between these.

        Raises:
            Damaged: an object is missing or has the wrong size, or none of several chains is right; names an object.
        """

    @abstractmethod
    def read_event(self, place: Place, stored: ArchivedRange, offset: int, length: int) -> bytes:
        """Return the ``length`` bytes of one event with its header, by one request.

        Raises:
            NoSuchObject, WrongSize: there is no such event.
            Damaged: the object that should hold it is missing, truncated or changed.
        """

    @abstractmethod
    def find_event(self, place: Place, stored: ArchivedRange, offset: int) -> tuple[int, int]:
        """Return offset and length of the event that holds the segment's byte ``offset``, which is in the range.

        Raises:
            Damaged: as for `read_range`.
        """


class Layout(RangeReader):
    """One way to map a segment's events to objects: one folder per segment, in which keys sort in the order of offsets.

    Attributes:
        keys: the keys of its objects.
        one_object_per_event: whether each event is an object of its own.
        joinable: whether compaction can replace the objects of neighbouring ranges by one.
        compressions: supported when writing; the empty one is none.
    """

    keys: ClassVar[RangeKeys]
    one_object_per_event: ClassVar[bool]
    joinable: ClassVar[bool]
    compressions: ClassVar[tuple[Compression, ...]] = ("",)

    def compressing(self, compression: Compression) -> Self:  # noqa: ARG002
        """Return the layout that writes with one of its compressions."""
        return self

    def min_window(self, range_size: int) -> int:  # noqa: ARG002
        """Return the smallest window (bytes) that suffices to write ranges of a size."""
        return 0

    def object_count(self, ranges: int, events: int) -> int:
        """Return the number of objects of so many ranges with so many events."""
        return events if self.one_object_per_event else ranges

    @abstractmethod
    def write_run(
        self,
        place: Place,
        segment: SegmentId,
        blocks: Iterable[EventBlock],
        window_bytes: int = WINDOW_BYTES,
    ) -> WrittenRange:
        """Write contiguous events; objects that already exist with the same content are accepted.

        The blocks are consumed one at a time, by one thread at a time but not always the same; a block needs to be
        valid only until the next one is requested. ``window_bytes`` bounds the memory used, except for a larger object.

        Raises:
            Conflict: an object with different bytes exists.
        """

    @abstractmethod
    def write_large(
        self,
        place: Place,
        event: Range,
        blocks: Iterable[Buffer],
        window_bytes: int = WINDOW_BYTES,
    ) -> WrittenRange:
        """Write one event that is a range of its own; an existing object with the same content is accepted.

        Args:
            place: the archive.
            event: the range, header included.
            blocks: its bytes, header included; always consumed, and each valid until the next is requested.
            window_bytes: maximum data buffered in memory.

        Raises:
            Conflict: an object with different bytes exists.
            Failed: the event is larger than the window, and the store does not accept such an object in parts.
        """

    @abstractmethod
    def check_range(self, place: Place, stored: ArchivedRange, known: Container[str] = ()) -> RangeCheck:
        """Check the listing of a range for missing and unexpected objects; damage is returned, not raised.

        ``known`` are the keys, relative to the archive, of other chunks that are expected in the listing.
        """

    def check_ranges(
        self, place: Place, stored: Sequence[ArchivedRange], known: Container[str] = ()
    ) -> Iterator[RangeCheck]:
        """Check the listing of some ranges of a segment, given in order, each as `check_range` does."""
        return (self.check_range(place, one, known) for one in stored)

    @abstractmethod
    def off_chain(
        self,
        place: Place,
        segment: SegmentId,
        start: int,
        end: int,
        ranges: Sequence[tuple[int, int]],
    ) -> Iterator[str]:
        """Yield the keys of objects that begin in ``[start, end)`` and that no generation can ever need, in order.

        ``ranges`` are all archived ranges of that part, in order, from a published index. The yielded objects may be
        deleted at any later time, because published ranges never change their boundaries.

        Raises:
            Damaged: an object of a range is missing or has the wrong size; the keys yielded before remain valid.
        """

    def between(self, place: Place, segment: SegmentId, start: int, end: int) -> Iterator[ObjectInfo]:
        """Yield every object that begins in ``[start, end)``, in order."""
        if start >= end:
            return iter(())
        folder, after, stop = self.span(place.prefix, segment, start, end)
        return takewhile(lambda entry: entry.key < stop, place.store.list(folder, after))

    def span(self, prefix: str, segment: SegmentId, start: int, end: int) -> tuple[str, str, str]:
        """Return the folder and the keys, exclusive, between which the objects that begin in ``[start, end)`` are."""
        after, stop = self.keys.after(segment, start), self.keys.after(segment, end)
        return prefix + self.keys.folder(segment), prefix + after, prefix + stop

    def _in_gap(self, place: Place, segment: SegmentId, start: int, end: int) -> Iterator[str]:
        """Yield the layout's keys that begin in ``[start, end)``, of which nothing is archived."""
        for entry in self.between(place, segment, start, end):
            if self.keys.parse(entry.key.removeprefix(place.prefix)) is not None:
                yield entry.key

    def strays(self, place: Place, segment: SegmentId, ranges: Iterable[tuple[int, int]]) -> Iterator[str]:
        """Yield every key in the segment's folder that is in none of its ranges (given in order, not overlapping)."""
        store, prefix = place
        folder = prefix + self.keys.folder(segment)
        after, upto = "", -1
        for start, end in ranges:
            if start != upto:
                yield from _keys(store, folder, after, prefix + self.keys.after(segment, start))
            after, upto = prefix + self.keys.after(segment, end), end
        yield from _keys(store, folder, after)

    def segments(self, place: Place) -> list[SegmentId]:
        """Return the segments that have objects, in the stream's order."""
        names = place.store.folders(place.prefix + self.keys.root)
        return [found for name in names if (found := parse_segment(name)) is not None]

    def foreign(self, place: Place, segments: Iterable[SegmentId]) -> Iterator[str]:
        """Yield every key of the layout that is in none of these segments' folders (given in the stream's order)."""
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


def open_layout(name: str, compression: Compression = "") -> Layout:
    """Return the layout of a name; the compression matters only for writing.

    Raises:
        UnknownLayout: there is no such layout, or it does not support the compression.
    """
    if name not in LAYOUTS:
        raise UnknownLayout("unknown layout", where=repr(name), todo=f"Use {' or '.join(LAYOUTS)}.")
    layout: Layout = import_module(LAYOUTS[name]).LAYOUT
    if compression not in layout.compressions:
        known = " or ".join(filter(None, layout.compressions)) or "none"
        raise UnknownLayout(
            f"layout {name} does not support the compression", where=repr(compression), todo=f"Supported: {known}."
        )
    return layout.compressing(compression)


def layout_of(content: ContentKind, wanted: LayoutName | None = None) -> LayoutName:
    """Return the layout in which a content is written: the wanted one; by default ``events``, of bytes ``chunks``.

    Raises:
        Usage: the layout stores events as objects, so it cannot hold bytes.
    """
    if content == "bytes" and wanted is not None and open_layout(wanted).one_object_per_event:
        raise Usage(f"a byte stream cannot have layout {wanted}, as it has no events", todo="Use --layout chunks.")
    return wanted or ("chunks" if content == "bytes" else "events")


_TABLE = "table:"


def table_layout(generation: int) -> str:
    """Return the name, for `open_reader`, of the table files that hold a generation."""
    return f"{_TABLE}{generation}"


def open_reader(name: str) -> RangeReader:
    """Return the reader of a layout (`Layout.name`) or of a table's generation (`table_layout`).

    Raises:
        UnknownLayout: there is no such layout.
    """
    if not name.startswith(_TABLE):
        return open_layout(name)
    from streamvault.layouts.table import TableReader  # noqa: PLC0415  (imports pyarrow, which other layouts do not need)

    return TableReader(int(name.removeprefix(_TABLE)))
