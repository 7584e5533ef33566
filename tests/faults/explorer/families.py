"""Which schedules are run: one command that is stopped, and what others do meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product

from tests.faults.explorer.explore import at_each_point, calls_of
from tests.faults.explorer.schedule import Schedule, Step

__all__ = ["ENDINGS", "combinations", "every", "sampled"]

STOPPED = (
    "export",
    "follow",
    "follow-rotating",
    "rotate",
    "expire",
    "expire-all",
    "queue",
    "compact",
    "hold",
    "hold-first",
    "import",
    "convert",
    "handoff",
    "handoff-stream",
    "other",
)
"""Commands that are stopped: an outside event takes one moment."""

CHAINS = tuple(
    tuple(text.split(","))
    for text in (
        "export",
        "rotate",
        "expire",
        "expire-all",
        "compact",
        "import",
        "convert",
        "handoff",
        "handoff-stream",
        "hold",
        "hold-first",
        "check",
        "follow",
        "follow-rotating",
        "write",
        "retain",
        "retain-half",
        "scale",
        "remake",
        "other",
        "export,retain",
        "write,export,retain",
        "export,retain,compact",
        "export,retain,write,export,expire-all",
        "export,compact,hour,compact",
        "compact,hour,compact",
        "compact,hour,compact,expire-all",
        "compact,write,export,compact,hour,compact",
        "expire-all,write,export",
        "hour,expire-all",
        "queue,work",
        "queue,hold-first,work",
        "rotate,write,rotate",
        "rotate,write,scale,write,rotate,compact",
        "retain,write,export",
        "export,remake,export",
        "remake,export",
        "export,scale,write,rotate",
        "handoff,write,export,handoff",
        "convert,write,export,convert",
        "hold,write,export,expire-all",
        "hold-first,release,expire-all",
        "write,export,write,export,write,export,compact,hour,compact",
    )
)
"""What runs to its end while the first command is stopped."""

BASES = ("new", "scaled", "grown", "grown-scaled", "freed", "merged")
LAYOUTS = ("events", "chunks", "zstd")

ENDINGS = ("", "!", "+!", ":unavailable", "+unavailable", ":denied", "+exists")
"""What becomes of the call that the first command was stopped before."""


@cache
def combinations(layouts: Sequence[str] = LAYOUTS) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Every scene with every command that is stopped and every chain."""
    return tuple(
        (f"{layout}/{base}", (stopped, *chain))
        for layout, base, stopped, chain in product(layouts, BASES, STOPPED, CHAINS)
    )


def every(endings: Sequence[str] = ENDINGS) -> Iterator[Schedule]:
    """One preemption: all of it."""
    for scene, commands in combinations():
        yield from at_each_point(scene, commands, endings)


@cache
def _calls(scene: str, commands: tuple[str, ...]) -> tuple[int, ...]:
    return calls_of(scene, commands)


def sampled(seed: int) -> Iterator[Schedule]:
    """Without end: one preemption mostly, also two, with all endings; some of what `every` has, in no order."""
    rng = random.Random(seed)
    all_of_them = combinations()
    while True:
        scene, commands = rng.choice(all_of_them)
        calls = _calls(scene, commands[:1])
        until = rng.randrange(1, max(calls[0], 1) + 1)
        ending = "" if rng.random() < 0.6 else rng.choice(ENDINGS[1:])
        others = [Step(place) for place in range(1, len(commands))]
        if rng.random() < 0.3:
            # the first of the others is stopped in its turn: before or after the first goes on
            second = Step(1, rng.randrange(1, 60))
            rest = [Step(0, None, ending), *others] if rng.random() < 0.5 else [*others[1:], Step(0, None, ending)]
            yield Schedule(scene, commands, (Step(0, until), second, *rest))
        else:
            yield Schedule(scene, commands, (Step(0, until), *others, Step(0, None, ending)))
