"""Copies, replicas, promotions and moves under the explorer: it finds planted bugs, and none in the product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streamvault.importer import target
from streamvault.replication import promote, replica
from streamvault.replication.move import _Move
from testkit.explorer.explore import at_each_point, run
from testkit.explorer.families import MIRRORED, family
from testkit.explorer.many import explore
from testkit.explorer.phases import drawn_mirrors
from testkit.explorer.scenes import scene_of

SEED = 11
SCHEDULES = 2_000


@pytest.mark.parametrize(("what", "text"), [(what, text) for what, families in MIRRORED.items() for text in families])
def test_known_schedules_pass(what: str, text: str) -> None:
    outcomes = map(run, at_each_point(*family(text)))
    wrong = [f"{one.schedule}: {one.wrong[0]}" for one in outcomes if one.wrong]
    assert not wrong, f"{what}: {len(wrong)} schedules, the first: {wrong[0]}"


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
