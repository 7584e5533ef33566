"""A source: a live stream, or an archive that grows. It is looked at again and again; each look is one moment of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from streamvault.streamstore.cuts import later_of
from streamvault.streamstore.model import ContentKind, SegmentId, StreamCut, StreamDescription, StreamName


class SourcePart(Protocol):
    """Consecutive bytes of one segment of a source; small, to be sent to tasks."""

    @property
    def start(self) -> int:
        """Offset of the first byte (bytes)."""

    @property
    def end(self) -> int:
        """Offset after the last byte (bytes)."""

    @property
    def events(self) -> int | None:
        """Number of events; None to count them."""

    @property
    def whole(self) -> bool:
        """Whether it is a whole range of an archive, whose digest is known, or of a stream."""

    @property
    def digest(self) -> str:
        """SHA-256 of all of the bytes, hexadecimal; empty if it is not known."""

    @property
    def is_verified(self) -> bool:
        """Whether `blocks` compares the bytes with a digest: those of an archive, not those of a stream."""

    def blocks(self, start: int, end: int, window: int) -> Iterator[bytes | memoryview]:
        """Yield some of the bytes, as blocks that may split events. The caller may keep them.

        An archive's bytes are compared with their digest before the first block.

        Args:
            start: offset of the first byte to read (bytes).
            end: offset after the last one.
            window: maximum data buffered in memory (bytes).

        Raises:
            Damaged: the bytes are missing, or differ from the digest.
            SourceTruncated: the stream was truncated beyond the first byte that is left to read.
            StreamStoreError: the bytes cannot be read.
        """


class SourceState(Protocol):
    """A source at one moment.

    What is read of it later is what it had then, or an error says that the source has lost it since.
    """

    @property
    def described(self) -> StreamDescription:
        """The stream; its head and its tail bound what the source has."""

    @property
    def taken(self) -> datetime:
        """When the tail was taken, or a little before."""

    @property
    def content(self) -> ContentKind:
        """What an archive says that its segments hold. A stream does not know it: "events"."""

    def parts(
        self, start: StreamCut, end: StreamCut, *, known: Sequence[StreamCut] = ()
    ) -> Mapping[SegmentId, Sequence[SourcePart]]:
        """Return where the bytes between two cuts are; ranges that are gaps of an archive are left out.

        Args:
            start: the first cut, not before the head.
            end: the last cut, not after the tail.
            known: cuts that lie between events, as is known; others are checked, for which a stream is read up to them.

        Returns:
            Segment → its parts in order, of every segment between the cuts.

        Raises:
            InvalidCut: a cut is not of the stream, lies outside its head and tail or inside an event, or ``start`` is
                after ``end``.
            SourceTruncated: the stream was truncated since.
        """

    def between(self, start: StreamCut, end: StreamCut) -> Mapping[SegmentId, tuple[int, int]]:
        """Return segment → its first offset and its end (bytes) between two cuts, in the stream's order.

        Nothing is read to check that the cuts lie between events.

        Raises:
            InvalidCut: a cut is not of the stream, or ``start`` is after ``end``.
            SourceTruncated: the stream has lost a segment since.
        """

    def last(self, segment: SegmentId, start: int, end: int) -> Sequence[tuple[int, int, str]]:
        """Return digests of the last bytes of a segment between two offsets, by which the source is recognized later.

        Returns:
            First offset, end (bytes) and SHA-256, hexadecimal; of a stream, of fewer and fewer bytes, as it may be
            truncated. Empty if there are none any more.
        """

    def digest(self, segment: SegmentId, start: int, end: int) -> str:
        """Return the SHA-256 of some bytes of a segment, hexadecimal.

        Raises:
            SegmentTruncated, NoSuchSegment: the source no longer has all of them.
            SegmentTooShort: the segment is shorter.
        """

    def check_gap(self, segment: SegmentId, start: int, end: int) -> None:
        """Check that bytes of a segment that no part has are a declared gap.

        Raises:
            Damaged: they are not.
        """

    def reading(self, doing: str) -> AbstractContextManager[None]:
        """Return a context in which the parts are read.

        Args:
            doing: what is being done to them, for the message: "replicated".

        Raises:
            Overtaken: on leaving it, in place of `Damaged`, if what was read was replaced or has expired meanwhile.
                What a stream has lost is a `SourceTruncated` in any case.
        """


class Source(Protocol):
    """A stream or an archive to be read, whether or not it exists.

    Attributes:
        uri: its URI.
        name: the stream.
    """

    uri: str
    name: StreamName

    def look(self) -> SourceState:
        """Return the source as it is now.

        Raises:
            NoSuchStream, NoSuchArchive: it does not exist.
            OwnStream: it is an internal stream.
        """

    def end_of(self, segment: SegmentId) -> int:
        """Return the end (bytes) of a sealed segment, for the offset -1 in cuts (`streamstore.model.SEGMENT_END`).

        Raises:
            InvalidCut: it is open, or the source does not have it.
        """


def bytes_after(look: SourceState, reached: StreamCut) -> int:
    """Return how many bytes a source has after a cut; what it has truncated does not count.

    Raises:
        SourceTruncated: it was truncated since.
    """
    described = look.described
    between = look.between(later_of(described, reached, described.head), described.tail)
    return sum(max(0, end - start) for start, end in between.values())
