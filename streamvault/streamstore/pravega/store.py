"""A real Pravega cluster as a `StreamStore`.

A description is put together from the controller's answers and the segments' offsets. Changes of a stream take time or
may collide, so they are repeated.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from tenacity import stop_after_delay

from streamvault.common.waiting import attempts, pauses
from streamvault.streamstore.cuts import is_before, validate_cut
from streamvault.streamstore.errors import (
    InvalidCut,
    InvalidName,
    NoSuchScope,
    NoSuchSegment,
    NoSuchStream,
    RequestFailed,
    ScaleRefused,
    StreamChanged,
    StreamExists,
    StreamNotSealed,
    StreamSealed,
    TransactionEnded,
    WireError,
)
from streamvault.streamstore.model import (
    Epoch,
    Epochs,
    KeyRange,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
    TooManySegments,
)
from streamvault.streamstore.numbering import check_replaces
from streamvault.streamstore.own import is_listed
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.appender import PravegaAppender
from streamvault.streamstore.pravega.calls import looks
from streamvault.streamstore.pravega.connection import PravegaSettings
from streamvault.streamstore.pravega.controller import Controller, ranges_from, stream_message
from streamvault.streamstore.pravega.reader import BlockReader
from streamvault.streamstore.pravega.reader_groups import PravegaReaderGroups
from streamvault.streamstore.pravega.segments import SegmentName, SegmentStores, refusal
from streamvault.streamstore.pravega.wire import WireCommand
from streamvault.streamstore.store import SegmentAppender, StreamStore, Transaction, Transactions, TransactionState

COMMIT_SECONDS = 120.0
"""How long to wait for a commit, which the controller does in the background, usually within 0.2 s."""

_ID = struct.Struct(">qq")
"""The two halves of a transaction's id, as the controller has them."""


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
        answer = self._controller.ask(stream, "createTransaction", request)
        id_ = UUID(bytes=_ID.pack(answer.txnId.highBits, answer.txnId.lowBits))
        return Transaction(stream, id_, ranges_from(answer.activeSegments))

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


def _id_message(transaction: Transaction) -> Any:
    """``TxnId``."""
    high, low = _ID.unpack(transaction.id.bytes)
    return pb.TxnId(highBits=high, lowBits=low)


_log = logging.getLogger(__name__)

LISTED_AT_ONCE = 100
"""Number of streams whose configurations are requested at once."""

CREATE_SECONDS = 10.0
"""How long to wait until a stream of the same name is deleted, if the controller takes its scope for missing."""

FIRST_EPOCHS = 4
"""Epochs that are asked for together with everything else: few streams have more."""

BATCH = 32
"""Epochs that are asked for at once after them."""

ATTEMPTS = 5
"""A scale that is finished between two questions makes the answers disagree; then all is asked again."""

MAKING_SECONDS = 10.0
"""How long to wait for a stream that is being created."""

MAKING_PAUSE = 0.05
"""Seconds between two requests while waiting."""

CHANGE_SECONDS = 60.0
"""How long to retry a change the controller failed to make."""

SCALE_SECONDS = 300.0
"""How long to wait for a scale that the controller has begun; usually it takes 0.1 s."""


