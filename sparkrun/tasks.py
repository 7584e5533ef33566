"""The runner of a verb's tasks."""

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
    """A verb's runner, opened when first needed and shared by all its steps.

    Attributes:
        master: a Spark master, or ``"inline"``.
        stack: closes the runner.
    """

    master: str
    stack: ExitStack

    @cached_property
    def runner(self) -> Runner:
        """The runner."""
        return self.stack.enter_context(open_runner(self.master, TASK_MODULES))

    @property
    def start_seconds(self) -> float:
        """Start time of the runner; 0 if it was not needed."""
        return self.runner.start_seconds if "runner" in self.__dict__ else 0.0
