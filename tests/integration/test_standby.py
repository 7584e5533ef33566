"""Replicas between two real Pravegas: a standby that is killed, a cut-over, a dead source, a move."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest

from streamvault import copy_stream, move_stream, promote_replica, replicate_stream
from streamvault.common.errors import Problem
from streamvault.replication.replica import seal_source
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream, SegmentTruncated
from streamvault.streamstore.model import (
    KeyRange,
    Scaling,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.own import MOST_TAGS, is_own
from streamvault.streamstore.store import StreamStore, Transaction, TransactionState
from streamvault.streamstore.uri import OpenStream, parse_stream
from testkit.commands import run, started, wait_until
from testkit.scenes import at_block
from testkit.servers.pravega import PravegaServer
from testkit.streams import append_events, digest_of, events_of, frame, live_segments, make_stream, shape_of
from tests.integration.conftest import Site
from tests.integration.keyed_writer import KeyedWriter, numbers_by_key

pytestmark = [pytest.mark.pravega, pytest.mark.timeout(600)]


KILLS = 2


def size_of(store: StreamStore, name: StreamName) -> int:
    """Return how many bytes a stream holds; 0 if there is none."""
    with suppress(NoSuchScope, NoSuchStream, NoSuchSegment):
        return sum(end - start for _, start, end in live_segments(store.describe(name), store))
    return 0


def refresh(store: StreamStore, name: StreamName, parts: int) -> None:
    """Scale: seal all open segments, and open some of equal width."""
    opened = list(store.describe(name).epochs[-1].segments)
    bounds = [number / parts for number in range(parts + 1)]
    store.scale(name, opened, [KeyRange(low, high) for low, high in pairwise(bounds)])


def test_writer_moves_to_a_standby_whose_replication_was_killed(
    here: Site,
    there: Site,
    scope_name: str,
) -> None:
    name = StreamName(scope_name, "orders")
    here.store.create_scope(scope_name)
    here.store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=2)))
    source, target = here.uri(name), there.uri(name)
    command = ("replicate", source, target, "--follow", "--master", "inline", "--json")
    rng = random.Random()

    def more_is_replicated() -> Callable[[], bool]:
        before = size_of(there.store, name)
        return lambda: size_of(there.store, name) > before

    with KeyedWriter(here.store, name) as writer:
        for kill in range(KILLS):
            with started(*command, environment=dict(os.environ)) as running:
                assert wait_until(more_is_replicated(), running), running.ended()
                time.sleep(rng.random())
                refresh(here.store, name, 2 + kill % 2)
                time.sleep(rng.random())
                assert running.running, running.ended()
                running.send(signal.SIGKILL)
                running.ended()
            assert writer.error is None
        with started(*command, environment=dict(os.environ)) as running:
            assert wait_until(more_is_replicated(), running), running.ended()
            report = run("promote", target, "--seal-source", "--json", environment=dict(os.environ)).report
            followed = running.ended().report
        assert writer.ended_by_seal(), writer.error
    assert (report["source_sealed"], report["sealed"], followed["ended"]) == (True, False, "sealed")
    assert digest_of(here.store, name)[0] == digest_of(there.store, name)[0]
    writer.move_to(there.store, name)
    writer.write(200)
    found = numbers_by_key(there.store, name)
    assert found == {key: list(range(count)) for key, count in writer.written.items() if count}
    assert list(there.store.list_streams(scope_name, own=True)) == [name]


def test_replica_of_a_dead_source_is_a_beginning_of_every_key(
    here: Site,
    there: Site,
    scope_name: str,
) -> None:
    """The replication is killed, the source is never asked again."""
    name = StreamName(scope_name, "orders")
    here.store.create_scope(scope_name)
    here.store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=3)))
    source, target = here.uri(name), there.uri(name)
    command = ("replicate", source, target, "--follow", "--master", "inline", "--json")
    with KeyedWriter(here.store, name, rate=2000) as writer:
        while not any(writer.written.values()):
            time.sleep(0.05)
        replicate_stream(source, target, master="inline")
        before = size_of(there.store, name)
        with started(*command, environment=dict(os.environ)) as running:
            assert wait_until(lambda: size_of(there.store, name) > before, running), running.ended()
            time.sleep(random.random())
            running.send(signal.SIGKILL)
            running.ended()
        written = dict(writer.written)
    report = promote_replica(target, master="inline")
    assert report.tail_time
    found = numbers_by_key(there.store, name)
    assert found
    for key, numbers in found.items():
        assert numbers == list(range(len(numbers))), key
        assert len(numbers) <= written[key]
    writer.move_to(there.store, name)
    writer.written = {key: len(found.get(key, ())) for key in written}
    writer.write(100)
    assert numbers_by_key(there.store, name) == {
        key: list(range(count)) for key, count in writer.written.items() if count
    }


@pytest.mark.parametrize(
    "keep_head", [False, pytest.param(True, marks=pytest.mark.long)], ids=["moves-head", "keeps-head"]
)
def test_replica_of_a_stream_that_is_truncated_meanwhile(
    here: Site,
    there: Site,
    scope_name: str,
    *,
    keep_head: bool,
) -> None:
    """Up to its tail, as retention does in the worst case; a replica that keeps its head has to be there first."""
    name = StreamName(scope_name, "orders")
    here.store.create_scope(scope_name)
    here.store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=2)))
    source, target = here.uri(name), there.uri(name)
    command = ["replicate", source, target, "--follow", "--master", "inline", "--json"]
    command += ["--keep-head"] if keep_head else []

    def replicated(cut: StreamCut) -> bool:
        with suppress(NoSuchScope, NoSuchStream, NoSuchSegment):
            infos = there.store.segment_info(name, list(cut.offsets))
            return all(info.write_offset >= cut.offsets[info.segment] for info in infos)
        return False

    with KeyedWriter(here.store, name) as writer, started(*command, environment=dict(os.environ)) as running:
        for parts in (3, 2):
            tail = here.store.describe(name).tail
            assert wait_until(lambda cut=tail: replicated(cut), running), running.ended()  # type: ignore[misc]
            refresh(here.store, name, parts)
            written = dict(writer.written)
            assert wait_until(lambda before=written: before != writer.written, running)  # type: ignore[misc]
            tail = here.store.describe(name).tail
            if keep_head:
                assert wait_until(lambda cut=tail: replicated(cut), running), running.ended()  # type: ignore[misc]
            here.store.truncate(tail)
        report = run("promote", target, "--seal-source", "--json", environment=dict(os.environ)).report
        assert running.ended().report["ended"] == "sealed"
    assert writer.error is None
    assert report["renumbered"] == {}
    ours, theirs = here.store.describe(name), there.store.describe(name)
    assert ours.head == tail
    found = numbers_by_key(there.store, name)
    if keep_head:
        assert theirs.head == StreamCut(name, dict.fromkeys(theirs.epochs[0].segments, 0))
        assert found == {key: list(range(count)) for key, count in writer.written.items() if count}
    else:
        assert theirs.head == ours.head
        assert digest_of(there.store, name) == digest_of(here.store, name)
    for key, numbers in numbers_by_key(here.store, name).items():
        assert found[key][-len(numbers) :] == numbers == list(range(numbers[0], writer.written[key]))


def test_source_whose_cluster_is_rebuilt_while_it_is_copied(
    here: Site, scope_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream is made again with the same segments; each repetition finds that it is another one."""
    name = StreamName(scope_name, "orders")

    def make(*events: bytes) -> None:
        with parse_stream(f"{cluster.uri}/{name}")[0].open() as store:
            store.create_stream_and_scope(name, StreamConfiguration(Scaling(min_segments=1)))
            for event in events:
                for segment in store.describe(name).tail.offsets:
                    append_events(store, name, segment, [event] * 20)
                if event != events[-1]:
                    store.scale(name, [segment], [KeyRange(0, 0.5), KeyRange(0.5, 1)])

    def rebuild() -> None:
        cluster.restart()
        make(b"new", b"newer")

    with PravegaServer() as cluster:
        make(b"old", b"older")
        at_block(monkeypatch, 2, rebuild)
        for _ in range(3):
            with pytest.raises(Problem) as caught:
                copy_stream(f"{cluster.uri}/{name}", here.uri(name), master="inline")
        assert (caught.value.exit_code, "deleted and created again" in caught.value.what) == (4, True)
        assert is_own(here.store.describe(name).configuration)
        payloads = {payload for _, payload in events_of(here.store, name)}
        assert b"old" in payloads


