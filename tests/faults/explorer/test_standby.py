"""Promotions beside replications that wake, and replicas and sources that are made again: nothing wrong is promoted."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import streamvault.replication.replica
from streamvault import promote_replica, replicate_stream
from streamvault.common.errors import Failed
from streamvault.importer.run import ImportRun
from streamvault.replication.replica import Record, Replica, ReplicaPromoted
from streamvault.replication.replication import ReplicaTarget
from streamvault.streamstore.errors import ScaleRefused
from streamvault.streamstore.own import is_own
from testkit.explorer.commands import TARGET, TARGET_NAME
from testkit.explorer.explore import Outcome
from testkit.explorer.scenes import CLUSTER, NAME, Scene, add, open_source, scale, scene_of
from testkit.explorer.standby import DELETED, REBUILT, THREE_STOPS, stopped_and_killed, stopped_once, three_stops
from testkit.explorer.world import Actor, World, in_memory

LATE_SCALE, LATE_FILLER, _ = THREE_STOPS


def wrong(outcomes: Iterator[Outcome]) -> list[str]:
    return [f"{one.schedule}: {one.wrong[0]}" for one in outcomes if one.wrong]


def is_found(outcomes: Iterator[Outcome], kind: str) -> bool:
    return any(kind in one.kinds for one in outcomes if one.wrong)


@pytest.mark.parametrize("family", THREE_STOPS)
@pytest.mark.timeout(600)
def test_promotion_beside_a_replication_that_wakes(family: tuple[str, tuple[str, ...]]) -> None:
    assert not wrong(three_stops(*family))


def test_two_promotions() -> None:
    """One that was paused before its fence must not replace the segments that users write to."""
    assert not wrong(three_stops("events/replica", ("write",), "promote", "promote"))


def test_replica_that_is_deleted_under_a_replication() -> None:
    assert not wrong(stopped_and_killed(*DELETED, away=2, later=12))


def test_source_that_is_made_again_under_a_replication() -> None:
    assert not wrong(stopped_once(*REBUILT))


def test_late_scale_that_stays_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fence: Any = Replica._fence

    def once(self: Any, lease: Any, record: Record, described: Any) -> Record:
        """Replace what is left of the segments that were open first, and no others."""
        with suppress(ScaleRefused):
            return fence(self, lease, record, described)  # type: ignore[no-any-return]
        current = self.stream.describe().epochs[-1].segments
        left = [segment for segment in current if str(segment) in self.newest.closing]
        self.stream.store.scale(self.stream.name, left, [current[segment] for segment in left])
        return self.newest

    monkeypatch.setattr(Replica, "_fence", once)
    assert is_found(three_stops(*LATE_SCALE), "HARMED")


def test_filler_that_is_not_looked_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamvault.replication.replica, "check_ends", lambda replica, _: replica.describe())
    assert is_found(three_stops(*LATE_FILLER), "WRONG")


def test_replica_that_is_taken_for_the_deleted_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    begin: Any = ReplicaTarget.begin

    def begin_ledger(self: Any, described: Any, first: str) -> None:
        if self._replica.record is None:
            begin(self, described, first)

    monkeypatch.setattr(ReplicaTarget, "begin", begin_ledger)
    monkeypatch.setattr(ReplicaTarget, "check_stays", lambda *_: None)
    monkeypatch.setattr(Record, "is_about", lambda *_: True)
    monkeypatch.setattr("streamvault.replication.replica._check_ends", lambda replica, _: replica.describe())
    assert is_found(stopped_and_killed(*DELETED, away=2, later=12), "WRONG")


def test_source_that_is_not_compared_as_a_whole_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImportRun, "check_unfinished", lambda *_: None)
    assert is_found(stopped_once(*REBUILT), "WRONG")


@pytest.fixture
def scene() -> Iterator[tuple[Scene, World]]:
    found = scene_of("events/replica")
    world = found.world.copy()
    world.limit = 1_000_000
    with in_memory(world):
        yield found, world


def stop_before(actor: Actor, is_there: Callable[[str, str], bool]) -> bool:
    """Let an actor go on until before the next such call; False if it makes none."""
    while not actor.ended:
        actor.go_on(actor.calls + 1)
        if not actor.ended and is_there(*actor.trace[-1]):
            return True
    return False


def end(actor: Actor, fault: str = "") -> None:
    while not actor.ended:
        actor.go_on(None, fault)
        fault = ""


def appends_to(name: str, after: int = 0) -> Callable[[str, str], bool]:
    """Whether a call is such an append, not before its segment has so many bytes."""
    return lambda call, what: call == "append" and name in what and int(what.rpartition(":")[2]) >= after


def test_piece_of_an_event_that_comes_after_the_check(scene: tuple[Scene, World]) -> None:
    """A promotion has checked the replica, and a paused replication appends a piece of a large event."""
    _, world = scene
    with open_source() as store:
        add(store, "later", 3)
        segment = min(store.describe(NAME).tail.offsets)
        with store.appender(NAME, segment) as appender:
            large = struct.pack(">q", 9 << 20) + b"L" * (9 << 20)
            for at in range(0, len(large), 4 << 20):
                appender.append(large[at : at + (4 << 20)])
        large_at = store.segment_info(NAME, [segment])[0].write_offset - len(large)
    replicating = Actor(0, lambda: replicate_stream(f"local://{CLUSTER}/{NAME}", TARGET, master="inline"))
    promoting = Actor(1, lambda: promote_replica(TARGET, master="inline"))
    assert stop_before(replicating, appends_to(segment.in_stream(TARGET_NAME), large_at))
    assert stop_before(promoting, lambda call, what: (call, what) == ("scale", str(TARGET_NAME)))
    replicating.go_on(replicating.calls + 1)
    end(promoting)
    end(replicating)
    assert isinstance(promoting.error, Failed)
    assert "ends inside an event" in str(promoting.error)
    assert isinstance(replicating.error, ReplicaPromoted)
    assert is_own(world.cluster(CLUSTER).find(TARGET_NAME).record.configuration)


@pytest.mark.parametrize("append", [1, 2, 3])
def test_replication_goes_on_after_a_lost_answer_of_its_ledger(scene: tuple[Scene, World], append: int) -> None:
    with open_source() as store:
        add(store, "later", 2)
    follow = Actor(
        0,
        lambda: replicate_stream(
            scene[0].stream, TARGET, master="inline", follow=True, every=1.0, lasting=60.0, retry_for=30.0
        ),
    )
    for _ in range(append):
        assert stop_before(follow, appends_to("streamvault-copy-"))
    end(follow, "+unavailable")
    assert follow.error is None


@pytest.mark.parametrize("when", ["first", "late scale"])
def test_replication_ends_once_its_replica_is_promoted(scene: tuple[Scene, World], when: str) -> None:
    with open_source() as store:
        scale(store)
        add(store, "later", 2)

    def follow() -> object:
        return replicate_stream(scene[0].stream, TARGET, master="inline", follow=True, lasting=9.0, retry_for=0)

    actor, again = Actor(0, follow), Actor(1, follow)
    call = ("append", "scale")[when == "late scale"]
    assert stop_before(actor, lambda made, what: made == call and str(TARGET_NAME) in what)
    promote_replica(TARGET, master="inline")
    for one in (actor, again):
        end(one)
        assert isinstance(one.error, ReplicaPromoted)
        assert one.error.exit_code == 6
