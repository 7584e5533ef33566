"""The stream store interface and its contract.

`streamstore.pravega` and `streamstore.local` implement it; `tests/contract/stream_store.py` tests the contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from streamvault.streamstore.appender import SegmentAppender
from streamvault.streamstore.errors import NoSuchScope, ReaderGroupsNotOffered
from streamvault.streamstore.model import (
    Epoch,
    KeyRange,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.reader_groups import ReaderGroups
from streamvault.streamstore.transactions import Transactions


class StreamStore(ABC):
    """A store of streams.

    Every method raises `StreamStoreUnavailable` if the store cannot be reached within its retries, `AccessDenied` if
    access is denied, `NoSuchStream` or `NoSuchScope` if the stream or scope does not exist, and the errors its
    docstring lists. Methods are thread-safe. Offsets and lengths are bytes.

    Attributes:
        uri: the store's URI without a stream, e.g. ``pravega://127.0.0.1:9090`` or ``local:///data``.
    """

    uri: str

    @abstractmethod
    def list_scopes(self) -> Iterator[str]:
        """Iterate over all scopes, sorted."""

    @abstractmethod
    def list_streams(self, scope: str, *, own: bool = False) -> Iterator[StreamName]:
        """Iterate over the user streams of a scope, sorted.

        Omits the store's internal streams (names starting with ``_``) and, unless ``own`` is set, Streamvault's
        and ephemeral ones (`streamstore.own`).
        """

    def list_key_value_tables(self, scope: str) -> Iterator[str]:  # noqa: ARG002
        """Iterate over the names of a scope's key-value tables, sorted; a store without such tables has none."""
        return iter(())

    @abstractmethod
    def describe(self, stream: StreamName) -> StreamDescription:
        """Describe a stream: configuration, epochs, head, tail and whether it is sealed.

        The tail is read after the head and may be outdated on return; every byte below it is readable.
        """

    @abstractmethod
    def exists(self, stream: StreamName) -> bool:
        """Return whether the stream exists; False if its scope does not."""

    @abstractmethod
    def segment_info(self, stream: StreamName, segments: Sequence[SegmentId]) -> list[SegmentInfo]:
        """Return the state of each segment, in the given order, using few connections.

        Raises:
            NoSuchSegment: a segment never existed or was truncated.
        """

    @abstractmethod
    def read(self, stream: StreamName, segment: SegmentId, start: int, end: int) -> Iterator[memoryview]:
        """Read the bytes ``[start, end)`` of a segment as blocks of 1 byte to 2 MiB, in order and bounded memory.

        A block is valid until the next is requested; copy it to keep it. The iterator may be closed early. After a lost
        connection, reading resumes at the end of the last block.

        Raises:
            SegmentTruncated: the rest of the range is below the start offset, which the error contains. Blocks already
                yielded are valid.
            NoSuchSegment: the segment never existed or is gone.
            SegmentTooShort: ``end`` is beyond the write offset.
            ValueError: ``start`` is negative, or after ``end``.
        """

    def read_bytes(self, stream: StreamName, segment: SegmentId, start: int, end: int) -> bytes:
        """Read a short range ``[start, end)`` of a segment into memory; errors as `read`."""
        return b"".join(bytes(block) for block in self.read(stream, segment, start, end))

    @abstractmethod
    def create_scope(self, scope: str) -> bool:
        """Create a scope; return False if it already existed."""

    @abstractmethod
    def create_stream(self, stream: StreamName, configuration: StreamConfiguration) -> None:
        """Create a stream with ``configuration.scaling.min_segments`` segments of equal width.

        Raises:
            StreamExists: the stream exists; of several concurrent callers exactly one succeeds.
            NoSuchScope: its scope does not exist.
        """

    @abstractmethod
    def update_stream(
        self, stream: StreamName, configuration: StreamConfiguration, *, was: StreamConfiguration | None = None
    ) -> None:
        """Replace policies and tags.

        Args:
            stream: the stream.
            configuration: the new configuration; setting the current one changes nothing.
            was: the configuration expected before, so that a late caller does not undo a concurrent change; None for
                any.

        Raises:
            StreamChanged: the current configuration is not ``was``.
            StreamSealed: the stream is sealed.
        """

    @abstractmethod
    def scale(self, stream: StreamName, seal: Sequence[SegmentId], ranges: Sequence[KeyRange]) -> Epoch:
        """Seal segments of the current epoch and open ones with the given ranges in their place; return the new epoch.

        New segments are numbered as `streamstore.arithmetic.numbering` predicts. Returns when the scale is finished.

        Raises:
            ScaleRefused: a segment of ``seal`` is not open, or the ranges do not cover those of the sealed segments.
            StreamSealed: the stream is sealed.
        """

    @abstractmethod
    def appender(self, stream: StreamName, segment: SegmentId, *, in_flight: int = 4) -> SegmentAppender:
        """Open a segment for appending at its write offset, with at most ``in_flight`` unacknowledged blocks.

        Raises:
            SegmentSealed: the segment is sealed.
            NoSuchSegment: the segment does not exist.
            StoreBusy: another process is writing to it.
        """

    @abstractmethod
    def truncate_segment(self, stream: StreamName, segment: SegmentId, offset: int) -> None:
        """Drop a segment's bytes below an offset at once, without moving the stream's head.

        Used while filling up to a start offset, so that filler does not accumulate; `truncate` must follow.

        Raises:
            InvalidCut: the offset lies beyond the write offset.
        """

    @abstractmethod
    def truncate(self, cut: StreamCut) -> None:
        """Move the stream's head to a cut. A cut at or before the head changes nothing.

        Raises:
            InvalidCut: the cut does not cover the key space, or lies beyond the tail.
            StreamSealed: the stream is sealed.
        """

    @abstractmethod
    def seal(self, stream: StreamName, *, first: Epoch | None = None) -> None:
        """Seal the stream permanently. Sealing it again changes nothing. ``first`` is as for `delete`.

        Raises:
            StreamChanged: as `delete`.
        """

    @abstractmethod
    def delete(self, stream: StreamName, *, first: Epoch | None = None) -> None:
        """Seal the stream if necessary and delete it with its data.

        Args:
            stream: the stream.
            first: its first epoch as seen by the caller. A recreated stream continues the segment numbers, so a late
                caller cannot delete it. None for any stream of this name.

        Raises:
            StreamChanged: the stream seen by the caller was deleted and recreated.
        """

    @abstractmethod
    def delete_scope(self, scope: str) -> None:
        """Delete an empty scope."""

    def create_stream_and_scope(self, stream: StreamName, configuration: StreamConfiguration) -> None:
        """Create a stream, and its scope if missing.

        Raises:
            StreamExists: as `create_stream`.
        """
        try:
            self.create_stream(stream, configuration)
        except NoSuchScope:
            self.create_scope(stream.scope)
            self.create_stream(stream, configuration)

    @abstractmethod
    def transactions(self) -> Transactions:
        """Return the store's transactions."""

    def reader_groups(self) -> ReaderGroups:
        """Return the store's reader groups.

        Raises:
            ReaderGroupsNotOffered: the store does not support reader groups.
        """
        raise ReaderGroupsNotOffered(
            "this store does not support reader groups", where=self.uri, todo="Use a Pravega stream."
        )

    @abstractmethod
    def close(self) -> None:
        """Release connections and locks; the store must not be used afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
