"""Appends under the explorer: nothing is appended twice, by half, out of order, or to another stream."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from tests.faults.explorer.stitches import ENDINGS, at_each_point, check, two_stops

FAMILIES = (
    "append",
    "append,append",
    "append,write,append",
    "append,hour,append",
    "append,retain,write,append",
    "append,hour,retain,append,write",
    "append,remake",
    "append,hour,append,remake",
    "append,scale,write,append",
    "append,target-scale",
    "append,target-scale,append",
    "append,target-configure,append",
    "append,target-seal",
    "append,target-remake",
    "append,append-one",
    "append-own,target-write,append-own",
    "append-own,append",
    "append-distinct",
    "append-distinct,append-distinct",
    "append-distinct,write,append-distinct",
    "append-distinct,hour,clone-write,append-distinct",
    "append-distinct,retain",
    "append-distinct,remake",
    "join",
    "join,join",
    "join,hour,join",
    "join,write,scale,join",
    "join,retain,join",
    "join,remake",
    "join,joined-drop",
    "join,joined-drop,join",
    "join,joined-take",
    "join,join,joined-write",
    "join,join,joined-configure",
    "join,join,write,append-joined",
    "join-distinct",
    "join-distinct,hour,join-distinct",
    "join-distinct,write,join-distinct",
    "join-distinct,retain,join-distinct",
    "join-distinct,remake",
    "join-distinct,join",
    "ranges",
    "ranges,ranges",
    "ranges,hour,ranges",
    "ranges,write,scale,ranges",
    "ranges,retain,ranges",
    "ranges,remake",
    "ranges,joined-drop,ranges",
    "ranges,joined-take",
    "ranges,ranges-other",
    "ranges,join",
)
POINTS = 15
"""Schedules of each family in which a call fails that a short run draws; it stops before each call, too."""

STOPPED_TWICE = 500


@pytest.mark.parametrize("family", FAMILIES)
def test_append_stopped_at_a_call_is_right(family: str) -> None:
    commands = family.split(",")
    failing = list(at_each_point(commands, ENDINGS[1:]))
    check([*at_each_point(commands, ENDINGS[:1]), *random.Random(family).sample(failing, POINTS)])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("family", FAMILIES)
def test_append_stopped_at_each_call_is_right(family: str) -> None:
    check(at_each_point(family.split(",")))


def test_append_stopped_twice_is_right() -> None:
    rng = random.Random(3)
    drawn = [two_stops(rng, family.split(",")) for family in FAMILIES if "," in family]
    check(schedule for each in drawn for schedule in islice(each, STOPPED_TWICE // len(drawn)))
