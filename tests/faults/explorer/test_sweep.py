"""A sweep that is paused anywhere while the work that it sweeps goes on, is finished, and is its user's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamvault.manager import ephemeral
from streamvault.manager.sweep import Leftovers
from testkit.explorer.explore import Outcome, run
from testkit.explorer.schedule import Schedule, Step
from testkit.explorer.standby import changes_of

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
    assert not [f"{one.schedule}: {one.wrong[0]}" for one in found if one.wrong]


def test_sweep_that_deletes_what_it_saw_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(store: ephemeral.StreamStore, seen: ephemeral.StreamDescription, *_: object) -> None:
        store.delete(seen.name, first=seen.epochs[0])

    monkeypatch.setattr("streamvault.manager.sweep.remove_stream", remove)
    wrong = [one for one in paused() if one.wrong]
    assert wrong
    assert {kind for one in wrong for kind in one.kinds} & {"HARMED", "LOST"}


def test_sweep_that_does_not_ask_what_only_a_target_has_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leftovers, "_check_target", lambda *_, **__: None)
    found = [run(Schedule("events/scaled", ("copy", "sweep"), (Step(0, at), Step(1)))) for at in range(8, 30, 4)]
    assert any("HARMED" in one.kinds for one in found)
