"""Transactions: events that become readable together or not at all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import PlainSerializer, PlainValidator

from streamvault.streamstore.appender import SegmentAppender
from streamvault.streamstore.errors import RequestFailed
from streamvault.streamstore.model import KeyRange, SegmentId, StreamName

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
