"""Deletions of an archive beside all that writes to it, and beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from testkit.explorer.explore import at_each_point, calls_of
from testkit.explorer.schedule import Schedule, Step

STOPPED = (
    "chunks/grown delete,export",
    "chunks/grown delete,write,rotate",
    "chunks/grown delete,hold",
    "events/grown delete,hold-first,delete",
    "chunks/grown delete,delete,export",
    "events/merged delete,compact,expire-all",
    "chunks/grown delete-unfinished,export,retain",
    "chunks/grown export,delete",
    "events/grown export,delete-unfinished",
    "chunks/grown rotate,delete",
    "chunks/grown rotate,delete-unfinished",
    "chunks/freed expire-all,delete",
    "chunks/merged compact,delete-unfinished",
    "chunks/joined clear,delete-unfinished",
    "chunks/grown hold,delete",
    "events/grown import,delete",
    "chunks/grown convert,delete",
    "chunks/grown check,delete",
    "chunks/grown repair,delete-unfinished",
    "chunks/grown handoff,delete",
    "chunks/grown follow-rotating,delete",
    "chunks/grown queue,delete;work",
    "chunks/new export,delete-unfinished,export",
    "chunks/grown/harsh delete,write,export",
    "chunks/grown/harsh rotate,delete",
)
"""The first command is stopped before each of its calls, the others run to their ends, then it goes on."""

KILLED = (
    "chunks/grown delete,export !,+!,:unavailable,+exists,:late",
    "events/grown delete,hold,delete !,+!,:late",
    "chunks/grown export,delete-unfinished +!,:late",
    "chunks/grown rotate,delete +!,:late",
)
"""As `STOPPED`, with what becomes of the call before which it was stopped."""

BESIDE = (
    "chunks/grown delete,export",
    "chunks/grown delete-unfinished,export",
    "chunks/grown delete,rotate",
    "chunks/grown delete,hold",
    "chunks/grown delete,delete",
)
"""Two commands that are each stopped before each of their calls."""

EVERY = 14
"""Of the schedules of `BESIDE`, each of this number is run; `bin/prove` runs all."""


def stopped(text: str) -> Iterator[Schedule]:
    """The schedules of a line of `STOPPED` or `KILLED`."""
    scene, commands, *faults = text.split()
    yield from at_each_point(scene, commands.replace(";", ",").split(","), faults[0].split(",") if faults else ("",))


def beside(text: str) -> Iterator[Schedule]:
    """The schedules of a line of `BESIDE`, in both orders: one stops, the other stops, then each goes on to its end."""
    scene, commands = text.split()
    names = tuple(commands.split(","))
    for one, two in ((0, 1), (1, 0)):
        first, second = (calls_of(scene, (names[place],))[0] for place in (one, two))
        for at, then in product(range(1, first + 1), range(1, second + 1)):
            yield Schedule(scene, names, (Step(one, at), Step(two, then), Step(one), Step(two)))
