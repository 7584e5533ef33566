"""Running many schedules in several processes, and their results."""

from __future__ import annotations

import multiprocessing
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.queues import SimpleQueue

from testkit.explorer.explore import Outcome, run, shrink
from testkit.explorer.phases import drawn
from testkit.explorer.schedule import Schedule
from testkit.explorer.world import World, in_memory

Order = Callable[[int, int, int], Iterator[Schedule]]
BATCH = 200
LOSSES = frozenset(
    {"LOST", "WRONG", "GAP", "EXPIRED", "HELD", "TRUNCATED", "UNARCHIVED", "MIXED", "RESTORE", "HARMED", "UNPROVED"}
)


@dataclass(frozen=True)
class Failure:
    """A failed schedule, shortened as far as possible, and its failures."""

    schedule: str
    wrong: tuple[str, ...]
    ended: tuple[str, ...]
    times: int = 1

    def __str__(self) -> str:
        ends = "\n".join(f"    {place}: {text}" for place, text in enumerate(self.ended, 1))
        return "\n".join([self.schedule, *(f"  {line}" for line in self.wrong), ends])


@dataclass
class Tally:
    """The results of many schedules.

    Attributes:
        kinds: how many were plain preemptions, kills and errors. lost, doubled, other: of each kind, how many went
            wrong so. failures: one for each sort of what was wrong.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    doubled: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    failures: dict[str, Failure] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> str:
        """Count one; returns the kind of its failure, if it is new."""
        kind = kind_of(outcome.schedule)
        self.kinds[kind] += 1
        if not outcome.wrong:
            return ""
        kinds = outcome.kinds
        (self.lost if kinds & LOSSES else self.doubled if "DOUBLED" in kinds else self.other)[kind] += 1
        sort = sort_of(outcome)
        self.times[sort] += 1
        return sort if self.times[sort] == 1 else ""

    def join(self, other: Tally) -> None:
        for mine, theirs in (
            (self.kinds, other.kinds),
            (self.lost, other.lost),
            (self.doubled, other.doubled),
            (self.other, other.other),
            (self.times, other.times),
        ):
            mine.update(theirs)
        for sort, failure in other.failures.items():
            self.failures.setdefault(sort, failure)

    @property
    def total(self) -> int:
        return self.kinds.total()


def kind_of(schedule: Schedule) -> str:
    faults = [step.fault for step in schedule.steps if step.fault]
    if not faults:
        return "preemptions"
    return "kills" if any(fault.endswith("!") for fault in faults) else "errors"


def sort_of(outcome: Outcome) -> str:
    """The failure without the parts that differ between schedules."""
    words = re.sub(r"[0-9a-f]{8,}|\d+", "N", outcome.wrong[0])[:70]
    return f"{outcome.schedule.commands[0]}: {words}"


def fails_alike(sort: str, schedule: Schedule) -> bool:
    """Whether a schedule fails in the same way."""
    try:
        outcome = run(schedule)
    except (IndexError, KeyError):
        return False
    return bool(outcome.wrong) and outcome.wrong[0].split()[0] == sort.partition(": ")[2].split()[0]


def _work(order: Order, seed: int, part: tuple[int, int], wanted: int, until: float, said: SimpleQueue[Tally]) -> None:
    schedules = islice(order(seed, *part), wanted)
    tally = Tally()
    with in_memory(World()):  # a tenth of the time would go into patching for each schedule
        for number, schedule in enumerate(schedules, 1):
            outcome = run(schedule)
            if sort := tally.add(outcome):
                short = shrink(schedule, lambda one, sort=sort: fails_alike(sort, one))
                found = run(short)
                tally.failures[sort] = Failure(str(short), found.wrong, found.ended)
            if number % BATCH == 0:
                said.put(tally)
                tally = Tally()
                if time.time() > until:
                    break
    said.put(tally)
    said.put(Tally(seconds=-1))


def explore(
    schedules: int, seed: int, *, processes: int = 2, seconds: float = 1e9, order: Order = drawn
) -> Iterator[Tally]:
    """Run a number of schedules, or for some time; yields the results so far at intervals.

    Args:
        schedules: how many. seed: of their order. processes: how many at once. seconds: for how long at most.
        order: which ones, and in which order: `drawn`, `systematic`, `drawn_mirrors` or `mirrored`.
    """
    context = multiprocessing.get_context("fork")
    said: SimpleQueue[Tally] = context.SimpleQueue()
    began = time.time()
    shares = [schedules // processes + (part < schedules % processes) for part in range(processes)]
    workers = [
        context.Process(
            target=_work,
            args=(order, seed, (part, processes), share, began + seconds, said),
            daemon=True,
        )
        for part, share in enumerate(shares)
    ]
    for worker in workers:
        worker.start()
    whole, left = Tally(), len(workers)
    while left:
        while said.empty():
            if any(worker.exitcode for worker in workers):
                raise RuntimeError("a process of the explorer failed; its traceback is above")
            time.sleep(0.05)
        tally = said.get()
        if tally.seconds < 0:
            left -= 1
            continue
        whole.join(tally)
        whole.seconds = time.time() - began
        yield whole
    for worker in workers:
        worker.join()
