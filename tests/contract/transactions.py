"""The contract of transactions as tests, which are part of the contract of stream stores."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from streamvault.streamstore.errors import (
    NoSuchSegment,
    OffsetConflict,
    RequestFailed,
    SegmentSealed,
    StreamSealed,
    TransactionEnded,
)
from streamvault.streamstore.framing import frame
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.store import SegmentAppender, StreamStore, Transaction, TransactionState, Written
from testkit.streams import events_of

FIRST, SECOND = SegmentId(0, 0), SegmentId(0, 1)
LEASE = 30.0


def write(store: StreamStore, transaction: Transaction, events: dict[SegmentId, list[bytes]]) -> Written:
    lengths = {}
    for segment, payloads in events.items():
        with store.transactions().appender(transaction, segment) as appender:
            for payload in payloads:
                appender.append(frame(payload))
            lengths[segment] = appender.flush()
    return Written(transaction, lengths)


def append_one(appender: SegmentAppender, payload: bytes) -> None:
    appender.append(frame(payload))
    appender.flush()


def payloads(store: StreamStore, stream: StreamName) -> list[tuple[SegmentId, bytes]]:
    return [(pointer.segment, payload) for pointer, payload in events_of(store, stream)]


def abort(store: StreamStore, transaction: Transaction) -> None:
    """Abort it, and wait until it has ended."""
    store.transactions().abort(transaction)
    while store.transactions().state(transaction) is TransactionState.ABORTING:
        time.sleep(0.02)


class TransactionsContract:
    """The behaviour of every store's transactions."""

    @pytest.fixture
    def pair(self, store: StreamStore, stream: StreamName) -> StreamName:
        """A stream of two segments."""
        store.create_stream(stream, StreamConfiguration(scaling=Scaling(min_segments=2)))
        return stream

    def test_sealed_stream_takes_none(self, store: StreamStore, pair: StreamName) -> None:
        store.seal(pair)
        with pytest.raises(StreamSealed, match="the stream is sealed and cannot be changed"):
            store.transactions().begin(pair, LEASE)

    def test_events_appear_with_the_commit(
        self, store: StreamStore, stores: Callable[[], StreamStore], pair: StreamName
    ) -> None:
        transactions = store.transactions()
        transaction = transactions.begin(pair, LEASE)
        assert list(transaction.segments) == [FIRST, SECOND]
        with store.appender(pair, FIRST) as appender:
            append_one(appender, b"before")
        write(store, transaction, {FIRST: [b"a", b"b" * 500_000], SECOND: [b"c"]})
        elsewhere = stores()
        assert transactions.state(transaction) is elsewhere.transactions().state(transaction) is TransactionState.OPEN
        transactions.ping(transaction, LEASE)
        assert payloads(elsewhere, pair) == [(FIRST, b"before")]
        for _ in range(2):
            assert transactions.commit(transaction) is TransactionState.COMMITTED
        assert payloads(elsewhere, pair) == [(FIRST, b"before"), (FIRST, b"a"), (FIRST, b"b" * 500_000), (SECOND, b"c")]
        transactions.abort(transaction)
        assert elsewhere.transactions().state(transaction) is TransactionState.COMMITTED
        with pytest.raises(TransactionEnded, match="committed"):
            transactions.ping(transaction, LEASE)
        with pytest.raises((NoSuchSegment, SegmentSealed)):
            write(store, transaction, {FIRST: [b"late"]})
        assert len(payloads(store, pair)) == 4

    def test_another_process_continues_a_part(
        self, store: StreamStore, stores: Callable[[], StreamStore], pair: StreamName
    ) -> None:
        transaction = store.transactions().begin(pair, LEASE)
        write(store, transaction, {FIRST: [b"one"]})
        elsewhere = stores().transactions()
        with elsewhere.appender(transaction, FIRST) as appender:
            assert appender.offset == 11
            append_one(appender, b"two")
        assert elsewhere.lengths(transaction) == {FIRST: 22, SECOND: 0}
        for end in (22, 11, 5):
            held = b"".join(map(bytes, elsewhere.read(transaction, FIRST, end)))
            assert held == (frame(b"one") + frame(b"two"))[:end]
        assert elsewhere.commit(transaction) is TransactionState.COMMITTED
        assert payloads(store, pair) == [(FIRST, b"one"), (FIRST, b"two")]

    def test_open_appender_conflicts_with_a_commit_and_loses_nothing(
        self, store: StreamStore, stores: Callable[[], StreamStore], pair: StreamName
    ) -> None:
        transaction = store.transactions().begin(pair, LEASE)
        write(store, transaction, {FIRST: [b"of the transaction"]})
        with store.appender(pair, SECOND) as other:
            appender = store.appender(pair, FIRST)
            append_one(appender, b"before")
            assert stores().transactions().commit(transaction) is TransactionState.COMMITTED
            with pytest.raises(OffsetConflict) as caught:
                append_one(appender, b"after")
            assert (appender.acknowledged, caught.value.write_offset) == (14, 14 + 26)
            appender.close()
            append_one(other, b"untouched")
        with store.appender(pair, FIRST) as appender:
            append_one(appender, b"after")
        assert payloads(store, pair) == [
            (FIRST, b"before"),
            (FIRST, b"of the transaction"),
            (FIRST, b"after"),
            (SECOND, b"untouched"),
        ]

    def test_joined_transactions_commit_as_one_in_order(self, store: StreamStore, pair: StreamName) -> None:
        transactions = store.transactions()
        parts = []
        for number in range(5):
            events = {FIRST: [b"%d" % number]} | ({SECOND: [b"x%d" % number] * 3} if number % 2 else {})
            parts.append(write(store, transactions.begin(pair, LEASE), events))
        order = [parts[3], parts[0], parts[4], parts[1], parts[2]]
        joined = transactions.join(order)
        assert payloads(store, pair) == []
        assert transactions.commit(joined) is TransactionState.COMMITTED
        for part in order[1:]:
            transactions.abort(part.transaction)
            assert transactions.state(part.transaction) in {TransactionState.ABORTING, TransactionState.ABORTED}
        found = payloads(store, pair)
        assert [payload for segment, payload in found if segment == FIRST] == [b"3", b"0", b"4", b"1", b"2"]
        assert [payload for segment, payload in found if segment == SECOND] == [b"x3"] * 3 + [b"x1"] * 3

    @pytest.mark.parametrize("gone", [0, 1, 2])
    def test_join_refuses_an_aborted_transaction(self, store: StreamStore, pair: StreamName, gone: int) -> None:
        transactions = store.transactions()
        parts = [write(store, transactions.begin(pair, LEASE), {FIRST: [b"%d" % number]}) for number in range(3)]
        abort(store, parts[gone].transaction)
        with pytest.raises(RequestFailed, match="does not hold the data written"):
            transactions.join(parts)
        assert payloads(store, pair) == []
        assert transactions.commit(parts[gone].transaction) is TransactionState.ABORTED

    def test_scale_between_transactions_fails_the_join(self, store: StreamStore, pair: StreamName) -> None:
        transactions = store.transactions()
        early = write(store, transactions.begin(pair, LEASE), {FIRST: [b"early"]})
        store.scale(pair, [FIRST], [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)])
        begun = transactions.begin(pair, LEASE)
        # a transaction's parts are named after the epoch in which it began
        assert sorted(begun.segments) == [SegmentId(1, 1), SegmentId(1, 2), SegmentId(1, 3)]
        late = write(store, begun, {SegmentId(1, 1): [b"late"]})
        with pytest.raises(RequestFailed, match="scaled during the write"):
            transactions.join([early, late])
        assert transactions.commit(early.transaction) is TransactionState.COMMITTED
        assert transactions.commit(late.transaction) is TransactionState.COMMITTED
        assert sorted(payload for _, payload in payloads(store, pair)) == [b"early", b"late"]

    def test_commit_after_a_scale_rolls_the_stream(self, store: StreamStore, pair: StreamName) -> None:
        transactions = store.transactions()
        with store.appender(pair, FIRST) as appender:
            append_one(appender, b"before")
        begun = transactions.begin(pair, LEASE)
        part = write(store, begun, {FIRST: [b"one", b"two"]})
        halves = {SegmentId(1, 2): KeyRange(0.0, 0.25), SegmentId(1, 3): KeyRange(0.25, 0.5)}
        assert store.scale(pair, [FIRST], list(halves.values())).segments == {**halves, SECOND: KeyRange(0.5, 1.0)}
        left, right = halves
        with store.appender(pair, left) as appender:
            append_one(appender, b"between")
        assert transactions.commit(part.transaction) is TransactionState.COMMITTED
        described = store.describe(pair)
        assert [dict(epoch.segments) for epoch in described.epochs[2:]] == [
            {SegmentId(2, 0): KeyRange(0.0, 0.5), SegmentId(2, 1): KeyRange(0.5, 1.0)},
            {
                SegmentId(3, 2): KeyRange(0.0, 0.25),
                SegmentId(3, 3): KeyRange(0.25, 0.5),
                SegmentId(3, 1): KeyRange(0.5, 1.0),
            },
        ]
        assert described.tail.offsets == dict.fromkeys(described.epochs[3].segments, 0)
        infos = store.segment_info(pair, [left, right, SegmentId(2, 0), SegmentId(2, 1)])
        assert [(info.write_offset, info.sealed) for info in infos] == [(15, True), (0, True), (22, True), (0, True)]
        with store.appender(pair, SegmentId(3, 2)) as appender:
            append_one(appender, b"after")
        assert payloads(store, pair) == [
            (FIRST, b"before"),
            (left, b"between"),
            (SegmentId(2, 0), b"one"),
            (SegmentId(2, 0), b"two"),
            (SegmentId(3, 2), b"after"),
        ]
        # an epoch that repeats another is as good as that one, after which the parts are named; and numbers go on
        begun = transactions.begin(pair, LEASE)
        assert begun.segments == {
            SegmentId(1, segment.number): held for segment, held in described.epochs[3].segments.items()
        }
        assert transactions.commit(write(store, begun, {left: [b"last"]}).transaction).is_committed
        assert payloads(store, pair)[-1] == (SegmentId(3, 2), b"last")
        assert len(store.describe(pair).epochs) == 4
        assert max(store.scale(pair, [SegmentId(3, 1)], [KeyRange(0.5, 1.0)]).segments) == SegmentId(4, 4)

    def test_transaction_of_a_repeated_epoch_does_not_roll(self, store: StreamStore, pair: StreamName) -> None:
        transactions = store.transactions()
        early = transactions.begin(pair, LEASE)
        store.scale(pair, [FIRST], [KeyRange(0.0, 0.5)])
        later = write(store, transactions.begin(pair, LEASE), {SegmentId(1, 2): [b"later"]})
        assert transactions.commit(early).is_committed
        assert len(store.describe(pair).epochs) == 4
        assert transactions.commit(later.transaction).is_committed
        assert len(store.describe(pair).epochs) == 4
        assert payloads(store, pair) == [(SegmentId(3, 2), b"later")]

    def test_seal_aborts_what_is_open(self, store: StreamStore, pair: StreamName) -> None:
        transactions = store.transactions()
        written = write(store, transactions.begin(pair, LEASE), {FIRST: [b"never"]})
        store.seal(pair)
        assert transactions.commit(written.transaction) is TransactionState.ABORTED
        assert payloads(store, pair) == []

    def test_missing_transaction_is_unknown(self, store: StreamStore, pair: StreamName) -> None:
        transactions = store.transactions()
        one = transactions.begin(pair, LEASE)
        never = replace(one, id=type(one.id)(int=one.id.int + 1000))
        assert transactions.state(never) is TransactionState.UNKNOWN
        assert not transactions.commit(never).is_committed
        with pytest.raises(RequestFailed, match="lease"):
            transactions.begin(pair, 86_400)

    def test_recreated_stream_takes_no_old_transaction(self, store: StreamStore, pair: StreamName) -> None:
        transactions = store.transactions()
        old = write(store, transactions.begin(pair, LEASE), {FIRST: [b"old"]}).transaction
        store.delete(pair)
        store.create_stream(pair, StreamConfiguration(scaling=Scaling(min_segments=2)))
        assert not transactions.commit(old).is_committed
        with pytest.raises((NoSuchSegment, SegmentSealed)):
            write(store, old, {FIRST: [b"late"]})
        assert payloads(store, pair) == []
