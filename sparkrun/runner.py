"""Running a function over many small specifications, somewhere: what every place has in common.

A task is one call of a function with one specification. It moves its data itself; what goes to it and what comes back
is small and can be pickled: a specification, and a result of one row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

__all__ = ["Runner"]

S = TypeVar("S")
R = TypeVar("R")


class Runner(ABC):
    """A place where tasks run; made by `sparkrun.opening.open_runner`.

    Attributes:
        start_seconds: how long it took to start the place (Spark's session); 0 if it was there already.
    """

    start_seconds: float = 0.0

    @abstractmethod
    def run(self, function: Callable[[S], R], specs: Sequence[S]) -> Iterator[tuple[int, R]]:
        """Call ``function`` with every specification, many at a time.

        The first result is asked for before anything runs. May be called from several threads, and again while an
        earlier run goes on. A task may run twice (Spark retries and speculates), its result comes once. Leaving the
        iteration early cancels what is left.

        Args:
            function: importable by its name, so a module's function (or a partial of one).
            specs: small values that can be pickled.

        Yields:
            (index of the specification, its result), in the order in which tasks finish; each index once.

        Raises:
            Problem: the first that a task raised, as it was raised; the other tasks are cancelled.
            TaskFailed: a task ended with any other error, after Spark's retries; in one line.
            SparkFailed: Spark went away.
        """
