"""Pravega's transactions: each has its own segment beside every segment that was open when it began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from streamvault.streamstore.appender import SegmentAppender
from streamvault.streamstore.errors import RequestFailed, StreamSealed, TransactionEnded
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.appender import PravegaAppender
from streamvault.streamstore.pravega.codec import WireCommand
from streamvault.streamstore.pravega.controller import Controller, ranges_from, stream_message
from streamvault.streamstore.pravega.patience import looks
from streamvault.streamstore.pravega.reader import BlockReader
from streamvault.streamstore.pravega.refusals import refusal
from streamvault.streamstore.pravega.segments import SegmentName, SegmentStores
from streamvault.streamstore.transactions import Transaction, Transactions, TransactionState

COMMIT_SECONDS = 120.0
"""How long to wait for a commit, which the controller does in the background, usually within 0.2 s."""


_INT64 = 1 << 64


class PravegaTransactions(Transactions):
    """See `Transactions`. Usable from all threads."""

    def __init__(self, controller: Controller, stores: SegmentStores) -> None:
        self._controller = controller
        self._stores = stores

    def begin(self, stream: StreamName, lease: float) -> Transaction:
        """See `Transactions.begin`; the controller allows 10 s to 10 minutes unless it was told otherwise."""
        if not self._controller.current_segments(stream):
            # the controller would say that it failed, and be asked again for minutes
            raise StreamSealed("the stream is sealed and cannot be changed", where=f"{self._controller.uri}/{stream}")
        request = pb.CreateTxnRequest(streamInfo=stream_message(stream), lease=int(lease * 1000))
        return _transaction_from(stream, self._controller.ask(stream, "createTransaction", request))

    def ping(self, transaction: Transaction, lease: float) -> None:
        """See `Transactions.ping`."""
        request = pb.PingTxnRequest(
            streamInfo=stream_message(transaction.stream),
            txnId=_id_message(transaction),
            lease=int(lease * 1000),
        )
        answer = self._controller.ask(transaction.stream, "pingTransaction", request)
        name = pb.PingTxnStatus.Status.Name(answer.status)
        if name != "OK":
            what = f"the transaction cannot be kept open ({name.lower().replace('_', ' ')})"
            raise TransactionEnded(what, where=f"{self._controller.uri}/{transaction.stream}, {transaction.id}")

    def appender(self, transaction: Transaction, segment: SegmentId, *, in_flight: int = 4) -> SegmentAppender:
        """See `Transactions.appender`."""
        name = SegmentName(transaction.stream, segment, _part(transaction))
        return PravegaAppender(self._stores, name, in_flight=in_flight)

    def read(self, transaction: Transaction, segment: SegmentId, end: int) -> Iterator[memoryview]:
        """See `Transactions.read`."""
        name = SegmentName(transaction.stream, segment, _part(transaction))
        return BlockReader(self._stores, name, 0, end).blocks()

    def commit(self, transaction: Transaction) -> TransactionState:
        """See `Transactions.commit`."""
        self._end(transaction, "commitTransaction")
        for _ in looks(COMMIT_SECONDS):
            state = self.state(transaction)
            if state is TransactionState.OPEN:  # the controller failed to begin
                self._end(transaction, "commitTransaction")
            elif state is not TransactionState.COMMITTING:
                return state
        raise RequestFailed(
            f"the transaction is not committed after {COMMIT_SECONDS:.0f} s",
            where=f"{transaction.stream}, {transaction.id}",
            todo="The controller continues; check again later.",
        )

    def abort(self, transaction: Transaction) -> None:
        """See `Transactions.abort`."""
        self._end(transaction, "abortTransaction")

    def state(self, transaction: Transaction) -> TransactionState:
        """See `Transactions.state`."""
        answer = self._controller.ask(transaction.stream, "checkTransactionState", _request(transaction))
        return TransactionState(pb.TxnState.State.Name(answer.state).lower())

    def _end(self, transaction: Transaction, method: str) -> None:
        """Begin to commit or abort."""
        answer = self._controller.ask(transaction.stream, method, _request(transaction))
        if answer.status == pb.TxnStatus.STREAM_NOT_FOUND:
            raise self._controller.missing(transaction.stream)

    def lengths(self, transaction: Transaction) -> Mapping[SegmentId, int]:
        """See `Transactions.lengths`."""
        infos = self._stores.infos_if_there(transaction.stream, list(transaction.segments), _part(transaction))
        return {segment: info.write_offset if info else 0 for segment, info in infos.items()}

    def _merge(self, target: Transaction, source: Transaction, segments: Sequence[SegmentId]) -> None:
        def request(number: int, name: SegmentName, token: str) -> WireCommand:
            return wire.MergeSegments(number, f"{name}{_part(target)}", f"{name}{_part(source)}", token, 0)

        names = [SegmentName(target.stream, segment) for segment in segments]
        for name, answer in self._stores.ask_all(names, request, write=True):
            if not isinstance(answer, wire.SegmentsMerged | wire.NoSuchSegment):
                raise refusal(answer, self._stores.where(name))


def _part(transaction: Transaction) -> str:
    """Return the suffix that a transaction's segment adds to the name of its target segment."""
    return f"#transaction.{transaction.id.hex}"


def _request(transaction: Transaction) -> Any:
    return pb.TxnRequest(streamInfo=stream_message(transaction.stream), txnId=_id_message(transaction))


def _transaction_from(stream: StreamName, message: Any) -> Transaction:
    """A ``CreateTxnResponse``."""
    number = (message.txnId.highBits % _INT64) << 64 | message.txnId.lowBits % _INT64
    return Transaction(stream, UUID(int=number), ranges_from(message.activeSegments))


def _id_message(transaction: Transaction) -> Any:
    """``TxnId``."""
    high, low = divmod(transaction.id.int, _INT64)
    return pb.TxnId(highBits=_signed(high), lowBits=_signed(low))


def _signed(value: int) -> int:
    return value - _INT64 if value >= _INT64 >> 1 else value
