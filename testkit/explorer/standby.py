"""Schedules of a replication and a promotion that stop three times, and of replicas and sources that are made again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testkit.explorer.explore import Outcome, run
from testkit.explorer.schedule import Schedule, Step

TORN = ("events/new", ("rebuild-scaled-old", "copy", "rebuild-scaled"))
"""A source is lost and made again under a copy, in the same shape; only its newest segments are compared later."""

CHANGES = frozenset(
    {"create stream", "update", "scale", "append", "truncate", "truncate segment", "seal", "delete stream"}
)
"""The calls of a store that a command is stopped before: between two of them, it changes nothing."""

NEXT = 6
"""How many of its next changes the first command makes at most before it stops again."""

THREE_STOPS = (
    ("events/replica", ("scale", "write")),
    ("events/replica", ("retain", "write", "scale", "write")),
    ("events/replica-even", ("write",)),
)
"""Where a replication and a promotion meet, and what happens to the source before."""

DELETED = ("events/new", ("retain-half", "replicate-follow", "target-drop", "write", "drop", "promote"))
"""A replica is deleted under a replication that goes on, which is killed; then the source is lost."""

REBUILT = ("events/new", ("rebuild-half", "replicate-follow", "rebuild", "promote"))
"""A source is lost and made again under a replication that goes on, in the same shape and with more in it."""


def changes_of(outcome: Outcome, place: int) -> list[int]:
    """The numbers of a command's calls that change something."""
    return [number for number, (call, _) in enumerate(outcome.traces[place], 1) if call in CHANGES]


def three_stops(
    scene: str, before: Sequence[str], first: str = "replicate", second: str = "promote"
) -> Iterator[Outcome]:
    """Run two commands: the first stops, the second stops, the first goes on and stops again, then both end.

    Args:
        scene: where.
        before: what happens before.
        first: stops before each change, and again before each of the next ones.
        second: stops before each change, and ends before the first does.
    """
    names = (*before, first, second)
    begin = tuple(Step(place) for place in range(len(before)))
    one, two = len(before), len(before) + 1
    alone = changes_of(run(Schedule(scene, names[:-1], begin)), one)
    for place, i in enumerate(alone):
        stopped = run(Schedule(scene, names, (*begin, Step(one, i), Step(two), Step(one))))
        for j in changes_of(stopped, two):
            for k in alone[place + 1 : place + 1 + NEXT]:
                steps = (Step(one, i), Step(two, j), Step(one, k), Step(two), Step(one))
                yield run(Schedule(scene, names, (*begin, *steps)))


def stopped_and_killed(
    scene: str, commands: Sequence[str], at: int = 1, away: int = 1, later: int = 40
) -> Iterator[Outcome]:
    """Run a command that is stopped, goes on after the next ones, and is killed.

    Args:
        scene: where.
        commands: what runs, in order.
        at: place of the command that is stopped and killed.
        away: how many of the next ones run before it goes on.
        later: at most how many calls after it has gone on it is killed.
    """
    begin = tuple(Step(place) for place in range(at))
    meanwhile = tuple(Step(place) for place in range(at + 1, at + 1 + away))
    rest = tuple(Step(place) for place in range(at + 1 + away, len(commands)))
    alone = len(run(Schedule(scene, tuple(commands[: at + 1]), begin)).traces[at])
    for i in range(1, alone + 1):
        for k in range(i + 1, i + later):
            steps = (*begin, Step(at, i), *meanwhile, Step(at, k), Step(at, None, "!"), *rest)
            yield run(Schedule(scene, tuple(commands), steps))


def stopped_once(scene: str, commands: Sequence[str], at: int = 1) -> Iterator[Outcome]:
    """Run a command that is stopped before each call while the next one runs; then all run to their ends in order."""
    begin = tuple(Step(place) for place in range(at))
    alone = len(run(Schedule(scene, tuple(commands[: at + 1]), begin)).traces[at])
    for i in range(1, alone + 1):
        yield run(Schedule(scene, tuple(commands), (*begin, Step(at, i), Step(at + 1), Step(at))))
