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

from streamvault import move_stream, promote_replica, replicate_stream
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream
from streamvault.streamstore.model import KeyRange, Scaling, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.store import StreamStore
from testkit.commands import run, started, wait_until
from testkit.servers.java_client import JavaClient
from testkit.streams import append_events, digest_of, events_of, live_segments, make_stream, shape_of
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


@pytest.mark.parametrize("keep_head", [False, True], ids=["moves-head", "keeps-head"])
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


def test_renamed_stream_is_the_same_for_the_java_client(here: Site, scope_name: str, java_client: JavaClient) -> None:
    name, other = StreamName(scope_name, "old"), StreamName(scope_name, "new")
    make_stream(here.store, name, events=100)
    count = len(list(events_of(here.store, name)))
    before = java_client.digest(here.server, name, count)
    move_stream(here.uri(name), here.uri(other), master="inline", no_tombstone=True)
    assert java_client.digest(here.server, other, count) == before
    assert list(here.store.list_streams(scope_name, own=True)) == [other]


def test_round_with_nothing_new_takes_little(here: Site, scope_name: str) -> None:
    """No timing is tested: an idle follower starts no task and appends nothing."""
    name = StreamName(scope_name, "idle")
    make_stream(here.store, name, events=50)
    target = f"{here.server.uri}/{scope_name}/standby"
    report = replicate_stream(here.uri(name), target, follow=True, every=0.05, idle=2.0, master="inline")
    assert (report.ended, report.rounds) == ("idle", 1)
