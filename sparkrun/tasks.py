"""The place where a verb's tasks run."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from sparkrun.opening import open_runner
from sparkrun.preload import TASK_MODULES
from sparkrun.runner import Runner

__all__ = ["Tasks"]


@dataclass
class Tasks:
    """The place where tasks run, opened when it is first needed and shared by all steps of a verb.

    Attributes:
        master: a Spark master, or ``"inline"``. stack: closes it.
    """

    master: str
    stack: ExitStack

    @cached_property
    def runner(self) -> Runner:
        """The place."""
        return self.stack.enter_context(open_runner(self.master, TASK_MODULES))

    @property
    def start_seconds(self) -> float:
        """How long it took to start; 0 if it was not needed."""
        return self.runner.start_seconds if "runner" in self.__dict__ else 0.0
