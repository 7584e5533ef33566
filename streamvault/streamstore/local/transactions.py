"""Transactions of the embedded store: their parts are files beside the segments', and the record knows their states."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

from streamvault.streamstore.appender import SegmentAppender
from streamvault.streamstore.errors import NoSuchSegment, RequestFailed, StreamSealed, TransactionEnded
from streamvault.streamstore.local.appender import AppendTarget, LocalAppender
from streamvault.streamstore.local.commit import (
    decided,
    finish_commit,
    first_of_kind,
    remove_ended,
    renumbered,
    reserve,
)
from streamvault.streamstore.local.folder import StreamFolder
from streamvault.streamstore.local.record import StreamRecord, save_record
from streamvault.streamstore.local.segment_files import SegmentFiles
from streamvault.streamstore.local.transaction_record import TransactionRecord
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.transactions import Transaction, Transactions, TransactionState

LONGEST_LEASE = 600.0
"""As Pravega's controller allows by default (seconds)."""


class LocalTransactions(Transactions):
    """See `Transactions`. A lease that has run out aborts the transaction with the next look at it."""

    def __init__(self, root: Path, opened: Callable[[LocalAppender], LocalAppender]) -> None:
        self._root = root
        self._opened = opened

    def begin(self, stream: StreamName, lease: float) -> Transaction:
        """See `Transactions.begin`; a lease has 600 s at most."""
        check_lease(stream, lease)
        id_ = uuid4()
        with self._judged(stream) as (folder, record):
            if record.sealed:
                raise StreamSealed("the stream is sealed and cannot be changed", where=str(stream))
            remove_ended(folder.path, record.transactions)  # what a kill left
            epoch = first_of_kind(record)
            noted = TransactionRecord(epoch.number, time.time() + lease)
            save_record(folder.path, replace(record, transactions=record.transactions.changed(id_, noted)))
        return Transaction(stream, id_, renumbered(epoch, epoch.number))

    def ping(self, transaction: Transaction, lease: float) -> None:
        """See `Transactions.ping`."""
        check_lease(transaction.stream, lease)
        with self._judged(transaction.stream) as (folder, record):
            longer = replace(open_one(record, transaction), expires=time.time() + lease)
            transactions = record.transactions.changed(transaction.id, longer)
            save_record(folder.path, replace(record, transactions=transactions))

    def read(self, transaction: Transaction, segment: SegmentId, end: int) -> Iterator[memoryview]:
        """See `Transactions.read`."""
        files = _part(self._folder(transaction.stream), transaction.id, segment)
        try:
            yield from files.read(0, end)
        except FileNotFoundError:
            raise NoSuchSegment("the transaction has no such part", where=_where(transaction, segment)) from None

    def appender(self, transaction: Transaction, segment: SegmentId, *, in_flight: int = 4) -> SegmentAppender:
        """See `Transactions.appender`."""
        folder = self._folder(transaction.stream)
        where = _where(transaction, segment)

        def check(record: StreamRecord) -> None:
            state = record.transactions.judged(time.time()).state(transaction.id)
            if state is not TransactionState.OPEN or segment not in transaction.segments:
                raise NoSuchSegment(f"the transaction has no such part; it is {state}", where=where)

        files = _part(folder, transaction.id, segment)
        return self._opened(LocalAppender(folder, AppendTarget(where, files, check), in_flight))

    def commit(self, transaction: Transaction) -> TransactionState:
        """See `Transactions.commit`."""
        with self._judged(transaction.stream) as (folder, record):
            state = record.transactions.state(transaction.id)
            if state is not TransactionState.OPEN:
                return state
            lengths = {segment.number: _part(folder, transaction.id, segment).end() for segment in transaction.segments}
            noted = decided(record, transaction.id, lengths, folder.tail(record).offsets)
            reserve(folder.path, noted, transaction.id)
            save_record(folder.path, noted)
            finish_commit(folder.path, noted)
        return TransactionState.COMMITTED

    def abort(self, transaction: Transaction) -> None:
        """See `Transactions.abort`."""
        with self._judged(transaction.stream) as (folder, record):
            if record.transactions.state(transaction.id) is TransactionState.OPEN:
                transactions = record.transactions.dropped(transaction.id)
                save_record(folder.path, replace(record, transactions=transactions))
                remove_ended(folder.path, transactions)

    def state(self, transaction: Transaction) -> TransactionState:
        """See `Transactions.state`."""
        transactions = self._folder(transaction.stream).record().transactions
        if transactions.judged(time.time()) == transactions:
            return transactions.state(transaction.id)
        with self._judged(transaction.stream) as (_, record):
            return record.transactions.state(transaction.id)

    def lengths(self, transaction: Transaction) -> Mapping[SegmentId, int]:
        """See `Transactions.lengths`."""
        folder = self._folder(transaction.stream)
        return {segment: _part(folder, transaction.id, segment).end() for segment in transaction.segments}

    def _merge(self, target: Transaction, source: Transaction, segments: Sequence[SegmentId]) -> None:
        with self._judged(target.stream) as (folder, record):
            if not {target.id, source.id} <= record.transactions.going.keys():
                return
            for segment in segments:
                into, part = (_part(folder, transaction.id, segment) for transaction in (target, source))
                base, length = into.end(), part.end()
                into.reserve(base, length)
                into.take(part, base, length)
                part.remove()

    @contextlib.contextmanager
    def _judged(self, stream: StreamName) -> Iterator[tuple[StreamFolder, StreamRecord]]:
        """Hold a stream's lock; the transactions whose lease has run out are aborted."""
        folder = self._folder(stream)
        with folder.locked() as record:
            judged = replace(record, transactions=record.transactions.judged(time.time()))
            if judged != record:
                save_record(folder.path, judged)
                remove_ended(folder.path, judged.transactions)
            yield folder, judged

    def _folder(self, stream: StreamName) -> StreamFolder:
        return StreamFolder(self._root, stream)


def check_lease(stream: StreamName, lease: float) -> None:
    """Reject a lease that is not allowed.

    Raises:
        RequestFailed: it is too long.
    """
    if not 0 < lease <= LONGEST_LEASE:
        raise RequestFailed(f"a lease has up to {LONGEST_LEASE:.0f} s, not {lease:.0f}", where=str(stream))


def open_one(record: StreamRecord, transaction: Transaction) -> TransactionRecord:
    """Return what a stream's record says of an open transaction.

    Raises:
        TransactionEnded: it is not open any more.
    """
    state = record.transactions.state(transaction.id)
    if state is not TransactionState.OPEN:
        where = f"{transaction.stream}, {transaction.id}"
        raise TransactionEnded(f"the transaction cannot be kept open ({state})", where=where)
    return record.transactions.going[transaction.id]


def _where(transaction: Transaction, segment: SegmentId) -> str:
    return f"{segment.in_stream(transaction.stream)}, transaction {transaction.id}"


def _part(folder: StreamFolder, id_: UUID, segment: SegmentId) -> SegmentFiles:
    return SegmentFiles.of_part(folder.path, id_, segment.number)
