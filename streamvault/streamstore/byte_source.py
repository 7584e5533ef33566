"""A part of a live segment, which tasks read, and bytes to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
            while not self._left:
                if (read := next(self._blocks, None)) is None:
                    return None
                self._left = read
            size = min(len(expected) - at, len(self._left))
            held, wanted = self._left[:size], expected[at : at + size]
            if held != wanted:
                return at + next(i for i, (one, other) in enumerate(zip(held, wanted, strict=True)) if one != other)
            self._left, at = self._left[size:], at + size
        return None


@dataclass(frozen=True, slots=True)
class LiveSegment:
    """A part of a stream's segment, a `sources.source.SourcePart`.

    Attributes:
        address: address of the stream's store.
        stream: the stream.
        segment: the segment.
        start: see `SourcePart`.
        end: see `SourcePart`; at most the segment's write offset.
    """

    address: StoreAddress
    stream: StreamName
    segment: SegmentId
    start: int
    end: int

    @property
    def events(self) -> int:
        """0: they are not counted."""
        return 0

    @property
    def whole(self) -> bool:
        """See `SourcePart`."""
        return True

    @property
    def digest(self) -> str:
        """Empty: nobody has computed it."""
        return ""

    @property
    def is_verified(self) -> bool:
        """See `SourcePart`."""
        return False

    def blocks(self, start: int, end: int, window: int) -> Iterator[bytes | memoryview]:  # noqa: ARG002
        """See `SourcePart.blocks`; the store's reader has a window of its own."""
        try:
            with self.address.lend() as store:
                for block in store.read(self.stream, self.segment, start, end):
                    # The store reuses its buffers, but an appender may send a block once more after a lost connection.
                    yield bytes(block)
        except (SegmentTruncated, NoSuchSegment) as error:
            raise SourceTruncated(error.what, where=error.where, todo="Run the same command again.") from None
