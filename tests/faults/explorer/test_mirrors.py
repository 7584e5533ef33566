"""Copies, replicas, promotions and moves under the explorer: it finds planted bugs, and none in the product."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from streamvault import promote_replica, replicate_stream
from streamvault.common.errors import Damaged, Failed, Problem
from streamvault.importer import target
from streamvault.importer.run import ImportRun
from streamvault.manager.sweep import Leftovers
from streamvault.replication import promote, replica
from streamvault.replication.move import _Move
from streamvault.replication.replica import Record, Replica, ReplicaPromoted
from streamvault.replication.replication import ReplicaTarget
from streamvault.sources.identity import SourcePosition
from streamvault.sources.sources import ArchiveState
from streamvault.streamstore.cuts import counterparts
from streamvault.streamstore.errors import NoSuchStream, ScaleRefused
from streamvault.streamstore.model import StreamDescription
from streamvault.streamstore.own import is_own
from streamvault.streamstore.store import StreamStore
from testkit.explorer.command import Command
from testkit.explorer.commands import COMMANDS, MIRRORS, TARGET, TARGET_NAME
from testkit.explorer.explore import ALL, Outcome, at_each_point, run
from testkit.explorer.many import explore
from testkit.explorer.memory import StreamState
from testkit.explorer.phases import drawn_mirrors
from testkit.explorer.scenes import CLUSTER, NAME, Scene, add, open_source, scale, scene_of
from testkit.explorer.schedule import Schedule, Step
from testkit.explorer.standby import (
    DELETED,
    REBUILT,
    THREE_STOPS,
    TORN,
    changes_of,
    stopped_and_killed,
    stopped_once,
    three_stops,
)
from testkit.explorer.world import Actor, World, in_memory
from tests.faults.conftest import all_right, thinned

SEED = 11
SCHEDULES = 250


def test_source_deleted_before_it_was_compared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Move, "_verify", lambda *_: 0)
    found = [one for one in map(run, at_each_point("events/new", ("move", "target-flip"))) if one.wrong]
    assert found
    assert all("LOST" in one.kinds for one in found)


@pytest.fixture
def no_scenes() -> Iterator[None]:
    """Neither does the test find scenes that others have made, nor they its own."""
    scene_of.cache_clear()
    yield
    scene_of.cache_clear()


@pytest.mark.usefixtures("no_scenes")
def test_users_stream_taken_for_the_replica_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    same: Any = lambda _: ""  # noqa: E731  (as if streams of one name could not be told apart)
    for module in (target, promote, replica):
        monkeypatch.setattr(module, "first_segment_id", same)
    schedules = at_each_point("events/replica-sealed", ("promote", "target-delete", "target-make"), ("!", "+!"))
    found = [one for one in map(run, schedules) if one.wrong]
    assert found
    assert all("HARMED" in one.kinds for one in found)


@pytest.mark.timeout(900)
def test_schedules_harm_nothing() -> None:
    tally = list(explore(SCHEDULES, SEED, order=drawn_mirrors))[-1]
    assert tally.total == SCHEDULES
    assert not tally.failures, "\n".join(map(str, tally.failures.values()))


# --- cut-overs beside replications that go on, and replicas of archives that change: schedules of their own


EVERY, LASTING = 300.0, 400.0

FOLLOWING: dict[str, Command] = {
    "replicate-sleeping": Command(
        lambda scene, _: replicate_stream(
            scene.stream, TARGET, follow=True, every=EVERY, lasting=LASTING, retry_for=60, master="inline"
        )
    ),
}
"""Wakes up once, and has no lease while it sleeps."""

CUT_OVERS = (
    "events/replica-behind replicate-sleeping,write,promote-seal",
    "events/replica replicate-sleeping,scale,move",
    "events/replica-behind replicate-sleeping,promote-seal,target-write",
    "events/new replicate-sleeping,write,move",
)

ARCHIVES = (
    "chunks/freed expire-all",
    "events/merged expire-all",
    "zstd/merged compact,hour,compact",
    "chunks/freed write,export,compact,hour,compact,expire-all",
    "events/grown-scaled write,export,retain,expire-all",
)
"""What happens to an archive while it is replicated."""


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only these schedules have such commands; the random ones stay as they are."""
    for commands in (ALL, MIRRORS):
        for name, command in FOLLOWING.items():
            monkeypatch.setitem(commands, name, command)


