"""Where a segment's bytes can be read: one interface for archived ranges and live segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated, StreamStoreError
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.uri import StoreAddress


class SourceTruncated(StreamStoreError):
    """The source was truncated while it was read."""


class StoredBytes:
    """Bytes that are stored already, to be compared with what they should be.

    Args:
        blocks: the stored bytes in order; each block is valid until the next one is asked for.
    """

    def __init__(self, blocks: Iterable[memoryview]) -> None:
        self._blocks = iter(blocks)
        self._left = memoryview(b"")

    def difference(self, block: bytes | memoryview) -> int | None:
        """Compare the next bytes with a block of what they should be, as far as something is stored.

        Returns:
            Where in the block the first stored byte differs, None if none does.
        """
        expected, at = memoryview(block), 0
        while at < len(expected):
            if not self._left:
                self._left = next(self._blocks, self._left)
                if not self._left:
                    return None
            size = min(len(expected) - at, len(self._left))
            held, wanted = self._left[:size], expected[at : at + size]
            if held != wanted:
                return at + next(i for i, (one, other) in enumerate(zip(held, wanted, strict=True)) if one != other)
            self._left, at = self._left[size:], at + size
        return None


class ByteSource(Protocol):
    """Consecutive bytes of one segment; small, to be sent to tasks."""

    @property
    def start(self) -> int:
        """Offset of the first byte (bytes)."""

    @property
    def end(self) -> int:
        """Offset after the last byte (bytes)."""

    @property
    def digest(self) -> str:
        """SHA-256 of all of the bytes, hexadecimal; empty if it is not known."""

    def blocks(self, start: int, end: int, window: int) -> Iterator[bytes | memoryview]:
        """Yield some of the bytes, as blocks that may split events. The caller may keep them.

        If their digest is known, all of the bytes are compared with it before the first block.

        Args:
            start: offset of the first byte to read (bytes).
            end: offset after the last one.
            window: maximum data buffered in memory (bytes).

        Raises:
            Damaged: the bytes are missing, or differ from the digest.
            SourceTruncated: the stream was truncated beyond the first byte that is left to read.
            StreamStoreError: the bytes cannot be read.
        """


@dataclass(frozen=True, slots=True)
class LiveSegment:
    """A `ByteSource` that is a part of a stream's segment.

    Attributes:
        address: address of the stream's store.
        stream: the stream.
        segment: the segment.
        start: see `ByteSource`.
        end: see `ByteSource`; at most the segment's write offset.
    """

    address: StoreAddress
    stream: StreamName
    segment: SegmentId
    start: int
    end: int

    @property
    def digest(self) -> str:
        """Empty: nobody has computed it."""
        return ""

    def blocks(self, start: int, end: int, window: int) -> Iterator[bytes | memoryview]:  # noqa: ARG002
        """See `ByteSource.blocks`; the store's reader has a window of its own."""
        try:
            with self.address.lend() as store:
                for block in store.read(self.stream, self.segment, start, end):
                    # The store reuses its buffers, but an appender may send a block once more after a lost connection.
                    yield bytes(block)
        except (SegmentTruncated, NoSuchSegment) as error:
            raise SourceTruncated(error.what, where=error.where, todo="Run the same command again.") from None
