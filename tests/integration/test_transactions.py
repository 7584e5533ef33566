"""Transactions of a real Pravega: atomic, joined without moving bytes, and across a scale."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from streamvault.streamstore.arithmetic.routing import SegmentRouter, key_position
from streamvault.streamstore.errors import RequestFailed, TransactionEnded, TransactionsNotOffered
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.transactions import Transaction, TransactionState, Written
from tests.servers.pravega import PravegaServer
from tests.streams import events_of, frame

pytestmark = pytest.mark.pravega
FIRST, SECOND = SegmentId(0, 0), SegmentId(0, 1)


@pytest.fixture
def stream(store: StreamStore, scope_name: str) -> StreamName:
    name = StreamName(scope_name, "stream")
    store.create_scope(scope_name)
    store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=2)))
    return name


def write(store: StreamStore, transaction: Transaction, events: dict[SegmentId, list[bytes]]) -> Written:
    lengths = {}
    for segment, payloads in events.items():
        with store.transactions().appender(transaction, segment) as appender:
            for payload in payloads:
                appender.append(frame(payload))
            lengths[segment] = appender.flush()
    return Written(transaction, lengths)


def payloads(store: StreamStore, stream: StreamName) -> list[tuple[SegmentId, bytes]]:
    return [(pointer.segment, payload) for pointer, payload in events_of(store, stream)]


def test_events_appear_with_the_commit(store: StreamStore, stream: StreamName) -> None:
    transactions = store.transactions()
    transaction = transactions.begin(stream, 30)
    assert list(transaction.segments) == [FIRST, SECOND]
    write(store, transaction, {FIRST: [b"a", b"b" * 5_000_00], SECOND: [b"c"]})
    assert transactions.state(transaction) is TransactionState.OPEN
    transactions.ping(transaction, 30)
    assert payloads(store, stream) == []
    for _ in range(2):
        assert transactions.commit(transaction) is TransactionState.COMMITTED
    assert payloads(store, stream) == [(FIRST, b"a"), (FIRST, b"b" * 5_000_00), (SECOND, b"c")]
    transactions.abort(transaction)
    assert transactions.state(transaction) is TransactionState.COMMITTED
    with pytest.raises(TransactionEnded, match="committed"):
        transactions.ping(transaction, 30)


def test_joined_transactions_commit_as_one_in_order(store: StreamStore, stream: StreamName) -> None:
    transactions = store.transactions()
    parts = []
    for number in range(5):
        events = {FIRST: [b"%d" % number]} | ({SECOND: [b"x%d" % number] * 3} if number % 2 else {})
        parts.append(write(store, transactions.begin(stream, 30), events))
    order = [parts[3], parts[0], parts[4], parts[1], parts[2]]
    joined = transactions.join(order)
    assert payloads(store, stream) == []
    assert transactions.commit(joined) is TransactionState.COMMITTED
    for part in order[1:]:
        transactions.abort(part.transaction)
        assert transactions.state(part.transaction) in {TransactionState.ABORTING, TransactionState.ABORTED}
    first = [payload for segment, payload in payloads(store, stream) if segment == FIRST]
    assert first == [b"3", b"0", b"4", b"1", b"2"]
    assert [payload for segment, payload in payloads(store, stream) if segment == SECOND] == [b"x3"] * 3 + [b"x1"] * 3


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_join_refuses_an_aborted_transaction(store: StreamStore, stream: StreamName, gone: int) -> None:
    transactions = store.transactions()
    parts = [write(store, transactions.begin(stream, 30), {FIRST: [b"%d" % number]}) for number in range(3)]
    transactions.abort(parts[gone].transaction)
    while transactions.state(parts[gone].transaction) is not TransactionState.ABORTED:
        time.sleep(0.02)
    with pytest.raises(RequestFailed, match="does not hold the data written"):
        transactions.join(parts)
    assert payloads(store, stream) == []
    assert transactions.commit(parts[gone].transaction) is TransactionState.ABORTED


def test_scale_between_transactions_fails_the_join(store: StreamStore, stream: StreamName) -> None:
    transactions = store.transactions()
    early = write(store, transactions.begin(stream, 30), {FIRST: [b"early"]})
    low, high = store.describe(stream).epochs[0].segments[FIRST].low, 0.5
    store.scale(stream, [FIRST], [KeyRange(low, 0.25), KeyRange(0.25, high)])
    begun = transactions.begin(stream, 30)
    # a transaction's parts are named after the epoch in which it began
    assert sorted(begun.segments) == [SegmentId(1, 1), SegmentId(1, 2), SegmentId(1, 3)]
    late = write(store, begun, {SegmentId(1, 1): [b"late"]})
    with pytest.raises(RequestFailed, match="scaled during the write"):
        transactions.join([early, late])
    assert transactions.commit(early.transaction) is TransactionState.COMMITTED
    assert transactions.commit(late.transaction) is TransactionState.COMMITTED
    assert sorted(payload for _, payload in payloads(store, stream)) == [b"early", b"late"]


def test_missing_transaction_is_unknown(store: StreamStore, stream: StreamName) -> None:
    transactions = store.transactions()
    one = transactions.begin(stream, 30)
    never = replace(one, id=type(one.id)(int=one.id.int + 1000))
    assert transactions.state(never) is TransactionState.UNKNOWN
    assert not transactions.commit(never).is_committed
    with pytest.raises(RequestFailed, match="lease"):
        transactions.begin(stream, 86_400)


def test_routing_keys_map_to_the_java_clients_segments(
    pravega: PravegaServer, store: StreamStore, scope_name: str
) -> None:
    client = pytest.importorskip("pravega_client")
    name = StreamName(scope_name, "routed")
    store.create_scope(scope_name)
    store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=7)))
    # for Latin-1 letters beyond ASCII this client disagrees with the Java client; we follow the latter
    keys = [*(f"key-{number}" for number in range(300)), "日本語 𝄞", "x" * 300]
    manager = client.StreamManager(pravega.uri.replace("pravega://", "tcp://"))
    writer = manager.create_writer(name.scope, name.stream, 1000)
    for key in keys:
        writer.write_event_bytes(key.encode(), routing_key=key)
    writer.flush()
    router = SegmentRouter(store.describe(name).epochs[0].segments)
    found = payloads(store, name)
    assert len(found) == len(keys)
    for segment, payload in found:
        assert router.segments[router.index_of(payload.decode())] == segment


def test_key_positions_are_those_of_the_java_client() -> None:
    wanted = {
        "": 0.24117842791623523,
        "a": 0.9433912753816884,
        "key-1": 0.3829162539760538,
        "ünïcode": 0.8253822772918742,
        "日本語 𝄞": 0.3720707935326142,
        "0123456789abcdef0123456789abcdef0": 0.862759358114443,
    }
    assert all(math.isclose(key_position(key), value, rel_tol=0, abs_tol=1e-15) for key, value in wanted.items())


def test_embedded_store_has_no_transactions() -> None:
    with pytest.raises(TransactionsNotOffered, match="does not support transactions"):
        LocalStore("/nowhere").transactions()
