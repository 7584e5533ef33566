"""How a segment's events become objects: one module per layout, one protocol for all.

Exporter, importer and check speak of ranges only: the bytes ``[start, end)`` of a segment, both ends at event
boundaries. Which objects that makes is the layout's business.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from layouts.chain import Finding, RangeCheck, Stored
from layouts.chunks import ChunksLayout
from layouts.events import EventsLayout
from layouts.extent import Extent, Written
from layouts.place import Place
from objectstore.bulk import WINDOW_BYTES
from objectstore.errors import ObjectStoreError
from objectstore.store import ObjectInfo
from streamstore.model import SegmentId

if TYPE_CHECKING:
    from streamstore.splitting import EventBlock  # it imports numpy, which looking at an archive does without

__all__ = [
    "Compression",
    "Extent",
    "Finding",
    "Layout",
    "RangeCheck",
    "RangeReader",
    "Stored",
    "UnknownLayout",
    "Written",
    "open_layout",
    "open_reader",
    "table_layout",
]

Compression = Literal["", "zstd"]

Buffer = bytes | bytearray | memoryview


class UnknownLayout(ObjectStoreError):
    """A layout that this release does not know."""


class RangeReader(Protocol):
    """Reading archived ranges, whatever they are kept as."""

    @property
    def name(self) -> str:
        """As `open_reader` takes it; of a layout also as in a manifest and on the command line."""

    def read_range(
        self, place: Place, extent: Extent, start: int, end: int, window_bytes: int = WINDOW_BYTES
    ) -> Iterator[bytes | memoryview]:
        """The segment's bytes ``[start, end)`` of an archived range, as blocks cut anywhere.

        Objects that lie beside the range's chain of events are skipped.

        Raises:
            Damaged: an object is missing or has another size; names it.
        """

    def read_event(self, place: Place, extent: Extent, offset: int, length: int) -> bytes:
        """The ``length`` bytes of one event with its header, by one request.

        Raises:
            NoSuchObject, WrongSize: there is no such event.
            Damaged: the object that should hold it is missing, cut or changed.
        """

    def find_event(self, place: Place, extent: Extent, offset: int) -> tuple[int, int]:
        """Offset and length of the event that holds the segment's byte ``offset``, which lies in the extent.

        Raises:
            Damaged: as `read_range`.
        """


class Layout(RangeReader, Protocol):
    """The objects of one way to lay out segments."""

    def write_run(
        self,
        place: Place,
        segment: SegmentId,
        blocks: Iterable[EventBlock],
        window_bytes: int = WINDOW_BYTES,
    ) -> Written:
        """Write events that follow each other without a hole, so far as they are not there.

        The blocks are taken one at a time, by one thread at a time but not always the same; a block needs to be valid
        only until the next one is asked for. ``window_bytes`` bounds what is held in memory, but for one larger object.

        Raises:
            Conflict: an object with other bytes is there.
        """

    def write_large(
        self,
        place: Place,
        event: Extent,
        blocks: Iterable[Buffer],
        window_bytes: int = WINDOW_BYTES,
    ) -> Written:
        """Write one event, which is a range of its own; what is there already, with the same content, is fine.

        Args:
            place: where to.
            event: the range, header included.
            blocks: its bytes, header included, used up whatever happens; each is valid until the next is asked for.
            window_bytes: what is held in memory at most.

        Raises:
            Conflict: an object with other bytes is there.
            Failed: it is larger than the window, and the store takes no such object in parts.
        """

    def check_range(self, place: Place, extent: Extent, known: Container[str] = ()) -> RangeCheck:
        """Compare the listing of a range with what must be there; nothing is read and nothing is raised for it.

        ``known`` are keys (below the archive) of chunks that may lie there beside it.
        """

    def off_chain(
        self,
        place: Place,
        segment: SegmentId,
        start: int,
        end: int,
        ranges: Sequence[tuple[int, int]],
    ) -> Iterator[str]:
        """Keys of objects that begin in ``[start, end)`` and that no generation can ever need, in order.

        ``ranges`` is all that is archived of the stretch, in order, as a published index has it. What is named here may
        be deleted at any later time: published ranges keep their boundaries for good.

        Raises:
            Damaged: an object of a range is missing or has another size; what was named before holds all the same.
        """

    def between(self, place: Place, segment: SegmentId, start: int, end: int) -> Iterator[ObjectInfo]:
        """Every object that begins in ``[start, end)``, in order."""

    def span(self, prefix: str, segment: SegmentId, start: int, end: int) -> tuple[str, str, str]:
        """Where in a listing the objects are that begin in ``[start, end)``: folder, and the keys around them."""

    def strays(self, place: Place, segment: SegmentId, ranges: Iterable[tuple[int, int]]) -> Iterator[str]:
        """Every key in the segment's folder that lies in none of its ranges (given in order, not overlapping)."""

    def segments(self, place: Place) -> list[SegmentId]:
        """Each segment that has objects, in the stream's order."""

    def foreign(self, place: Place, segments: Iterable[SegmentId]) -> Iterator[str]:
        """Every key of the layout that lies in none of these segments' folders (given in the stream's order)."""


_LAYOUTS: dict[tuple[str, Compression], Layout] = {
    ("events", ""): EventsLayout(),
    ("chunks", ""): ChunksLayout(),
    ("chunks", "zstd"): ChunksLayout(compress=True),
}


def open_layout(name: str, compression: Compression = "") -> Layout:
    """The layout of this name; how it compresses matters to who writes only.

    Raises:
        UnknownLayout: there is none, or it cannot be compressed.
    """
    if (name, compression) not in _LAYOUTS:
        known = ", ".join(dict.fromkeys(name for name, _ in _LAYOUTS))
        if any(name == one for one, _ in _LAYOUTS):
            todo = "Only layout chunks is compressed."
            raise UnknownLayout("no such compression for this layout", where=f"{name}, {compression}", todo=todo)
        raise UnknownLayout("unknown layout", where=repr(name), todo=f"This release knows: {known}.")
    return _LAYOUTS[name, compression]


_TABLE = "table:"


def table_layout(generation: int) -> str:
    """Names, for `open_reader`, the files of a table that hold a generation."""
    return f"{_TABLE}{generation}"


def open_reader(name: str) -> RangeReader:
    """What reads the ranges of a layout (`Layout.name`), or of a table (`table_layout`).

    Raises:
        UnknownLayout: there is none of this name.
    """
    if not name.startswith(_TABLE):
        return open_layout(name)
    from layouts.table import TableReader  # noqa: PLC0415  (it imports pyarrow; other layouts do without)

    return TableReader(int(name.removeprefix(_TABLE)))
