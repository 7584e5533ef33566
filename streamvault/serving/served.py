"""What a server needs of a stream that it serves, be it an archive or a stream of the embedded store."""

from __future__ import annotations

from asyncio import Semaphore
from typing import Any, Protocol

from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamDescription


class ServedMoment(Protocol):
    """A stream at one moment."""

    @property
    def described(self) -> StreamDescription:
        """The stream."""

    def info(self, segment: SegmentId) -> SegmentInfo:
        """Return a segment's offsets.

        Raises:
            NoSuchSegment: the stream does not have it.
        """

    def check_end(self, segment: SegmentId) -> None:
        """Check that nothing of a sealed segment may have come after what there is of it.

        Raises:
            Failed: that is not known; a reader that went on with the successors might miss events.
        """


class Served(Protocol):
    """A stream that is served. Thread-safe."""

    @property
    def uri(self) -> str:
        """The URI of the archive or the stream."""

    @property
    def now(self) -> ServedMoment:
        """The stream as it was looked at last."""

    async def read_block(self, now: Any, segment: SegmentId, offset: int, fetching: Semaphore) -> memoryview:
        """Return bytes from an offset on, at least one.

        Args:
            now: the stream at a moment.
            segment: the segment.
            offset: the offset.
            fetching: limits how many fetch what is not in memory; else that piles up before it is sent.

        Raises:
            SegmentTruncated: the stream no longer has it.
            Failed: it is in a gap, or beyond the segment's end.
            Damaged: it is missing, or not what was archived.
        """

    def renewed(self, before: Any = None) -> bool:
        """Look again; return whether the stream is now another than before.

        Raises:
            Problem: it cannot be read.
        """

    def refresh(self) -> bool:
        """Do the same; if it cannot be read, what was served goes on."""
