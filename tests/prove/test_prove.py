"""A small part of `bin/prove`: injuries are detected, hostile archives do no harm."""

from __future__ import annotations

from tests.prove.hostile import attack
from tests.prove.injuries import INJURIES, injure


def test_injuries_are_noticed_or_harmless() -> None:
    found = injure(300, 1)
    assert {*found.kinds} == {*INJURIES}
    assert (found.missed, found.broken) == ([], [])


def test_hostile_archives_are_refused_or_harmless() -> None:
    found = attack(300, 1)
    assert (found.broken, found.outside) == ([], [])
    assert found.refused["manifest"] > found.kinds["manifest"] // 2
    assert found.refused["index"] > found.kinds["index"] // 2