def test_stream_moves_to_another_cluster(
    here: Site,
    there: Site,
    scope_name: str,
) -> None:
    name = StreamName(scope_name, "orders")
    make_stream(here.store, name, events=400)
    append_events(here.store, name, max(here.store.describe(name).tail.offsets), [b"", b"x" * 8 * 1024 * 1024])
    source, target = here.uri(name), there.uri(name)
    shape, digest = shape_of(here.store, name), digest_of(here.store, name)
    report = move_stream(source, target, master="inline")
    moved = shape_of(there.store, name)
    assert moved.pop("configuration") == replace(
        shape.pop("configuration"),  # type: ignore[type-var]
        scaling=Scaling(min_segments=3),
        tags=tuple(sorted(("made-for-a-test", f"streamvault-replica-of:{source}", "ünï"))),
    )
    assert (moved, digest_of(there.store, name)) == (shape, digest)
    assert report.renumbered == {}
    tombstone = here.store.describe(name)
    assert (tombstone.sealed, set(tombstone.tail.offsets.values())) == (True, {0})
    assert f"streamvault-moved-to:{target}" in tombstone.configuration.tags
    assert list(here.store.list_streams(scope_name)) == []
    assert move_stream(source, target, master="inline").unchanged


# --- the same copy, replication, promotion or move started twice at once, between two real Pravegas


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        pytest.param("copy", (), marks=pytest.mark.long),
        pytest.param("replicate", (), marks=pytest.mark.long),
        ("promote", ("--seal-source",)),
        pytest.param("move", (), marks=pytest.mark.long),
    ],
    ids=["copy", "replicate", "cut over", "move"],
)
def test_one_of_two_succeeds_and_the_other_exits_with_4_or_does_nothing(
    here: Site,
    there: Site,
    scope_name: str,
    verb: str,
    options: tuple[str, ...],
) -> None:
    name = StreamName(scope_name, "orders")
    make_stream(here.store, name, events=400)
    before, shape = digest_of(here.store, name), shape_of(here.store, name)
    source, target = here.uri(name), there.uri(name)
    if verb == "promote":
        replicate_stream(source, target, master="inline")
    uris = (target,) if verb == "promote" else (source, target)
    command = (verb, *uris, *options, "--master", "inline", "--json")
    environment = dict(os.environ)
    with started(*command, environment=environment) as one, started(*command, environment=environment) as other:
        ended = [one.ended(), other.ended()]
    assert sorted(each.code for each in ended) in ([0, 0], [0, 4]), ended
    again = run(*command, environment=environment)
    assert again.code == 0, again
    if verb != "replicate":
        assert again.report["unchanged"]
    assert digest_of(there.store, name) == before
    assert shape_of(there.store, name)["head"] == shape["head"]
    if verb == "move":
        assert not any(here.store.describe(name).tail.offsets.values())
    else:
        assert digest_of(here.store, name) == before
    assert list(there.store.list_streams(scope_name, own=True)) == [name] or verb == "replicate"


# --- cut-overs on a real Pravega: beside a replication that sleeps, and with transactions that are open


def begin(store: StreamStore, name: StreamName, payload: bytes) -> Transaction:
    """Begin a transaction with an event in each segment."""
    transaction = store.transactions().begin(name, 600)
    for segment in transaction.segments:
        with store.transactions().appender(transaction, segment) as appender:
            appender.append(frame(payload))
            appender.flush()
    return transaction


@pytest.mark.parametrize("verb", ["move", pytest.param("promote", marks=pytest.mark.long)])
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
