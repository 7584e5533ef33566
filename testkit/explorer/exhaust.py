"""Every schedule of two commands with two or three stops, each run once or equal to one that was run.

A schedule of two stops is a pair of numbers (i, j): the first command makes its calls below i, the second one its calls
below j, the first one ends, the second one ends. Calls commute if none of them changes what the other one reads or
changes; then their order makes no difference to either command. So (i, j) gives what (i + 1, j) gives if the first
command's call i commutes with all that the second one does before it; and what (i, j + 1) gives if the second one's
call j commutes with the rest of the first. Both are told from the traces of schedules that were run, from the last
calls to the first. Three stops are (i, j, k): the first command stops again before its call k.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from testkit.explorer.explore import ALL, Outcome, run
from testkit.explorer.families import ENDINGS
from testkit.explorer.schedule import Schedule, Step
from testkit.explorer.variant_families import is_left_out
from testkit.explorer.world import OBJECT_CALLS, World, in_memory

Call = tuple[str, str]
WAIT = "wait"
"""A call after which the command waits: time passes for the other one, too, so that the two never commute."""
"""What is called, and where: the full keys of objects, one a line, or cluster and stream."""
READS = frozenset({"get", "head", "list", "describe", "exists", "segment info", "read", "open appender"})
READS_TOO = frozenset({"list scopes", "list streams"})
PAIR_COLUMNS = (
    "scene",
    "commands",
    "stops",
    "schedules",
    "run",
    "equal to one of these",
    "left out",
    "wrong",
    "seconds",
)
CHECKED = 20
"""How many of the schedules that equal another one are run, too, to compare."""

SCENES = ("chunks/grown", "events/grown")
VERBS = ("export", "rotate", "expire-all", "compact", "hold", "repair", "convert", "import", "follow-rotating")
MIRROR_SCENE = "events/replica"
MIRROR_VERBS = ("replicate", "promote", "promote-seal", "move")
THREE = (("compact", "compact"), ("compact", "rotate"), ("rotate", "compact"), ("rotate", "expire-all"))
MIRROR_THREE = (("replicate", "promote"), ("replicate", "promote-seal"), ("promote", "replicate"))


def commute(one: Call, other: Call) -> bool:
    """Whether two calls of different commands give the same in either order."""
    if WAIT in {one[0], other[0]}:
        return False
    objects = one[0] in OBJECT_CALLS, other[0] in OBJECT_CALLS
    if objects[0] != objects[1]:
        return True
    reads = one[0] in READS | READS_TOO, other[0] in READS | READS_TOO
    if all(reads):
        return True
    if not objects[0]:  # a stream's name begins the names of its segments
        first, second = (place.partition(":")[0] for place in (one[1], other[1]))
        return not (first.startswith(second) or second.startswith(first))
    return not any(
        key == name or (one[0] == "list" and name.startswith(key)) or (other[0] == "list" and key.startswith(name))
        for key in one[1].split("\n")
        for name in other[1].split("\n")
    )


def _apart(call: Call, calls: Sequence[Call]) -> bool:
    return all(commute(call, other) for other in calls)


@dataclass
class Pair:
    """What came of two commands.

    Attributes:
        scene, commands: which. stops: how many each schedule has; 1 stands for one stop with each fault.
        schedules: how many there are. run: of these. equal: to one that was run. wrong: what was found.
    """

    scene: str
    commands: tuple[str, ...]
    stops: int
    schedules: int = 0
    run: int = 0
    equal: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def left_out(self) -> int:
        return self.schedules - self.run - self.equal

    @property
    def row(self) -> tuple[object, ...]:
        kind = "1, each fault" if self.stops == 1 else self.stops
        counts = self.schedules, self.run, self.equal, self.left_out, len(self.wrong)
        return (self.scene, ", ".join(self.commands), kind, *counts, round(self.seconds))


@dataclass(frozen=True)
class _Ran:
    """A schedule's calls: of the first command and of the second one, and where it was run."""

    calls: tuple[tuple[Call, ...], tuple[Call, ...]]
    by: Schedule


class _Two:
    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.aliases: list[tuple[Schedule, Schedule]] = []
        self._rng = random.Random(1)

    def schedule(self, *at: int) -> Schedule:
        steps = tuple(Step(number % 2, until) for number, until in enumerate(at))
        last = len(at) % 2  # who was not stopped last goes on
        return Schedule(self.pair.scene, self.pair.commands, (*steps, Step(last), Step(1 - last)))

    def ran(self, *at: int) -> _Ran:
        outcome = self.judged(self.schedule(*at))
        return _Ran((_calls(outcome, 0), _calls(outcome, 1)), outcome.schedule)

    def judged(self, schedule: Schedule) -> Outcome:
        outcome = run(schedule)
        self.pair.schedules += 1
        self.pair.run += 1
        self.pair.wrong += [f"{schedule}: {line}" for line in outcome.wrong[:1]]
        return outcome

    def same(self, schedule: Schedule, as_: _Ran) -> _Ran:
        """Count a schedule that equals one that was run."""
        self.pair.schedules += 1
        self.pair.equal += 1
        self.aliases.append((schedule, as_.by))
        return as_

    def compare(self) -> None:
        """Run some of those that were not run."""
        for schedule, by in self._rng.sample(self.aliases, min(CHECKED, len(self.aliases))):
            one, other = run(schedule), run(by)
            if (one.wrong, one.ended, one.traces) != (other.wrong, other.ended, other.traces):
                self.pair.wrong.append(f"{schedule}: it does not equal {by}")


