"""The stream store interface and its contract: streams, appends, transactions, reader groups.

`streamstore.pravega` and `streamstore.local` implement it; `tests/contract/test_stream_store.py` tests the contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Annotated, Self
from uuid import UUID

from pydantic import PlainSerializer, PlainValidator

from streamvault.streamstore.errors import NoSuchScope, ReaderGroupsNotOffered, RequestFailed
from streamvault.streamstore.framing import MAX_APPEND_BYTES
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

        A block has 1 byte to `streamstore.framing.MAX_APPEND_BYTES`.

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


Segment = Annotated[SegmentId, PlainValidator(SegmentId.parse), PlainSerializer(str)]
"""A segment in a record that pydantic writes and reads."""


class TransactionState(StrEnum):
    """The state of a transaction."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """It never existed, or ended so long ago that the store no longer knows it."""

    @property
    def is_committed(self) -> bool:
        """Whether its events are readable, or will be without further action."""
        return self in {TransactionState.COMMITTING, TransactionState.COMMITTED}


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open transaction; small, for sending to other processes.

    Attributes:
        stream: the stream.
        id: its id in the stream.
        segments: its parts with their key ranges: one per segment that was open when it began. Their ids are the
            transaction's own: the number of the segment, but the epoch in which the transaction began (or the one that
            this epoch repeats, after a commit that rolled).
    """

    stream: StreamName
    id: UUID
    segments: Mapping[Segment, KeyRange]


@dataclass(frozen=True, slots=True)
class Written:
    """A transaction and the acknowledged lengths of its writer.

    Attributes:
        transaction: the open transaction.
        lengths: acknowledged bytes by segment; segments without any may be absent.
    """

    transaction: Transaction
    lengths: Mapping[SegmentId, int]


class Transactions(ABC):
    """Transactions of one store.

    Every method raises what `StreamStore` says for all of its methods.
    """

    @abstractmethod
    def begin(self, stream: StreamName, lease: float) -> Transaction:
        """Open a transaction that the store aborts if it is neither pinged nor ended for ``lease`` seconds.

        Raises:
            RequestFailed: the store does not allow such a lease.
            StreamSealed: the stream is sealed.
        """

    @abstractmethod
    def ping(self, transaction: Transaction, lease: float) -> None:
        """Keep it open for another ``lease`` seconds.

        Raises:
            TransactionEnded: it is not open any more.
        """

    @abstractmethod
    def appender(self, transaction: Transaction, segment: SegmentId, *, in_flight: int = 4) -> SegmentAppender:
        """Open one of the transaction's parts for appending; its data is invisible before the commit."""

    @abstractmethod
    def read(self, transaction: Transaction, segment: SegmentId, end: int) -> Iterator[memoryview]:
        """Yield the first ``end`` bytes of one of the parts of an open transaction, which has as many.

        Each block is valid until the next one is asked for.

        Raises:
            NoSuchSegment: the transaction has ended.
        """

    def join(self, parts: Sequence[Written]) -> Transaction:
        """Merge transactions (at least one), in order, into the first one. Pravega moves no bytes for it.

        Abort the others afterwards; if this fails, abort all of them.

        Returns:
            The first one's transaction, which now holds everything.

        Raises:
            RequestFailed: they began in different epochs of the stream, or one does not hold the acknowledged data.
        """
        target = parts[0].transaction
        if any(part.transaction.segments != target.segments for part in parts):
            raise RequestFailed(
                "the stream was scaled during the write",
                where=str(target.stream),
                todo="Nothing was committed; write again.",
            )
        lengths = dict.fromkeys(target.segments, 0)
        for part in parts:
            self.check_holds(part)
            full = [segment for segment, length in part.lengths.items() if length]
            if part is not parts[0] and full:
                self._merge(target, part.transaction, full)
            for segment in full:
                lengths[segment] += part.lengths[segment]
        # merging a transaction that is gone is reported as success
        self.check_holds(Written(target, lengths))
        return target

    def check_holds(self, written: Written) -> None:
        """Check, before a commit, that a transaction holds what its writer appended, and nothing else.

        Raises:
            RequestFailed: it does not.
        """
        transaction, lengths = written.transaction, written.lengths
        if any(length != lengths.get(segment, 0) for segment, length in self.lengths(transaction).items()):
            raise RequestFailed(
                "a transaction does not hold the data written to it (did its lease expire before the commit?)",
                where=f"{transaction.stream}, {transaction.id}",
                todo="Nothing was committed; write again, with a longer lease if the server allows one.",
            )

    @abstractmethod
    def lengths(self, transaction: Transaction) -> Mapping[SegmentId, int]:
        """Return the acknowledged bytes of each of its parts; 0 for those of one that has ended."""

    @abstractmethod
    def _merge(self, target: Transaction, source: Transaction, segments: Sequence[SegmentId]) -> None:
        """Move a transaction's parts behind those of another one; nothing happens if either has ended."""

    @abstractmethod
    def commit(self, transaction: Transaction) -> TransactionState:
        """Make its events readable, all of them, and wait until they are; one that is committed already stays so.

        Returns:
            ``COMMITTED``, or the state of one that cannot be committed any more.
        """

    @abstractmethod
    def abort(self, transaction: Transaction) -> None:
        """Drop its events; one that has ended already stays as it is."""

    @abstractmethod
    def state(self, transaction: Transaction) -> TransactionState:
        """Return its state."""


NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderGroup:
    """A reader group as it was created; its position changes, see `ReaderGroups.position`.

    Attributes:
        scope: its scope.
        name: its name.
        starts: each stream that it reads → the cut from which it reads it; None for the stream's head.
        ends: the same streams → the cut up to which it reads them; None for no end.
        refresh_millis: how often readers look for changes of the group (milliseconds).
        checkpoint_millis: how often the group makes a checkpoint (milliseconds); -1 for never.
        most_checkpoints: how many checkpoints may be under way at once.
        retention: whether streams keep what the group has not read: 0 for no, 1 up to where the group's user says, 2 up
            to its last checkpoint.
        id: made when the group was created.
        generation: how often its configuration was changed.
    """

    scope: str
    name: str
    starts: Mapping[StreamName, StreamCut | None]
    ends: Mapping[StreamName, StreamCut | None] = field(default_factory=dict)
    refresh_millis: int = 3000
    checkpoint_millis: int = 30000
    most_checkpoints: int = 3
    retention: int = 0
    id: UUID = NO_ID
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Where a group would go on in a stream if all of its readers were lost now.

    Attributes:
        stream: the stream.
        offsets: segment → offset of the next event that counts as not read; -1 (`SEGMENT_END`) for none.
        waiting: segment that cannot be read yet → its predecessors that are still to be read to their ends.
    """

    stream: StreamName
    offsets: Mapping[SegmentId, int]
    waiting: Mapping[SegmentId, frozenset[SegmentId]] = field(default_factory=dict)


class ReaderGroups(ABC):
    """Reader groups of one store.

    Every method raises what `StreamStore` says for all of its methods.
    """

    @abstractmethod
    def names(self, scope: str) -> Iterator[str]:
        """Iterate over the names of a scope's groups, sorted."""

    @abstractmethod
    def find(self, scope: str, name: str) -> ReaderGroup | None:
        """Return a group; None if there is none of this name."""

    @abstractmethod
    def position(self, group: ReaderGroup, stream: StreamName) -> GroupPosition | None:
        """Return where a group goes on in one of its streams; None if it has not begun, and goes on at its start.

        Raises:
            UnreadableReaderGroup: its state is of a client that is not known here.
        """

    @abstractmethod
    def create(self, group: ReaderGroup, start: StreamCut) -> ReaderGroup:
        """Create a group that begins to read its only stream at a cut, unless there is one of its name.

        A group that this method was creating when it was killed, which has the same id, is finished.

        Args:
            group: the group; its id tells whether one of the same name is this one.
            start: where it begins to read, with no `SEGMENT_END`.

        Returns:
            The group of this name: another one than was asked for, which has another id, is left as it is.
        """


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

        New segments are numbered as `streamstore.numbering` predicts. Returns when the scale is finished.

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
    def delete(self, stream: StreamName, *, first: Epoch | None = None, only_sealed: bool = False) -> None:
        """Seal the stream if necessary and delete it with its data.

        Args:
            stream: the stream.
            first: its first epoch as seen by the caller. A recreated stream continues the segment numbers, so a late
                caller cannot delete it. None for any stream of this name.
            only_sealed: the caller has seen it sealed, so do not delete an open one. In a cluster that was rebuilt,
                numbers begin again, and a recreated stream can have the same first epoch.

        Raises:
            StreamChanged: the stream seen by the caller was deleted and recreated.
            StreamNotSealed: with ``only_sealed``, it is open.
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