class PravegaStore(StreamStore):
    """Streams on a Pravega cluster. Connects when it is used first."""

    def __init__(self, settings: PravegaSettings) -> None:
        self.uri = settings.uri
        self._controller = Controller(settings)
        self._stores = SegmentStores(settings, self._controller)

    def list_scopes(self) -> Iterator[str]:
        """Every user's scope, sorted."""
        yield from sorted(scope for scope in self._controller.scopes() if not scope.startswith("_"))

    def list_streams(self, scope: str, *, own: bool = False) -> Iterator[StreamName]:
        """Every user's stream of a scope, sorted; with ``own`` also Streamvault's."""
        names = list(self._names(scope))
        for at in range(0, len(names), LISTED_AT_ONCE):
            some = names[at : at + LISTED_AT_ONCE]
            configurations = [None for _ in some] if own else self._controller.configurations(some)
            for name, configuration in zip(some, configurations, strict=True):
                if configuration is None or is_listed(configuration):
                    yield name

    def list_key_value_tables(self, scope: str) -> Iterator[str]:
        """See `StreamStore.list_key_value_tables`."""
        yield from sorted(name for name in self._controller.key_value_tables(scope) if not name.startswith("_"))

    def _names(self, scope: str) -> Iterator[StreamName]:
        for name in sorted(name for name in self._controller.streams(scope) if not name.startswith("_")):
            try:
                yield StreamName(scope, name)
            except InvalidName as error:
                # Pravega allows names such as "..", which are not valid folders or keys
                _log.warning("skipping a stream: %s", error)

    def describe(self, stream: StreamName) -> StreamDescription:
        """Configuration, epochs, head, tail and whether it is sealed."""
        disagreements, making = 0, pauses(MAKING_SECONDS, first=MAKING_PAUSE, at_once=False)
        while disagreements < ATTEMPTS:
            try:
                description = self._describe_once(stream)
            except NoSuchStream:
                # a stream exists before its first epoch does
                if not self._controller.stream_exists(stream) or next(making, None) is None:
                    raise
                continue
            if description is not None:
                return description
            disagreements += 1
        raise RequestFailed(
            "the stream changes too fast to be described", where=f"{self.uri}/{stream}", todo="Try again."
        )

    def _describe_once(self, stream: StreamName) -> StreamDescription | None:
        """The stream, or None if the answers disagree."""
        state = self._controller.query_state(stream, FIRST_EPOCHS)
        try:
            made = Epochs(self._all_epochs(stream, state.epochs))
        except TooManySegments as error:
            raise WireError(str(error), where=f"{self.uri}/{stream}") from None
        except ValueError:
            return None  # it was deleted and recreated in the meantime
        last = _last_epoch(made, state.current)
        epochs = None if last is None else made.upto(last + 1)
        if epochs is None or not state.head.offsets.keys() <= epochs.ranges.keys():
            return None
        try:
            infos = self._stores.infos(stream, list(epochs[-1].segments))
        except NoSuchSegment:
            # truncated in the meantime
            return None
        tail = StreamCut(stream, {info.segment: info.write_offset for info in infos})
        return StreamDescription(stream, state.configuration, epochs, state.head, tail, sealed=not state.current)

    def _all_epochs(self, stream: StreamName, first: Sequence[Epoch]) -> Iterator[Epoch]:
        """Yield every epoch, including truncated ones and possibly one that a running scale has only prepared."""
        if not first:
            raise self._controller.missing(stream)
        found, count, asked = first, 0, FIRST_EPOCHS
        while True:
            yield from found
            count += len(found)
            if count < asked:
                return
            asked += BATCH
            found = self._controller.epochs(stream, range(count, asked))

    def exists(self, stream: StreamName) -> bool:
        """See `StreamStore.exists`."""
        return self._controller.stream_exists(stream)

    def segment_info(self, stream: StreamName, segments: Sequence[SegmentId]) -> list[SegmentInfo]:
        """The segments' offsets, in the order asked."""
        return self._stores.infos(stream, segments)

    def read(self, stream: StreamName, segment: SegmentId, start: int, end: int) -> Iterator[memoryview]:
        """The bytes of a segment's range as blocks of 1 MiB at most; see `StreamStore.read`."""
        return BlockReader(self._stores, SegmentName(stream, segment), start, end).blocks()

    def token_refusal(self, stream: StreamName, segment: SegmentId, token: str) -> int | None:
        """Return why a segment store refuses a token for a segment, as Pravega numbers that; None if it accepts it.

        Raises:
            StreamStoreUnavailable: it could not be reached.
        """
        return self._stores.token_refusal(SegmentName(stream, segment), token)

    def create_scope(self, scope: str) -> bool:
        """Make a scope; False if it was there."""
        StreamName(scope, "any")  # validates the name
        return self._controller.create_scope(scope)

    def create_stream(self, stream: StreamName, configuration: StreamConfiguration) -> None:
        """Make a stream of equal segments."""
        for _ in looks(CREATE_SECONDS):
            try:
                self._controller.create_stream(stream, configuration)
            except RequestFailed:
                # of several concurrent callers one creates it; some of the others only get FAILURE
                if self.exists(stream):
                    raise StreamExists("the stream exists", where=f"{self.uri}/{stream}") from None
                raise
            except NoSuchScope:
                # the controller says so, too, if a stream of that name is being deleted
                if isinstance(self._controller.missing(stream), NoSuchScope):
                    raise
            else:
                return
        raise StreamExists("a stream of that name is being deleted", where=f"{self.uri}/{stream}", todo="Try again.")

    def update_stream(
        self, stream: StreamName, configuration: StreamConfiguration, *, was: StreamConfiguration | None = None
    ) -> None:
        """Replace policies and tags.

        A fixed number of segments other than the open ones makes the controller scale the stream to that number. It
        cannot compare-and-set, so the configuration is read right before each attempt.
        """

        def attempt() -> None:
            now = None if was is None else self._controller.configuration(stream)
            if now is not None and now != was:
                if now == configuration:
                    return  # an attempt whose answer was lost
                raise StreamChanged.configured(f"{self.uri}/{stream}")
            self._controller.update_stream(stream, configuration)

        _insist(attempt)

    def scale(self, stream: StreamName, seal: Sequence[SegmentId], ranges: Sequence[KeyRange]) -> Epoch:
        """Scale and wait until it is finished; see `StreamStore.scale`."""
        before = self._open_epoch(stream)
        number: int | None = None

        def attempt() -> None:
            nonlocal number
            epoch = self._open_epoch(stream)
            if epoch.number > before.number and _made_by(epoch, before, seal, ranges):
                # an attempt whose answer was lost
                number = epoch.number
                return
            check_replaces(seal, ranges, epoch.segments)
            number = self._controller.start_scale(stream, seal, ranges) + 1

        try:
            _insist(attempt)
        except ScaleRefused:
            epoch = self._open_epoch(stream)
            if not _made_by(epoch, before, seal, ranges):
                raise
            number = epoch.number
        assert number is not None  # noqa: S101  (an attempt without an error sets it)
        for _ in looks(SCALE_SECONDS):
            if self._controller.is_scaled(stream, number - 1):
                break
        else:
            raise RequestFailed(
                f"the scale is not finished after {SCALE_SECONDS:.0f} s", where=str(stream), todo="Check again later."
            )
        found = self._controller.epochs(stream, [number])
        if not found:
            raise RequestFailed("the scale is finished, but its epoch does not exist", where=str(stream))
        return found[0]

    def _open_epoch(self, stream: StreamName) -> Epoch:
        """The epoch whose segments are open.

        Raises:
            StreamSealed: none are.
        """
        for _ in range(ATTEMPTS):
            current = self._controller.current_segments(stream)
            if not current:
                raise StreamSealed("the stream is sealed and cannot be scaled", where=str(stream))
            # every epoch has a segment that was made for it
            number = max(segment.epoch for segment in current)
            for epoch in self._controller.epochs(stream, [number]):
                if epoch.segments == current:
                    return epoch
        raise RequestFailed("the current epoch does not match the open segments", where=str(stream), todo="Try again.")

    def appender(self, stream: StreamName, segment: SegmentId, *, in_flight: int = 4) -> SegmentAppender:
        """Open a segment for appending at its write offset."""
        return PravegaAppender(self._stores, SegmentName(stream, segment), in_flight=in_flight)

    def truncate_segment(self, stream: StreamName, segment: SegmentId, offset: int) -> None:
        """Drop a segment's bytes below an offset without moving the stream's head."""
        self._stores.truncate(stream, segment, offset)

    def truncate(self, cut: StreamCut) -> None:
        """Move the stream's head to a cut.

        The controller itself accepts offsets beyond the tail and moves the head there, so they are rejected here.
        """
        description = self.describe(cut.stream)
        if is_before(description, cut, description.head):
            return
        validate_cut(description, cut)
        for segment, info in self._stores.infos_if_there(cut.stream, list(cut.offsets)).items():
            if info is None or cut.offsets[segment] > info.write_offset:
                end = "is gone" if info is None else f"ends at {info.write_offset}"
                raise InvalidCut(
                    f"the cut's offset {cut.offsets[segment]} lies beyond the segment, which {end}",
                    where=segment.in_stream(cut.stream),
                )
        _insist(lambda: self._controller.truncate_stream(cut))

    def seal(self, stream: StreamName, *, first: Epoch | None = None) -> None:
        """Seal the stream permanently."""

        def attempt() -> None:
            self._check_first(stream, first)
            self._controller.seal_stream(stream)

        _insist(attempt)

    def delete(self, stream: StreamName, *, first: Epoch | None = None, only_sealed: bool = False) -> None:
        """Seal and delete the current stream, but never one recreated under its name.

        The controller deletes by name, and only sealed streams. So a sealed stream is not sealed again: however late
        the delete call arrives, it fails on a recreated stream, which is not sealed.
        """
        self._check_first(stream, first)
        # a recreated stream continues the segment numbers
        begun = [first] if first else self._controller.epochs(stream, [0])

        def is_gone() -> bool:
            return self._controller.epochs(stream, [0]) != begun

        sealed = not self._controller.current_segments(stream)

        def attempt() -> None:
            nonlocal sealed
            if not is_gone():
                if not sealed and not only_sealed:
                    self._controller.seal_stream(stream)
                sealed = False  # should it be refused, it is sealed again
                self._controller.delete_stream(stream, is_gone)

        _insist(attempt, *(() if only_sealed else (StreamNotSealed,)))

    def _check_first(self, stream: StreamName, first: Epoch | None) -> None:
        """Raise `StreamChanged` if the stream was made again since its first epoch was seen."""
        if first is not None and (now := self._controller.epochs(stream, [0])) != [first]:
            if not now:
                raise self._controller.missing(stream)
            raise StreamChanged("the stream was deleted and recreated", where=f"{self.uri}/{stream}")

    def delete_scope(self, scope: str) -> None:
        """Delete an empty scope."""
        _insist(lambda: self._controller.delete_scope(scope))

    def transactions(self) -> PravegaTransactions:
        """Pravega's transactions; usable as long as the store is open."""
        return PravegaTransactions(self._controller, self._stores)

    def reader_groups(self) -> PravegaReaderGroups:
        """Pravega's reader groups; usable as long as the store is open."""
        return PravegaReaderGroups(self._controller, self._stores)

    def close(self) -> None:
        """Close all connections."""
        self._stores.close()
        self._controller.close()


def _insist(change: Callable[[], None], *again: type[Exception]) -> None:
    """Make a change, and retry while the controller answers FAILURE: usually another change is in progress.

    Errors of the kinds ``again`` are retried, too.
    """
    attempts(
        lambda error: isinstance(error, (RequestFailed, *again)), stop_after_delay(CHANGE_SECONDS), first=0.1, longest=2
    )(change)


def _last_epoch(epochs: Epochs, current: Mapping[SegmentId, KeyRange]) -> int | None:
    """The index of the epoch that is open, or the last one of a sealed stream; None if the answers disagree."""
    if not current:
        return len(epochs) - 1
    return next((epoch.number for epoch in reversed(epochs) if epoch.segments == current), None)


def _made_by(epoch: Epoch, before: Epoch, seal: Sequence[SegmentId], ranges: Sequence[KeyRange]) -> bool:
    """Return whether an epoch is the result of this scale."""
    new = sorted(held for segment, held in epoch.segments.items() if segment not in before.segments)
    kept = {segment for segment in before.segments if segment not in seal}
    return epoch.number == before.number + 1 and new == sorted(ranges) and kept <= set(epoch.segments)
