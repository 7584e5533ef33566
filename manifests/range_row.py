"""One archived range, as the index of a generation has it. Apart from the index's file, so that tasks load little."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from layouts.extent import Extent
from streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES, SegmentId

__all__ = ["RangeRow", "segment_digest"]


@dataclass(frozen=True, slots=True, order=True)
class RangeRow:
    """One range of a segment.

    Attributes:
        segment: which segment of the archive's stream.
        start, end: offsets in the segment (bytes), event boundaries.
        events: how many events it has.
        digest: SHA-256 of the segment's own bytes from `start` to `end`, hexadecimal.
        frames: how many bytes each frame of a compressed range has, in order; none if it is not compressed.
    """

    segment: SegmentId
    start: int
    end: int
    events: int
    digest: str
    frames: tuple[int, ...] = ()

    @property
    def is_large(self) -> bool:
        """Whether it is one event of more than 8 MiB, which is always a range of its own."""
        return self.events == 1 and self.end - self.start > HEADER_BYTES + MAX_EVENT_BYTES

    @property
    def extent(self) -> Extent:
        """The range as layouts want it."""
        return Extent(self.segment, self.start, self.end, self.frames)


def segment_digest(digests: Iterable[str]) -> str:
    """A segment's digest: the SHA-256 of its ranges' raw digests in order."""
    digest = hashlib.sha256()
    for one in digests:
        digest.update(bytes.fromhex(one))
    return digest.hexdigest()
