"""A replication, a promotion or a move that is killed at any moment and run again ends like an undisturbed one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import KeyRange, StreamName
from streamvault.streamstore.own import OWN
from testkit.commands import Ended, run, started, wait_until
from testkit.streams import append_events, digest_of, make_stream, payloads, shape_of
from tests.faults.conftest import MOMENTS, kills_of

pytestmark = pytest.mark.timeout(600)

MOST_ATTEMPTS = 5
SOURCE = StreamName("scope", "source")
TARGET = StreamName("scope", "target")
VERBS = ("replicate", "again", "promote", "cut-over", "move", "move-bare")


@dataclass(frozen=True)
class Ground:
    """A folder with a source, and with its replica where the verb needs one."""

    folder: Path
    verb: str

    @property
    def source(self) -> str:
        return f"local://{self.folder}/{SOURCE}"

    @property
    def target(self) -> str:
        return f"local://{self.folder}/{TARGET}"

    @property
    def command(self) -> tuple[str, ...]:
        options = ("--master", "inline", "--json")
        if self.verb in {"promote", "cut-over"}:
            return ("promote", self.target, *(("--seal-source",) if self.verb == "cut-over" else ()), *options)
        if self.verb.startswith("move"):
            bare = ("--no-tombstone",) if self.verb == "move-bare" else ()
            return ("move", self.source, self.target, *bare, *options)
        return ("replicate", self.source, self.target, *options)

    def prepare(self) -> None:
        with LocalStore(self.folder) as store:
            make_stream(store, SOURCE, events=2_000, largest=64 * 1024)
            if self.verb in {"again", "promote", "cut-over"}:
                run("replicate", self.source, self.target, "--master", "inline", environment=dict(os.environ))
            if self.verb in {"again", "cut-over"}:
                _go_on(store)

    def run(self) -> Ended:
        return run(*self.command, environment=dict(os.environ))


def _go_on(store: LocalStore) -> None:
    """A truncation beyond what a replica has, a scale, and more events."""
    tail = store.describe(SOURCE).tail
    for segment in tail.offsets:
        append_events(store, SOURCE, segment, payloads(200, segment.number))
    segment, held = max(store.describe(SOURCE).epochs[-1].segments.items())
    middle = (held.low + held.high) / 2
    store.truncate(store.describe(SOURCE).tail)
    store.scale(SOURCE, [segment], [KeyRange(held.low, middle), KeyRange(middle, held.high)])
    for segment in store.describe(SOURCE).tail.offsets:
        append_events(store, SOURCE, segment, payloads(800, segment.number))


def state_of(folder: Path) -> dict[str, object]:
    """Everything that has to be equal after a disturbed run and after an undisturbed one."""
    found: dict[str, object] = {}
    with LocalStore(folder) as store:
        found["streams"] = sorted(str(name) for name in store.list_streams(SOURCE.scope, own=True))
        for name in (SOURCE, TARGET):
            if store.exists(name):
                shape = _without_repeated_fence(shape_of(store, name))
                configuration = store.describe(name).configuration
                tags = sorted(
                    tag.replace(str(folder), "") for tag in configuration.tags if OWN not in configuration.tags
                )
                found[str(name)] = (shape | {"configuration": replace(configuration, tags=())}, tags)
                found[f"events of {name}"] = digest_of(store, name)
    return found


def _without_repeated_fence(shape: dict[str, Any]) -> dict[str, Any]:
    """Leave out a last epoch that repeats an empty one: a promotion killed at its fence replaces the segments again."""
    lengths = {segment: end - start for segment, start, end in shape["live"]}
    while len(shape["epochs"]) > 1:
        *epochs, before, last = shape["epochs"]
        ranges = [[(low, high) for _, low, high in epoch] for epoch in (before, last)]
        if ranges[0] != ranges[1] or any(lengths.get(segment) for segment, _, _ in (*before, *last)):
            break
        repeated = {segment for segment, _, _ in last}
        shape = shape | {
            "epochs": [*epochs, before],
            "tail": {segment: 0 for segment, _, _ in before},
            "live": [one for one in shape["live"] if one[0] not in repeated],
        }
    return shape


@pytest.mark.parametrize("verb", VERBS)
def test_killed_verb_is_resumed(
    tmp_path: Path, verb: str, request: pytest.FixtureRequest, kill_rng: random.Random
) -> None:
    moments = kills_of(request.config, MOMENTS)
    ground, before = Ground(tmp_path / "streams", verb), tmp_path / "before"
    ground.prepare()
    shutil.copytree(ground.folder, before)
    began = time.monotonic()
    assert ground.run().code == 0
    took = time.monotonic() - began
    expected = state_of(ground.folder)
    kills = 0
    for moment in range(moments):
        # at the same place, for a replica has its source's URI
        shutil.rmtree(ground.folder)
        shutil.copytree(before, ground.folder)
        share = 0.4 + 0.55 * (moment + kill_rng.random()) / moments  # the first part goes into imports of modules
        for attempt in range(MOST_ATTEMPTS):
            deadline = time.monotonic() + share * (1 - attempt / MOST_ATTEMPTS) * took
            with started(*ground.command, environment=dict(os.environ)) as running:
                if wait_until(lambda until=deadline: time.monotonic() >= until, running):  # type: ignore[misc]
                    running.send(signal.SIGKILL)
                if running.ended().code == -signal.SIGKILL:
                    kills += 1
                    break
        ended = ground.run()
        assert ended.code == 0, ended.err + ended.out
        assert state_of(ground.folder) == expected
    assert kills, "the kill always came too late"
    print(f"{kills} of {moments} kills of {verb} came in time")
