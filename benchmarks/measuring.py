"""Comparison of timed runs: interleaved repeats, medians with their spread, and ratios within a repeat."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """One timed run.

    Attributes:
        events: number of events moved.
        bytes: bytes moved, event headers included.
        seconds: duration.
        processor_seconds: CPU time of its own processes, not of the servers; 0 if it was not measured.
        work_seconds: duration of a command's work, from the plan to the commit; 0 if it is not a command.
    """

    events: int
    bytes: int
    seconds: float
    processor_seconds: float = 0.0
    work_seconds: float = 0.0

    @property
    def events_per_second(self) -> float:
        """Events per second."""
        return self.events / self.seconds

    @property
    def seconds_per_event(self) -> float:
        """Seconds for an event."""
        return self.seconds / self.events

    @property
    def megabytes_per_second(self) -> float:
        """10^6 bytes per second."""
        return self.bytes / self.seconds / 1e6


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a comparison.

    Attributes:
        name: name in the table.
        run: runs it once, given the number of the repeat, from 0.
    """

    name: str
    run: Callable[[int], Measured]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, minimum and maximum."""

    median: float
    low: float
    high: float


def interleave(
    arms: Sequence[Arm], repeats: int, settle: Callable[[], None], *, pairs: bool = False
) -> dict[str, list[Measured]]:
    """Run the arms in turns, A B C A B C, so that disturbances of the machine affect all of them.

    Args:
        arms: the arms.
        repeats: number of runs of each arm.
        settle: called before each run; waits until the servers have finished the work of the previous run.
        pairs: whether adjacent arms swap places in every other turn, A B then B A, because the first may be slower.
    """
    found: dict[str, list[Measured]] = {arm.name: [] for arm in arms}
    swapped = [arm for at in range(0, len(arms), 2) for arm in reversed(arms[at : at + 2])]
    for repeat in range(repeats):
        for arm in swapped if pairs and repeat % 2 else arms:
            settle()
            measured = arm.run(repeat)
            say(
                f"  {repeat + 1}/{repeats} {arm.name}: {measured.events:,} events in {measured.seconds:.1f} s, "
                f"{measured.events_per_second:,.0f}/s"
            )
            found[arm.name].append(measured)
    return found


def spread(figures: Sequence[float]) -> Spread:
    """Return median, minimum and maximum."""
    return Spread(statistics.median(figures), min(figures), max(figures))


def ratio(found: Mapping[str, Sequence[Measured]], name: str, peer: str) -> Spread:
    """Return an arm's speed as a multiple of another's, computed within each repeat."""
    return compare(found, name, peer, lambda mine, other: mine.events_per_second / other.events_per_second)


def compare(
    found: Mapping[str, Sequence[Measured]], name: str, peer: str, figure: Callable[[Measured, Measured], float]
) -> Spread:
    """Return a figure of an arm's run and another arm's, computed within each repeat."""
    return spread([figure(mine, other) for mine, other in zip(found[name], found[peer], strict=True)])


def say(line: str) -> None:
    """Print progress to standard error; only results go to standard output."""
    print(line, file=sys.stderr, flush=True)
