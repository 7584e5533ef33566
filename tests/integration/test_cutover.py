"""Cut-overs on a real Pravega: beside a replication that sleeps, and with transactions that are open."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from streamvault import move_stream, promote_replica, replicate_stream
from streamvault.replication.replica import seal_source
from streamvault.streamstore.errors import SegmentTruncated
from streamvault.streamstore.model import KeyRange, Scaling, StreamConfiguration, StreamDescription, StreamName
from streamvault.streamstore.own import MOST_TAGS
from streamvault.streamstore.store import StreamStore, Transaction, TransactionState
from streamvault.streamstore.uri import OpenStream
from testkit.commands import started, wait_until
from testkit.servers.pravega import PravegaServer
from testkit.streams import append_events, digest_of, events_of, frame, make_stream

pytestmark = [pytest.mark.pravega, pytest.mark.timeout(300)]


def begin(store: StreamStore, name: StreamName, payload: bytes) -> Transaction:
    """Begin a transaction with an event in each segment."""
    transaction = store.transactions().begin(name, 600)
    for segment in transaction.segments:
        with store.transactions().appender(transaction, segment) as appender:
            appender.append(frame(payload))
            appender.flush()
    return transaction


@pytest.mark.parametrize("verb", ["move", "promote"])
def test_transaction_that_was_begun_before_a_scale(
    pravega: PravegaServer, store: StreamStore, scope_name: str, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """One is committed right before the seal, so that no stream can get the numbers; one is still open then."""

    def seal(stream: OpenStream, described: StreamDescription) -> None:
        assert store.transactions().commit(committed) is TransactionState.COMMITTED
        seal_source(stream, described)

    name, other = StreamName(scope_name, "orders"), StreamName(scope_name, "moved")
    source, target = f"{pravega.uri}/{name}", f"{pravega.uri}/{other}"
    store.create_scope(scope_name)
    store.create_stream(name, StreamConfiguration(Scaling(min_segments=1)))
    append_events(store, name, min(store.describe(name).tail.offsets), [b"first"])
    committed, aborted = begin(store, name, b"committed"), begin(store, name, b"aborted")
    scaled = store.scale(name, list(store.describe(name).tail.offsets), [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)])
    for segment in scaled.segments:
        append_events(store, name, segment, [b"after the scale"])
    monkeypatch.setattr("streamvault.replication.promote.seal_source", seal)
    if verb == "move":
        report = move_stream(source, target, numbers="keep", master="inline", no_tombstone=True)
    else:
        replicate_stream(source, target, numbers="keep", master="inline")
        report = promote_replica(target, seal_source=True, master="inline")  # type: ignore[assignment]
    assert report.renumbered
    found = [payload for _, payload in events_of(store, other)]
    assert sorted(found) == sorted([b"first", b"committed", b"after the scale", b"after the scale"])
    assert store.transactions().state(aborted) not in {TransactionState.OPEN, TransactionState.COMMITTED}


def test_cut_over_beside_a_replication_that_sleeps(pravega: PravegaServer, store: StreamStore, scope_name: str) -> None:
    """With as many tags as are possible."""
    name, other = StreamName(scope_name, "orders"), StreamName(scope_name, "standby")
    source, target = f"{pravega.uri}/{name}", f"{pravega.uri}/{other}"
    make_stream(store, name, events=100)
    tags = tuple(f"tag-{number:03}" for number in range(MOST_TAGS - 1))
    configuration = store.describe(name).configuration
    store.update_stream(name, StreamConfiguration(configuration.scaling, configuration.retention, tags))
    command = ("replicate", source, target, "--follow", "--every", "5m", "--master", "inline")
    with started(*command, environment=dict(os.environ)) as running:

        def is_asleep() -> bool:  # there are a replica and its ledger, but no lease
            own = [one for one in store.list_streams(scope_name, own=True) if one != name]
            with suppress(SegmentTruncated):  # the replica is just being made
                return len(own) == 2 and other in own and digest_of(store, other) == digest_of(store, name)
            return False

        assert wait_until(is_asleep, running), running.ended()
        append_events(store, name, max(store.describe(name).tail.offsets), [b"while it sleeps"])
        report = promote_replica(target, seal_source=True, master="inline")
        assert running.running
    assert report.moved_bytes == len(frame(b"while it sleeps"))
    assert digest_of(store, other) == digest_of(store, name)
    assert len(store.describe(other).configuration.tags) == MOST_TAGS
    # the note beside the source says who sealed it, for as long as the source exists
    left = [one.stream for one in store.list_streams(scope_name, own=True) if one not in {name, other}]
    assert [one.rpartition("-")[0] for one in left] == ["streamvault-seal"]
