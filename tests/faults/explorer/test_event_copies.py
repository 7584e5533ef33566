"""Copies by events under the explorer: nothing is copied twice, left out, or out of order, whatever else happens."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from tests.faults.explorer.event_copies import run_copies
from tests.faults.explorer.stitches import ENDINGS, at_each_point, check, two_stops

FAMILIES = (
    "copy",
    "copy,copy",
    "copy,hour,copy",
    "copy,write,scale,copy",
    "copy,retain,copy",
    "copy,hour,retain,write,copy",
    "copy,remake,copy",
    "copy,copy-drop",
    "copy,copy-drop,copy",
    "copy,copy-take",
    "copy,copy,copy-write",
)
POINTS = 25
"""Schedules of each family in which a call fails that a short run draws; it stops before each call, too."""

STOPPED_TWICE = 200


@pytest.mark.parametrize("family", FAMILIES)
def test_copy_stopped_at_a_call_is_right(family: str) -> None:
    commands = family.split(",")
    failing = random.Random(family).sample(list(at_each_point(commands, ENDINGS[1:], run_copies)), POINTS)
    check([*at_each_point(commands, ENDINGS[:1], run_copies), *failing], run_copies)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("family", FAMILIES)
def test_copy_stopped_at_each_call_is_right(family: str) -> None:
    check(at_each_point(family.split(","), play=run_copies), run_copies)


def test_copy_stopped_twice_is_right() -> None:
    rng = random.Random(5)
    drawn = [two_stops(rng, family.split(","), run_copies) for family in FAMILIES if "," in family]
    check((one for each in drawn for one in islice(each, STOPPED_TWICE // len(drawn))), run_copies)
