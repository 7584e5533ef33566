"""The explorer finds what it should find, and finds nothing in the product."""

from __future__ import annotations

import pytest

from tests.faults.explorer.explore import run
from tests.faults.explorer.many import explore
from tests.faults.explorer.schedule import Schedule

SEED = 11
SCHEDULES = 20_000


@pytest.mark.parametrize(
    "text",
    ["chunks/new export", "events/grown export,retain 1@7 2 1", "zstd/merged rotate,export 1@3 2:unavailable@9 1+! 2!"],
)
def test_a_schedule_is_read_as_it_is_written(text: str) -> None:
    assert str(Schedule.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["chunks/new", "chunks/new export 1@", "chunks/new export 0", "chunks/new export 1:huh"]
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"step|unpack"):
        Schedule.parse(text)


def test_a_schedule_does_the_same_each_time() -> None:
    schedule = Schedule.parse("zstd/grown-scaled follow-rotating,scale,write,compact,import 1@40 2 3 4@20 1+! 5")
    assert run(schedule) == run(schedule)


@pytest.mark.timeout(900)
def test_nothing_is_lost() -> None:
    tally = list(explore(SCHEDULES, SEED))[-1]
    assert tally.total == SCHEDULES
    assert not tally.failures, "\n".join(map(str, tally.failures.values()))
