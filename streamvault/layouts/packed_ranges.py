"""The ranges of a segment as columns, in some 60 bytes each: an archive of a petabyte has 15 million."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Literal

from streamvault.common.lazy import LazySequence
from streamvault.layouts.archived_range import ArchivedRange, block_checksums_hash, digest_of
from streamvault.streamstore.model import ContentKind, SegmentId

Kept = Literal["all", "objects", "compared", "none"]
"""Which checksums are kept of ranges: all, those of whole objects, what those of blocks can be compared with
(`block_checksums_hash`), or none. Those of a range's blocks take ten times as much as all the rest."""

_DIGEST_BYTES = 32


class PackedRanges(LazySequence[ArchivedRange]):
    """Ranges of one segment, in the order in which they were added; frames and checksums take no room where unknown.

    Args:
        segment: the segment.
        keep: which checksums are kept; of the others, it is as if they were not known.
    """

    def __init__(self, segment: SegmentId, keep: Kept = "all") -> None:
        self._segment, self._keep = segment, keep
        self._starts = array("Q")
        self._sizes, self._events = _Numbers(), _Numbers()
        self._digests = bytearray()
        self._frames, self._frame_ends = array("I"), _Ends()
        self._checksums, self._blocks = _Texts(), _Texts()

    @classmethod
    def of(cls, segment: SegmentId, rows: Iterable[ArchivedRange]) -> PackedRanges:
        """Return ranges of a segment, in their order."""
        if isinstance(rows, PackedRanges):
            return rows
        found = cls(segment)
        for row in rows:
            found.add(row)
        return found

    def add(self, row: ArchivedRange) -> None:
        """Add a range of the segment."""
        self._starts.append(row.start)
        self._sizes.append(row.end - row.start)
        self._events.append(row.events)
        self._digests += bytes.fromhex(row.digest)
        self._frames.extend(row.frames)
        self._frame_ends.append(len(self._frames))
        self._checksums.append(row.crc64nvme if self._keep in {"all", "objects"} else "")
        blocks = block_checksums_hash(row.block_checksums) if self._keep == "compared" else row.block_checksums
        self._blocks.append(blocks if self._keep in {"all", "compared"} else "")

    def bounds(self) -> Iterator[tuple[int, int]]:
        """Yield start and end of each range (bytes)."""
        return ((start, start + size) for start, size in zip(self._starts, self._sizes.held, strict=True))

    @property
    def events(self) -> int:
        """Number of events in all of them."""
        return sum(self._events.held)

    @property
    def bytes(self) -> int:
        """Bytes of the segment in all of them."""
        return sum(self._sizes.held)

    @property
    def digest(self) -> str:
        """The segment's digest, see `segment_digest`."""
        return digest_of([memoryview(self._digests)])

    def hold(self, content: ContentKind) -> bool:
        """Whether each of them holds events, or bytes."""
        return 0 not in self._events.held if content == "events" else not any(self._events.held)

    def __len__(self) -> int:
        return len(self._starts)

    def _one(self, number: int) -> ArchivedRange:
        start = self._starts[number]
        low, high = self._frame_ends.around(number)
        return ArchivedRange(
            self._segment,
            start,
            start + self._sizes.held[number],
            self._events.held[number],
            self._digests[number * _DIGEST_BYTES : (number + 1) * _DIGEST_BYTES].hex(),
            tuple(self._frames[low:high]),
            crc64nvme=self._checksums[number],
            block_checksums=self._blocks[number],
        )


def packed(rows: Iterable[ArchivedRange], keep: Kept = "all") -> dict[SegmentId, PackedRanges]:
    """Return ranges by segment, in their order; see `PackedRanges`."""
    found: dict[SegmentId, PackedRanges] = {}
    for row in rows:
        held = found.get(row.segment)
        if held is None:
            held = found[row.segment] = PackedRanges(row.segment, keep)
        held.add(row)
    return found


class _Numbers:
    """Numbers below 2^64, of four bytes each while they fit."""

    def __init__(self) -> None:
        self.held = array("I")

    def append(self, number: int) -> None:
        try:
            self.held.append(number)
        except OverflowError:
            self.held = array("Q", self.held)
            self.held.append(number)


class _Ends:
    """Where items end that lie one after another; no memory while all are empty."""

    def __init__(self) -> None:
        self._ends, self._empty = _Numbers(), 0

    def append(self, end: int) -> None:
        if end:
            self._ends.append(end)
        else:
            self._empty += 1

    def around(self, number: int) -> tuple[int, int]:
        at, ends = number - self._empty, self._ends.held
        return (0 if at <= 0 else ends[at - 1], ends[at]) if at >= 0 else (0, 0)


class _Texts:
    """ASCII texts, one after another."""

    def __init__(self) -> None:
        self._text, self._ends = bytearray(), _Ends()

    def append(self, text: str) -> None:
        self._text += text.encode()
        self._ends.append(len(self._text))

    def __getitem__(self, number: int) -> str:
        low, high = self._ends.around(number)
        return self._text[low:high].decode()