@pytest.mark.usefixtures("sleeping")
@pytest.mark.parametrize("text", CUT_OVERS)
def test_replication_that_wakes_up_harms_nothing(text: str) -> None:
    scene, names = text.split()
    all_right(map(run, thinned(at_each_point(scene, names.split(","), ("", "!", "+unavailable")))))


@pytest.mark.usefixtures("sleeping")
@pytest.mark.parametrize("verb", ["promote-seal", "move"])
def test_cut_over_that_is_stopped_beside_a_replication(verb: str) -> None:
    schedules = at_each_point("events/replica-behind", (verb, "write", "replicate-sleeping"), ("!",))
    all_right(map(run, thinned(schedules)))


def replicate(scene: Scene) -> object:
    return replicate_stream(scene.archive, TARGET, master="inline")


def difference(source: StreamState, target: StreamState) -> str:
    """Say where a replica has other bytes than its source ever had; empty if nowhere."""
    segments = counterparts(source.record.epochs, target.record.epochs)
    if segments is None:
        return "another history"
    readable = target.readable()
    for theirs, ours in segments.items():
        if (start := readable.get(ours)) is not None:
            held = target.data.get(ours, b"")[start:]
            if source.data.get(theirs, b"")[start : start + len(held)] != held:
                return f"{ours} differs"
    return ""


def of_archives(text: str) -> Iterator[str]:
    """Stop a replication of an archive before each of its calls, and yield what goes wrong."""
    place, chain = text.split()
    scene = scene_of(place)
    alone = Actor(0, lambda: replicate(scene))
    with in_memory(scene.world.copy()):
        alone.go_on()
    for until in range(1, alone.calls + 1):
        world = scene.world.copy()
        with in_memory(world):
            actors = [Actor(0, lambda: replicate(scene))]
            actors[0].go_on(until)
            for name in chain.split(","):
                COMMANDS[name].run(scene, world)
            actors[0].go_on()
            actors.append(Actor(0, lambda: replicate(scene)))
            actors[1].go_on()
            for actor in actors:
                if isinstance(actor.error, Damaged) or (actor.error and not isinstance(actor.error, Problem)):
                    yield f"{text} at {until}: {type(actor.error).__name__}: {actor.error}"
            if actors[1].error is not None:
                yield f"{text} at {until}: STUCK {actors[1].error}"
            cluster = world.cluster(CLUSTER)
            try:
                wrong = difference(cluster.find(NAME), cluster.find(TARGET_NAME))
            except NoSuchStream as error:
                wrong = str(error)
            if wrong:
                yield f"{text} at {until}: {wrong}"


@pytest.mark.parametrize("text", ARCHIVES)
def test_archive_that_changes_while_it_is_replicated_is_not_damaged(text: str) -> None:
    wrong = list(of_archives(text))
    assert not wrong, f"{len(wrong)} schedules, the first: {wrong[0]}"


def test_archive_that_is_not_looked_at_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ArchiveState, "reading", lambda *_: nullcontext())
    assert any("Damaged" in line for line in of_archives(ARCHIVES[0]))


# --- promotions beside replications that wake, and replicas and sources that are made again: nothing wrong is promoted


LATE_SCALE, LATE_FILLER, _ = THREE_STOPS


def is_found(outcomes: Iterator[Outcome], kind: str) -> bool:
    return any(kind in one.kinds for one in outcomes if one.wrong)


