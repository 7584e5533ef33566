"""The runner interface: run a function over many small specifications.

A task is one call of the function with one specification. It moves its data itself; the specification it receives and
the one-row result it returns are small and picklable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from streamvault.common.progress import Progress

S = TypeVar("S")
R = TypeVar("R")


UNSEEN = Progress()
"""The progress of tasks that nobody watches."""


class Runner(ABC):
    """Runs tasks; opened by `sparkrun.opening.open_runner`.

    Attributes:
        start_seconds: start time of Spark; 0 if it was already running.
    """

    start_seconds: float = 0.0

    @abstractmethod
    def run(
        self,
        function: Callable[[S], R],
        specs: Sequence[S],
        progress: Progress = UNSEEN,
    ) -> Iterator[tuple[int, R]]:
        """Run the specifications concurrently; yield each result.

        Nothing runs before the first result is requested. May be called from several threads, and while an earlier run
        is in progress. A task may run twice (Spark retries and speculates), but its result is yielded once. Closing the
        iterator early cancels the remaining tasks.

        Args:
            function: a module-level function (or a partial of one), so that it is importable by name.
            specs: small picklable values. Those of tasks that move data have an attribute ``size``: how much (bytes).
            progress: watches the tasks that run on this machine.

        Yields:
            (index of the specification, its result), in the order in which tasks finish; each index once.

        Raises:
            Problem: the first one raised by a task; the other tasks are cancelled.
            TaskFailed: a task failed with any other error, after Spark's retries.
            SparkFailed: Spark ended unexpectedly.
        """
