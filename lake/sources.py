"""Where the bytes of a table's ranges come from: the objects of an archive, or the stream itself.

This is all that a task knows of it. What follows in a table is the business of an origin (`lake.origin`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from common.errors import Damaged
from exporter.reading import SegmentReader
from lake.batches import event_blocks
from layouts.layout import open_reader
from layouts.place import Place
from manifests.range_row import RangeRow
from objectstore.uri import RootAddress
from streamstore.framing import NotAnEvent
from streamstore.model import LARGEST_EVENT_BYTES, SegmentId, StreamName
from streamstore.splitting import EventBlock
from streamstore.uri import StoreAddress

__all__ = ["ArchiveSource", "ArchivedPart", "RangeSource", "Run", "StreamSource", "WantedRange"]


@dataclass(frozen=True, slots=True)
class ArchivedPart:
    """A range of an archive, and how it is kept (see `layouts.layout.open_reader`)."""

    row: RangeRow
    layout: str


@dataclass(frozen=True, slots=True)
class WantedRange:
    """A range of the table.

    Attributes:
        segment: which. start, end: offsets in it (bytes), event boundaries.
        parts: the ranges of the archive that hold it, in order and without a hole; none if it is read from a stream.
    """

    segment: SegmentId
    start: int
    end: int
    parts: tuple[ArchivedPart, ...] = ()

    @property
    def known(self) -> RangeRow | None:
        """As the table's index has it; None if it is no range of the archive, so that its digest is not known yet."""
        if len(self.parts) != 1 or (self.parts[0].row.start, self.parts[0].row.end) != (self.start, self.end):
            return None
        return replace(self.parts[0].row, frames=())  # what is compressed is the archive's own


class Run(Protocol):
    """Events of a segment that follow each other without a hole, read once.

    Use up the blocks; what else it says counts from then on.
    """

    @property
    def start(self) -> int:
        """Offset of the first event (bytes)."""

    @property
    def end(self) -> int:
        """Behind the last event."""

    @property
    def count(self) -> int:
        """How many events there are."""

    @property
    def digest(self) -> str:
        """SHA-256 of their bytes, headers included, hexadecimal."""

    def blocks(self) -> Iterator[EventBlock]:
        """The events, in blocks of whole ones that are valid until the next is asked for.

        Raises:
            Damaged: the bytes are not those that were archived; what was yielded is not good.
            NotAnEvent: no event begins where one should.
        """


class RangeSource(Protocol):
    """Gives a task the bytes of its ranges; small, and made to travel."""

    @property
    def is_whole(self) -> bool:
        """Whether it has all of every range. If not, what is missing is a gap."""

    def runs(self, wanted: WantedRange) -> Iterator[Run]:
        """The range's events, in order, each run to be used up before the next; usually one.

        What lies between two runs, before the first or behind the last is gone at the source.
        """


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """See `RangeSource`. Every range is proved by its digest before its last block is left.

    Attributes:
        root: the archive's root. prefix: the archive in it.
        window: bytes to hold of what is on its way.
    """

    root: RootAddress
    prefix: str
    window: int

    @property
    def is_whole(self) -> bool:
        """Yes: what is missing is damage."""
        return True

    def runs(self, wanted: WantedRange) -> Iterator[Run]:
        """See `RangeSource.runs`."""
        yield _ArchivedRun(self, wanted)


class _ArchivedRun:
    """See `Run`."""

    def __init__(self, source: ArchiveSource, wanted: WantedRange) -> None:
        self._source = source
        self._wanted = wanted
        self._digest = hashlib.sha256()
        self.start = self.end = wanted.start
        self.count = 0

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def blocks(self) -> Iterator[EventBlock]:
        wanted = self._wanted
        try:
            for events in event_blocks(wanted.start, str(wanted.segment), self._bytes()):
                self.count += events.count
                self.end = events.end
                yield events
        except NotAnEvent:
            raise self._damaged(wanted.parts[0]) from None
        row = RangeRow(wanted.segment, self.start, self.end, self.count, self.digest)
        if wanted.known not in {None, row}:
            raise self._damaged(wanted.parts[0])

    def _bytes(self) -> Iterator[bytes | memoryview]:
        """The range's bytes. Of an archived range that is taken in part all is read, to be held against its digest."""
        source, wanted = self._source, self._wanted
        place = Place(source.root.open(), source.prefix)
        for part in wanted.parts:
            row, at = part.row, part.row.start
            proof = None if wanted.known else hashlib.sha256()
            for block in open_reader(part.layout).read_range(place, row.extent, row.start, row.end, source.window):
                low, high = max(wanted.start - at, 0), min(wanted.end - at, len(block))
                if proof is not None:
                    proof.update(block)
                if low < high:
                    taken = memoryview(block)[low:high]
                    self._digest.update(taken)
                    yield taken
                at += len(block)
            if proof is not None and proof.hexdigest() != row.digest:
                raise self._damaged(part)

    def _damaged(self, part: ArchivedPart) -> Damaged:
        row = part.row
        return Damaged(
            "the archive's bytes differ from its manifest",
            where=f"{self._source.root.uri}/{self._source.prefix}{row.segment} bytes {row.start} to {row.end}",
            todo="Run 'streamvault check --read-data' on it.",
        )


@dataclass(frozen=True, slots=True)
class StreamSource:
    """See `RangeSource`: the segment store itself.

    Attributes:
        address: the store. stream: which stream of it. largest: the largest payload to accept (bytes).
    """

    address: StoreAddress
    stream: StreamName
    largest: int = LARGEST_EVENT_BYTES

    @property
    def is_whole(self) -> bool:
        """No: the stream may be truncated while it is read."""
        return False

    def runs(self, wanted: WantedRange) -> Iterator[Run]:
        """See `RangeSource.runs`."""
        with self.address.lend() as store:
            yield from SegmentReader(
                store,
                self.stream,
                wanted.segment,
                start=wanted.start,
                high=wanted.end,
                segment_end=wanted.end,
                largest=self.largest,
            ).pieces()