def _calls(outcome: Outcome, place: int) -> tuple[Call, ...]:
    made = zip(outcome.traces[place], outcome.touched[place], strict=True)
    slept = outcome.slept[place]
    return tuple((WAIT if number in slept else call, where) for number, ((call, _), where) in enumerate(made, 1))


def exhaust(scene: str, commands: tuple[str, str], stops: int = 2) -> Pair:
    """Run every schedule of two commands with so many stops, except those that equal another one.

    Args:
        scene: where. commands: the two. stops: 1: one stop, with each fault; 2 or 3.
    """
    began = time.monotonic()
    two = _Two(Pair(scene, commands, stops))
    with in_memory(World()):
        if stops == 1:
            _faults(two)
        else:
            _stops(two, three=stops == 3)
        two.compare()
    two.pair.seconds = time.monotonic() - began
    return two.pair


def _faults(two: _Two) -> None:
    pair = two.pair
    (calls,) = run(Schedule(pair.scene, pair.commands[:1])).calls
    for until in range(1, calls + 1):
        for fault in (*ENDINGS, ":late"):
            two.judged(Schedule(pair.scene, pair.commands, (Step(0, until), Step(1), Step(0, None, fault))))


def _stops(two: _Two, *, three: bool) -> None:
    """From the last calls to the first, so that what a schedule may equal is known."""
    first = two.ran(1_000_000)  # one after the other
    after: dict[int, _Ran] = {}
    for i in range(len(first.calls[0]), 0, -1):
        whole = two.ran(i)  # the second command makes all its calls there
        row = {len(whole.calls[1]) + 1: whole}
        for j in range(len(whole.calls[1]), 0, -1):
            row[j] = _point(two, (i, j), after.get(j), row[j + 1])
            if three and _swaps(row[j], i, j):
                _third(two, i, j, row[j])
        after = row


def _point(two: _Two, at: tuple[int, int], below: _Ran | None, right: _Ran) -> _Ran:
    i, j = at
    mine, theirs = right.calls
    if _apart(theirs[j - 1], mine[i - 1 :]):
        return two.same(two.schedule(i, j), right)
    if below is not None and _apart(below.calls[0][i - 1], below.calls[1][: j - 1]):
        return two.same(two.schedule(i, j), below)
    return two.ran(i, j)


def _swaps(ran: _Ran, i: int, j: int) -> bool:
    """Whether the second command's first calls and the first command's next ones are not independent."""
    return not all(_apart(call, ran.calls[1][: j - 1]) for call in ran.calls[0][i - 1 :])


def _third(two: _Two, i: int, j: int, ended: _Ran) -> None:
    """The third stop: before each later call of the first command, from its last one on."""
    known = ended
    for k in range(len(ended.calls[0]), i, -1):
        mine, theirs = known.calls
        if k - 1 < len(mine) and _apart(mine[k - 1], theirs[j - 1 :]):
            two.same(two.schedule(i, j, k), known)
        else:
            known = two.ran(i, j, k)


def _all() -> Iterator[tuple[str, tuple[str, str], int]]:
    for stops in (2, 1):
        for scene in SCENES:
            yield from ((scene, (one, two), stops) for one in VERBS for two in VERBS)
        yield from ((MIRROR_SCENE, (one, two), stops) for one in MIRROR_VERBS for two in MIRROR_VERBS)
    yield from ((SCENES[0], pair, 3) for pair in THREE)
    yield from ((MIRROR_SCENE, pair, 3) for pair in MIRROR_THREE)


def _one(asked: tuple[str, tuple[str, str], int]) -> Pair:
    return exhaust(*asked)


def exhaust_pairs(text: str, processes: int, seconds: float) -> Iterator[Pair]:
    """Exhaust pairs of verbs that write, with two stops, with each fault at each call, and some with three stops.

    Args:
        text: only pairs in whose name (``SCENE ONE,TWO STOPS``) it is. processes: to use.
        seconds: none is begun after so long.
    """
    until = time.monotonic() + seconds
    asked = [one for one in _all() if text in f"{one[0]} {','.join(one[1])} {one[2]}" and not is_left_out(one[1])]
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for pair in pool.imap(_one, asked):
            yield pair
            if time.monotonic() > until:
                return


assert set(VERBS) | set(MIRROR_VERBS) <= ALL.keys()
