"""The segment appender interface and its contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from streamvault.streamstore.arithmetic.framing import MAX_APPEND_BYTES


class SegmentAppender(ABC):
    """Appends blocks of bytes to one segment, each at a known offset, with a few in flight.

    A block is any run of whole events (headers included). It is written at most once: the store accepts it only at the
    expected offset. After a lost connection the appender queries the write offset and sends only the missing blocks.

    Attributes:
        offset: offset of the next block (bytes): the write offset at opening plus all bytes passed to `append`.
        acknowledged: offset (bytes) up to which the store has acknowledged the data. After `OffsetConflict` this tells
            whether the block was written, if at most one was in flight.
    """

    offset: int
    acknowledged: int

    @abstractmethod
    def append(self, block: bytes | bytearray | memoryview) -> None:
        """Send one block; may return before it is acknowledged; blocks while too many are in flight.

        A block has 1 byte to `streamstore.arithmetic.framing.MAX_APPEND_BYTES`.

        The caller must not change the buffer until it is acknowledged.

        Raises:
            OffsetConflict: there is another writer.
            SegmentSealed: the segment is sealed.
            SegmentTruncated: a connection was lost, and the blocks sent on it were truncated before it was restored.
            StreamStoreError: any other failure.
        """

    @abstractmethod
    def flush(self) -> int:
        """Wait until all blocks are acknowledged, and so survive a kill of this process; return `acknowledged`."""

    @abstractmethod
    def close(self) -> None:
        """Discard unacknowledged blocks and release the connection. Does not raise."""

    @staticmethod
    def checked(block: bytes | bytearray | memoryview) -> memoryview:
        """Return a block's bytes; ValueError if it is empty or too large."""
        data = memoryview(block).cast("B")
        if not 0 < data.nbytes <= MAX_APPEND_BYTES:
            raise ValueError(f"a block must have 1 to {MAX_APPEND_BYTES} bytes, not {data.nbytes}")
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            try:
                self.flush()
            finally:
                self.close()
        else:
            self.close()
