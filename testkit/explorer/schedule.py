"""How a schedule is written: ``SCENE COMMAND,… STEP …``, as in ``chunks/new export,export,retain 1@17 2 3``.

A step lets the command of that place (from 1 on) go on: to its end, or with ``@N`` until it is about to make its N-th
call of a store. What may stand between the two says what becomes of the call that the command was stopped before:

- ``!``: the command is killed there. ``+!``: the call takes effect, then the command is killed.
- ``:ERROR``: the call fails. ``+ERROR``: it takes effect, but the command is told that it failed (`FAULTS`).
- ``:late``: the command is told that the store is away, and the request takes effect later (the command ``arrive``).

Once the steps are through, commands that have not ended go on to their ends in the order of their places.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FAULTS = ("unavailable", "denied", "full", "exists", "late")
_STEP = re.compile(r"(?P<actor>[1-9][0-9]?)(?P<fault>\+?!|[:+][a-z]+)?(?:@(?P<until>[0-9]+))?\Z")


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        actor: place of the command, from 0 on. until: the number of the call that it stops before; None: its end.
        fault: what becomes of the call that it was stopped before; empty: it is made.
    """

    actor: int
    until: int | None = None
    fault: str = ""

    def __str__(self) -> str:
        return f"{self.actor + 1}{self.fault}{'' if self.until is None else f'@{self.until}'}"

    @classmethod
    def parse(cls, text: str) -> Step:
        match = _STEP.match(text)
        fault = (match and match["fault"]) or ""
        if not match or (fault.lstrip(":+!") and fault.lstrip(":+") not in FAULTS):
            raise ValueError(f"not a step: {text!r}")
        return cls(int(match["actor"]) - 1, int(match["until"]) if match["until"] else None, fault)


@dataclass(frozen=True, slots=True)
class Schedule:
    """What runs, where, and in which order."""

    scene: str
    commands: tuple[str, ...]
    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.scene, ",".join(self.commands), *map(str, self.steps)])

    @classmethod
    def parse(cls, text: str) -> Schedule:
        scene, commands, *steps = text.split()
        return cls(scene, tuple(commands.split(",")), tuple(map(Step.parse, steps)))
