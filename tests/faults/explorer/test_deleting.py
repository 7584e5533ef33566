"""Deletions of an archive beside everything that writes to it, and what the explorer says without their rules."""

from __future__ import annotations

from itertools import islice

import pytest

from testkit.explorer.deleting import BESIDE, EVERY, KILLED, STOPPED, beside, stopped
from testkit.explorer.explore import Outcome, run
from testkit.explorer.schedule import Schedule


def found(schedules: list[Schedule]) -> Outcome | None:
    return next((one for one in map(run, schedules) if one.wrong), None)


@pytest.mark.parametrize("text", [*STOPPED, *KILLED])
def test_nothing_is_lost_beside_a_deletion(text: str) -> None:
    wrong = found(list(stopped(text)))
    assert wrong is None, f"{wrong.schedule}: {wrong.wrong[0]}"


@pytest.mark.parametrize("text", BESIDE)
def test_nothing_is_lost_if_both_are_stopped(text: str) -> None:
    wrong = found(list(islice(beside(text), 0, None, EVERY)))
    assert wrong is None, f"{wrong.schedule}: {wrong.wrong[0]}"


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("events/grown import,delete", {"NoSuchArchive"}),
        ("chunks/grown convert,delete", {"NoSuchArchive"}),
        ("chunks/grown handoff,delete", {"NoSuchArchive"}),
        ("chunks/merged compact,delete-unfinished", {"NoSuchArchive", "Conflict"}),
    ],
)
def test_whoever_works_on_it_is_told_that_the_archive_was_deleted(text: str, errors: set[str]) -> None:
    ended = {run(schedule).ended[0].partition(",")[0] for schedule in stopped(text)}
    assert ended == {"ok", *(f"{error}: the archive was deleted" for error in errors)}