@pytest.mark.parametrize("family", THREE_STOPS)
@pytest.mark.timeout(600)
def test_promotion_beside_a_replication_that_wakes(family: tuple[str, tuple[str, ...]]) -> None:
    all_right(three_stops(*family))


def test_two_promotions() -> None:
    """One that was paused before its fence must not replace the segments that users write to."""
    all_right(three_stops("events/replica", ("write",), "promote", "promote"))


def test_replica_that_is_deleted_under_a_replication() -> None:
    all_right(stopped_and_killed(*DELETED, away=2, later=12))


def test_source_that_is_made_again_under_a_replication() -> None:
    all_right(stopped_once(*REBUILT))


def test_source_that_is_made_again_under_a_copy() -> None:
    all_right(stopped_once(*TORN))
    all_right(stopped_and_killed(*TORN, later=8))


def test_copy_that_does_not_record_its_source_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SourcePosition, "difference", lambda *_: "")
    assert is_found(stopped_once(*TORN), "WRONG")


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
    monkeypatch.setattr(replica, "check_ends", lambda held, _: held.describe())
    assert is_found(three_stops(*LATE_FILLER), "WRONG")


def test_replica_that_is_taken_for_the_deleted_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    begin: Any = ReplicaTarget.begin

    def begin_ledger(self: Any, described: Any, *rest: Any) -> None:
        if self.replica.record is None:
            begin(self, described, *rest)

    monkeypatch.setattr(ReplicaTarget, "begin", begin_ledger)
    monkeypatch.setattr(ReplicaTarget, "check_stays", lambda *_: None)
    monkeypatch.setattr(Record, "is_about", lambda *_: True)
    monkeypatch.setattr(replica, "check_ends", lambda held, _: held.describe())
    monkeypatch.setattr(SourcePosition, "difference", lambda *_: "")
    assert is_found(stopped_and_killed(*DELETED, away=2, later=12), "WRONG")


def test_source_that_is_not_compared_as_a_whole_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImportRun, "check_unfinished", lambda *_: None)
    monkeypatch.setattr(SourcePosition, "difference", lambda *_: "")
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


# --- a sweep that is paused anywhere while the work that it sweeps goes on, is finished, and is its user's


SCENE = "events/grown"
NAMES = ("import", "sweep", "import", "target-write", "sweep")


def paused() -> Iterator[Outcome]:
    """An import is killed; a sweep stops before each change, until another import has ended and its user wrote."""
    alone = changes_of(run(Schedule(SCENE, NAMES[:1])), 0)
    for killed in alone[1::3]:
        begun = (Step(0, killed), Step(1))
        for stopped in changes_of(run(Schedule(SCENE, NAMES[:2], (*begun, Step(0, None, "!")))), 1):
            steps = (Step(0, killed), Step(1, stopped), Step(0, None, "!"), Step(2), Step(3), Step(1), Step(4))
            yield run(Schedule(SCENE, NAMES, steps))


def test_paused_sweep_harms_nothing() -> None:
    found = list(paused())
    assert len(found) > 20
    assert any(one.ended[2] == "ok" for one in found), "an import takes the lease over from the paused sweep"
    all_right(found)


def test_sweep_that_deletes_what_it_saw_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(store: StreamStore, seen: StreamDescription, *_: object) -> None:
        store.delete(seen.name, first=seen.epochs[0])

    monkeypatch.setattr("streamvault.manager.sweep.remove_stream", remove)
    wrong = [one for one in paused() if one.wrong]
    assert wrong
    assert {kind for one in wrong for kind in one.kinds} & {"HARMED", "LOST"}


def test_sweep_that_does_not_ask_what_only_a_target_has_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leftovers, "_check_target", lambda *_, **__: None)
    found = [run(Schedule("events/scaled", ("copy", "sweep"), (Step(0, at), Step(1)))) for at in range(8, 60, 4)]
    assert any("HARMED" in one.kinds for one in found)
