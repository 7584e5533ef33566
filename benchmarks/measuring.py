"""Timed runs side by side: interleaved repeats, medians with their spread, and ratios inside one repeat."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Arm", "Measured", "Spread", "interleave", "ratio", "say", "spread"]


@dataclass(frozen=True, slots=True)
class Measured:
    """One timed run.

    Attributes:
        events: moved. bytes: moved, event headers included. seconds: it took.
    """

    events: int
    bytes: int
    seconds: float

    @property
    def events_per_second(self) -> float:
        """Events a second."""
        return self.events / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        """10^6 bytes a second."""
        return self.bytes / self.seconds / 1e6


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the things that are compared.

    Attributes:
        name: as the table calls it.
        run: does it once; is told the repeat's number, from 0.
    """

    name: str
    run: Callable[[int], Measured]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest of some figures."""

    median: float
    low: float
    high: float


def interleave(
    arms: Sequence[Arm], repeats: int, settle: Callable[[], None], *, pairs: bool = False
) -> dict[str, list[Measured]]:
    """Run all arms once, then all again: A B C A B C, so that what disturbs the machine disturbs them alike.

    Args:
        arms: what is compared.
        repeats: how often each is run.
        settle: called before every run: what the one before has left to the servers is no part of it.
        pairs: whether neighbours change places in every other turn, A B then B A: who comes first may have it harder.
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
    """Median, least and greatest."""
    return Spread(statistics.median(figures), min(figures), max(figures))


def ratio(found: Mapping[str, Sequence[Measured]], name: str, peer: str) -> Spread:
    """How fast an arm is as a multiple of another: by each repeat, never across two."""
    pairs = zip(found[name], found[peer], strict=True)
    return spread([mine.events_per_second / other.events_per_second for mine, other in pairs])


def say(line: str) -> None:
    """Tell how the run goes on; the results alone go to standard output."""
    print(line, file=sys.stderr, flush=True)
