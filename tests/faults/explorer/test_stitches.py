"""Appends, joins and copies by events under the explorer: nothing is there twice, by half, damaged or out of order."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from testkit.explorer.explore import at_each_point, run, two_stops
from testkit.explorer.families import STITCH_ENDINGS, STITCHED, family
from testkit.explorer.schedule import Schedule
from tests.faults.conftest import IS_WHOLE, all_right, thinned

FAMILIES = [pytest.param(f"{scene} {text}", id=text) for scene, texts in STITCHED.items() for text in texts]
POINTS = 10
"""Schedules of each family in which a call fails that a short run draws."""

STOPPED_TWICE = 5
"""Schedules of each family with two stops."""


@pytest.mark.parametrize("text", FAMILIES if IS_WHOLE else FAMILIES[::4])
def test_append_stopped_at_a_call_is_right(text: str) -> None:
    scene, commands, _ = family(text)
    failing = list(at_each_point(scene, commands, STITCH_ENDINGS[1:]))
    all_right(map(run, [*thinned(at_each_point(scene, commands)), *random.Random(text).sample(failing, POINTS)]))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("text", FAMILIES)
def test_append_stopped_at_each_call_is_right(text: str) -> None:
    scene, commands, _ = family(text)
    all_right(map(run, at_each_point(scene, commands, STITCH_ENDINGS)))


def test_append_stopped_twice_is_right() -> None:
    rng = random.Random(3)
    found = [family(f"{scene} {text}") for scene, texts in STITCHED.items() for text in texts if "," in text]
    for scene, commands, _ in found:
        all_right(map(run, islice(two_stops(rng, scene, commands, STITCH_ENDINGS), STOPPED_TWICE)))


@pytest.mark.parametrize(
    "text",
    [
        # one run is about to commit a batch while the other one, to which the source looks empty, finishes the copy
        "copies copy,retain,copy 1@19 2 3@19",
    ],
)
def test_schedule_that_once_went_wrong_is_right(text: str) -> None:
    all_right(map(run, [Schedule.parse(text)]))
