"""Running schedules: one, all with a bounded number of preemptions, random ones, and shortening a failing one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count

from testkit.explorer import event_copies, judge, mirrors, served_archives, served_states, stitches
from testkit.explorer.commands import COMMANDS, MIRRORS
from testkit.explorer.scenes import scene_of
from testkit.explorer.schedule import Schedule, Step
from testkit.explorer.world import Actor, in_memory, perform

ALL = {**COMMANDS, **MIRRORS}
STITCH, COPIES, STATES, SERVED = "stitch", "copies", "states", "served"
"""The scenes of appends and joins, of copies by events, of reader groups' states, and of readers of a served archive.

Each has its own commands; the last is followed by the archive's scene, as in ``served/chunks/grown``.
"""
PLAYS = {STITCH: stitches.run, COPIES: event_copies.run, STATES: served_states.run, SERVED: served_archives.run}


@dataclass(frozen=True)
class Outcome:
    """The result of a schedule.

    Attributes:
        wrong: what the judge found. calls: how many calls each command made. ended: what each ended with.
        traces: each command's calls. touched: where each of them was, with its store. slept: the numbers of
            the calls after which it waited.
    """

    schedule: Schedule
    wrong: tuple[str, ...]
    calls: tuple[int, ...]
    ended: tuple[str, ...]
    traces: tuple[tuple[tuple[str, str], ...], ...]
    touched: tuple[tuple[str, ...], ...]
    slept: tuple[frozenset[int], ...]

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of failures: their first words."""
        return frozenset(line.split()[0] for line in self.wrong)


def run(schedule: Schedule) -> Outcome:
    """Run a schedule and judge its result."""
    if (play := PLAYS.get(schedule.scene.partition("/")[0])) is not None:
        return _outcome(schedule, *play(schedule))
    scene = scene_of(schedule.scene)
    names = schedule.commands
    world = scene.world.copy()
    mirrored = not MIRRORS.keys().isdisjoint(names)
    with in_memory(world):
        watched = mirrors.Ledger(world, names) if mirrored else None
        ledger = judge.Ledger() if mirrored else judge.Ledger.of(world)
        if watched is None:
            ledger.watch(world)
        judge.run_as(names)
        actors = [Actor(place, lambda command=ALL[name]: command.run(scene, world)) for place, name in enumerate(names)]
        perform(schedule, actors)
        if watched is not None:
            world.settle()
        for name, actor in zip(names, actors, strict=True):
            if name.startswith("hold") and actor.error is None:
                ledger.held.update(actor.result.generations)  # type: ignore[attr-defined]
        if watched is not None:
            wrong = watched.judge(scene, actors)
        else:
            wrong = judge.judge(scene, world, ledger, names, actors)
    return _outcome(schedule, wrong, actors)


def _outcome(schedule: Schedule, wrong: Sequence[str], actors: Sequence[Actor]) -> Outcome:
    return Outcome(
        schedule,
        tuple(wrong),
        tuple(actor.calls for actor in actors),
        tuple("ok" if a.error is None else f"{type(a.error).__name__}: {a.error}" for a in actors),
        tuple(tuple(actor.trace) for actor in actors),
        tuple(tuple(actor.touched) for actor in actors),
        tuple(frozenset(actor.slept) for actor in actors),
    )


@cache
def calls_of(scene: str, commands: tuple[str, ...]) -> tuple[int, ...]:
    """How many calls each command makes if they run one after the other."""
    return run(Schedule(scene, commands)).calls


def at_each_point(scene: str, commands: Sequence[str], faults: Sequence[str] = ("",)) -> Iterator[Schedule]:
    """A command is stopped before each of its calls, the others run to their ends, and it continues.

    Args:
        scene: where.
        commands: the one to stop, then the others in order. What stands before a ``;`` runs to its end first.
        faults: what becomes of the call that it was stopped before.
    """
    first = commands.index(";") if ";" in commands else 0
    names = tuple(name for name in commands if name != ";")
    before = tuple(map(Step, range(first)))
    others = tuple(Step(place) for place in range(first + 1, len(names)))
    for until in range(1, calls_of(scene, names[: first + 1])[first] + 1):
        for fault in faults:
            yield Schedule(scene, names, (*before, Step(first, until), *others, Step(first, None, fault)))


def pairs_of_points(scene: str, commands: Sequence[str], faults: Sequence[str] = ("",)) -> Iterator[Schedule]:
    """Two preemptions: the first stops, the second stops, then the first continues, the others, and the second."""
    first, second = calls_of(scene, tuple(commands[:2]))
    others = tuple(Step(place) for place in range(2, len(commands)))
    for one in range(1, first + 1):
        for two in range(1, second + 1):
            for fault in faults:
                begun = (Step(0, one), Step(1, two))
                yield Schedule(scene, tuple(commands), (*begun, Step(0, None, fault), *others, Step(1)))


