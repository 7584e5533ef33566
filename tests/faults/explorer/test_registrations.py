"""Registrations beside each other and beside a table's users; each defect that they had is found without its mend."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import pytest
from pyiceberg.table import Transaction

from streamvault.lake.catalogs import iceberg
from testkit.explorer.registrations import Ground, beside, both_stopped, four
from testkit.explorer.schedule import Schedule

SCENES = ("new", "begun")
USERS = ("register", "described", "append", "tidy", "rename", "drop")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("registrations"))


def found(ground: Ground, schedules: Iterable[Schedule]) -> str:
    wrong = ((schedule, ground.run(schedule)) for schedule in schedules)
    return next((f"{schedule}: {lines[0]}" for schedule, lines in wrong if lines), "")


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("other", USERS)
def test_a_generation_is_registered_once(ground: Ground, scene: str, other: str) -> None:
    assert not found(ground, beside(scene, other))


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("fault", ["!", "+!"])
def test_a_killed_registration_is_finished_once(ground: Ground, scene: str, fault: str) -> None:
    assert not found(ground, beside(scene, "register", (fault,)))


def test_four_registrations_at_once(ground: Ground) -> None:
    assert not found(ground, islice(four(7), 25))


def test_pyicebergs_own_retries_are_found(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "_OneAttempt", Transaction)
    assert "TWICE" in found(ground, both_stopped("begun"))


def test_second_registration_of_a_renamed_table_is_found(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "check_identity", lambda *_: None)
    monkeypatch.setattr(iceberg, "fix_identity", lambda *_: None)
    assert "DOUBLE" in found(ground, beside("begun", "rename"))
