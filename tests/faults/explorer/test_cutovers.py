"""Cut-overs beside replications that go on, and replicas of archives that change: schedules of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from streamvault import replicate_stream
from streamvault.common.errors import Damaged, Problem
from streamvault.sources.sources import ArchiveState
from streamvault.streamstore.cuts import counterparts
from streamvault.streamstore.errors import NoSuchStream
from testkit.explorer.commands import COMMANDS, MIRRORS, TARGET, TARGET_NAME, Command
from testkit.explorer.explore import ALL, at_each_point, run
from testkit.explorer.memory import StreamState
from testkit.explorer.scenes import CLUSTER, NAME, Scene, scene_of
from testkit.explorer.world import Actor, in_memory

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


@pytest.fixture(autouse=True)
def _commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only these schedules have such commands; the random ones stay as they are."""
    for commands in (ALL, MIRRORS):
        for name, command in FOLLOWING.items():
            monkeypatch.setitem(commands, name, command)


@pytest.mark.parametrize("text", CUT_OVERS)
def test_replication_that_wakes_up_harms_nothing(text: str) -> None:
    scene, names = text.split()
    outcomes = map(run, at_each_point(scene, names.split(","), ("", "!", "+unavailable")))
    wrong = [f"{one.schedule}: {one.wrong[0]}" for one in outcomes if one.wrong]
    assert not wrong, f"{len(wrong)} schedules, the first: {wrong[0]}"


@pytest.mark.parametrize("verb", ["promote-seal", "move"])
def test_cut_over_that_is_stopped_beside_a_replication(verb: str) -> None:
    outcomes = map(run, at_each_point("events/replica-behind", (verb, "write", "replicate-sleeping"), ("!",)))
    wrong = [f"{one.schedule}: {one.wrong[0]}" for one in outcomes if one.wrong]
    assert not wrong, f"{len(wrong)} schedules, the first: {wrong[0]}"


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