def two_stops(
    rng: random.Random, scene: str, commands: Sequence[str], faults: Sequence[str] = ("",)
) -> Iterator[Schedule]:
    """As `at_each_point`, but it is stopped twice, and the others run in between; endless, at random points."""
    stopped = commands.index(";") if ";" in commands else 0
    names = tuple(name for name in commands if name != ";")
    calls = calls_of(scene, names[: stopped + 1])[stopped]
    while True:
        first = rng.randrange(1, calls + 1)
        steps = [*map(Step, range(stopped)), Step(stopped, first)]
        for place in range(stopped + 1, len(names)):
            until = None if is_outside(scene, names[place]) or rng.random() < 0.5 else rng.randrange(1, calls + 1)
            fault = rng.choice(faults) if until and rng.random() < 0.5 else ""
            steps += [Step(place, until), *([Step(place, None, fault)] if fault else [])]
        steps.append(Step(stopped, first + rng.randrange(1, calls + 1), rng.choice(("", "", ":unavailable"))))
        steps += map(Step, range(stopped + 1, len(names)))
        yield Schedule(scene, names, tuple(steps))


def is_outside(scene: str, name: str) -> bool:
    """Whether a command is an event outside the product, which is atomic and does not fail."""
    if scene.startswith(f"{SERVED}/"):
        return name != served_archives.READ and ALL[name].outside
    if scene in PLAYS:
        return name not in {**stitches.VERBS, **stitches.OF_ARCHIVES, **event_copies.VERBS, **served_states.VERBS}
    return ALL[name].outside


def three_stops(rng: random.Random, scene: str, before: Sequence[str], pair: tuple[str, str]) -> Schedule:
    """Draw a schedule of two commands: the first stops, the second stops, the first stops again, the second ends.

    Args:
        rng: draws the calls. scene: where. before: what runs to its end first. pair: the two.
    """
    names = (*before, *pair, "hour")  # an hour passes while the first is stopped: its lease is another's
    one, two, hour = len(before), len(before) + 1, len(before) + 2
    started = tuple(map(Step, range(len(before))))
    first = rng.randrange(1, calls_of(scene, names)[one] + 1)
    begun = (*started, Step(one, first), *((Step(hour),) if rng.random() < 0.5 else ()))
    calls = run(Schedule(scene, names, (*begun, Step(two)))).calls
    steps = (
        Step(two, rng.randrange(1, calls[two] + 1)),
        Step(one, rng.randrange(first, max(calls[one], first + 1)) + 1),
    )
    return Schedule(scene, names, (*begun, *steps, Step(two), Step(one)))


def random_schedules(
    seed: int, scenes: Sequence[str], commands: Sequence[str], faults: Sequence[str]
) -> Iterator[Schedule]:
    """Two to five commands that are preempted at random points; endless."""
    rng = random.Random(seed)
    for _ in count():
        names = tuple(rng.choice(commands) for _ in range(rng.randrange(2, 6)))
        yield random_schedule(rng, rng.choice(scenes), names, faults)


def random_schedule(rng: random.Random, scene: str, names: tuple[str, ...], faults: Sequence[str]) -> Schedule:
    """Draw a schedule of some commands that are preempted at random points."""
    steps = []
    at = [0] * len(names)
    for _ in range(rng.randrange(2, 9)):
        place = rng.randrange(len(names))
        at[place] += rng.choice((rng.randrange(1, 6), rng.randrange(1, 60)))
        outside = is_outside(scene, names[place])
        fault = rng.choice(faults) if not outside and rng.random() < 0.2 else ""
        steps.append(Step(place, None if rng.random() < 0.25 or (outside and scene in PLAYS) else at[place], fault))
    return Schedule(scene, names, tuple(steps))


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """A shorter schedule that fails as well: fewer steps, then fewer commands, then fewer faults."""
    while True:
        for shorter in _shorter(schedule):
            if fails(shorter):
                schedule = shorter
                break
        else:
            return schedule


def _shorter(schedule: Schedule) -> Iterator[Schedule]:
    steps = schedule.steps
    for place in reversed(range(len(schedule.commands))):
        if len(schedule.commands) > 1:
            left = tuple(
                replace(step, actor=step.actor - (step.actor > place)) for step in steps if step.actor != place
            )
            yield Schedule(schedule.scene, schedule.commands[:place] + schedule.commands[place + 1 :], left)
    for index in range(len(steps)):
        yield replace(schedule, steps=steps[:index] + steps[index + 1 :])
    for index, step in enumerate(steps):
        if step.fault:
            yield replace(schedule, steps=(*steps[:index], replace(step, fault=""), *steps[index + 1 :]))
