"""The narrow interface to a place that holds streams, and its contract.

`streamstore.pravega` and `streamstore.local` implement it; `tests/contract/stream_store.py` is the contract as tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from streamstore.errors import NoSuchScope, TransactionsNotOffered
from streamstore.model import (
    Epoch,
    KeyRange,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)

if TYPE_CHECKING:
    from streamstore.transactions import Transactions

__all__ = ["SegmentAppender", "StreamStore"]


class SegmentAppender(ABC):
    """Appends blocks of bytes to one segment, each at a known offset, a few in flight.

    A block is any run of whole events (headers included). It is written once or not at all: the store takes it only at
    the expected offset. After a lost connection the appender asks for the write offset and goes on with what is
    missing, so a block is never written twice.
    """

    @property
    @abstractmethod
    def offset(self) -> int:
        """Where the next block will go (bytes): the write offset at opening plus all that was handed to `append`."""

    @property
    @abstractmethod
    def acknowledged(self) -> int:
        """Up to which offset (bytes) the store has said that it holds the data.

        After `OffsetConflict` this tells whether the block is in the segment, if one was in flight at most.
        """

    @abstractmethod
    def append(self, block: bytes | bytearray | memoryview) -> None:
        """Send one block of 1 byte to 4 MiB; may return before it is acknowledged; blocks while too many are in flight.

        The caller does not change the buffer until it is acknowledged.

        Raises:
            OffsetConflict: somebody else wrote to the segment.
            SegmentSealed: the segment is sealed.
            SegmentTruncated: a connection was lost, and what it had appended was truncated meanwhile.
            StreamStoreError: as named.
        """

    @abstractmethod
    def flush(self) -> int:
        """Wait until all is acknowledged, and so survives a kill of this process. Returns `acknowledged`."""

    @abstractmethod
    def close(self) -> None:
        """Give up what is not acknowledged and free the connection. Does not raise."""

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


class StreamStore(ABC):
    """A place that holds streams.

    Every method raises `StreamStoreUnavailable` if the store cannot be reached within its retries, `AccessDenied` if it
    refuses, `NoSuchStream` or `NoSuchScope` if what is named does not exist, and otherwise what its docstring says.
    Methods may be called from several threads. Offsets and lengths are bytes.
    """

    @property
    @abstractmethod
    def uri(self) -> str:
        """The store's URI without a stream, e.g. ``pravega://127.0.0.1:9090`` or ``local:///data``."""

    @abstractmethod
    def list_scopes(self) -> Iterator[str]:
        """Every scope, sorted."""

    @abstractmethod
    def list_streams(self, scope: str, *, own: bool = False) -> Iterator[StreamName]:
        """Every user's stream of a scope, sorted.

        Left out are the store's internal ones (names starting with ``_``) and, unless asked for with ``own``,
        Streamvault's (`streamstore.own`).
        """

    @abstractmethod
    def describe(self, stream: StreamName) -> StreamDescription:
        """Configuration, epochs, head, tail and whether it is sealed.

        The tail is taken after the head and may be old by the time it arrives; every byte below it is readable.
        """

    @abstractmethod
    def exists(self, stream: StreamName) -> bool:
        """Whether the stream exists; a missing scope answers False."""

    @abstractmethod
    def segment_info(self, stream: StreamName, segments: Sequence[SegmentId]) -> list[SegmentInfo]:
        """What the store says of each segment, in the order asked, on few connections.

        Raises:
            NoSuchSegment: one of them never was, or is truncated away.
        """

    @abstractmethod
    def read(self, stream: StreamName, segment: SegmentId, start: int, end: int) -> Iterator[memoryview]:
        """The bytes ``[start, end)`` of a segment, in order, as blocks of 1 byte to 2 MiB; in bounded memory.

        A block is valid until the next one is asked for; a caller that keeps it copies it. Closing the iterator early
        is allowed. A lost connection is taken up again where the last block ended.

        Raises:
            SegmentTruncated: ``start`` (or what is left of the range) lies below the start offset; says where to go on.
                Blocks that were yielded before are good.
            NoSuchSegment: the segment never was or is gone.
            ValueError: ``end`` is beyond the write offset.
        """

    @abstractmethod
    def create_scope(self, scope: str) -> bool:
        """Make a scope; False if it was there."""

    @abstractmethod
    def create_stream(self, stream: StreamName, configuration: StreamConfiguration) -> None:
        """Make a stream of ``configuration.scaling.min_segments`` segments of equal width.

        Raises:
            StreamExists: it is there, whoever made it: of several callers exactly one succeeds.
            NoSuchScope: its scope is not there.
        """

    @abstractmethod
    def update_stream(
        self, stream: StreamName, configuration: StreamConfiguration, *, was: StreamConfiguration | None = None
    ) -> None:
        """Replace policies and tags.

        Args:
            stream: which.
            configuration: the new one.
            was: the one to replace, so that a late caller does not undo what somebody else has set meanwhile; None for
                any. Setting what is set already changes nothing.

        Raises:
            StreamChanged: the stream has another configuration than ``was``.
            StreamSealed: the stream is sealed.
        """

    @abstractmethod
    def scale(self, stream: StreamName, seal: Sequence[SegmentId], ranges: Sequence[KeyRange]) -> Epoch:
        """Seal segments of the current epoch and open ones with the given ranges in their place; return the new epoch.

        New segments are numbered as `streamstore.numbering` predicts. Returns when the scale is finished.

        Raises:
            ScaleRefused: ``seal`` is not open in the current epoch, or the ranges do not cover what it seals.
        """

    @abstractmethod
    def appender(self, stream: StreamName, segment: SegmentId, *, in_flight: int = 4) -> SegmentAppender:
        """Open a segment for appending at its write offset, ``in_flight`` blocks at most unacknowledged.

        Raises:
            SegmentSealed, NoSuchSegment, StoreBusy: as named.
        """

    @abstractmethod
    def truncate_segment(self, stream: StreamName, segment: SegmentId, offset: int) -> None:
        """Drop a segment's bytes below an offset at once, without moving the stream's head.

        Used while filling up to a start offset, so that filler never piles up; `truncate` must follow.
        """

    @abstractmethod
    def truncate(self, cut: StreamCut) -> None:
        """Move the stream's head to a cut. A cut at or before the head changes nothing.

        Raises:
            InvalidCut: the cut does not cover the key space, or lies beyond the tail.
        """

    @abstractmethod
    def seal(self, stream: StreamName, *, first: Epoch | None = None) -> None:
        """Seal the stream for ever. Sealing twice is fine.

        Args:
            stream: which.
            first: its first epoch as the caller saw it; as for `delete`.

        Raises:
            StreamChanged: as `delete`.
        """

    @abstractmethod
    def delete(self, stream: StreamName, *, first: Epoch | None = None) -> None:
        """Seal if need be and delete the stream with its data.

        Args:
            stream: which.
            first: its first epoch as the caller saw it. A stream that is made again under the name numbers its
                segments on, so a late caller cannot hit it. None for whatever has the name now.

        Raises:
            StreamChanged: the stream that the caller saw is gone and another one has its name.
        """

    @abstractmethod
    def delete_scope(self, scope: str) -> None:
        """Delete an empty scope."""

    def create_stream_and_scope(self, stream: StreamName, configuration: StreamConfiguration) -> None:
        """As `create_stream`; its scope is made if need be.

        Raises:
            StreamExists: as of `create_stream`.
        """
        try:
            self.create_stream(stream, configuration)
        except NoSuchScope:
            self.create_scope(stream.scope)
            self.create_stream(stream, configuration)

    def transactions(self) -> Transactions:
        """The store's transactions; a store need not have any.

        Raises:
            TransactionsNotOffered: it has none.
        """
        raise TransactionsNotOffered("this store has no transactions", where=self.uri, todo="Write to a Pravega.")

    @abstractmethod
    def close(self) -> None:
        """Free connections and locks; the store is not used afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
