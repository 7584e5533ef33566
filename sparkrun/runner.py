"""Running a function over many small specifications, somewhere: what every place has in common.

A task is one call of a function with one specification. It moves its data itself; what goes to it and what comes back
is small and can be pickled: a specification, and a result of one row.
"""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from sparkrun.masters import Master

__all__ = ["Runner", "open_runner"]

S = TypeVar("S")
R = TypeVar("R")


class Runner(ABC):
    """A place where tasks run; made by `open_runner`.

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


@contextmanager
def open_runner(master: str = "local[*]", preload: Sequence[str] = ()) -> Iterator[Runner]:
    """A runner for a ``--master``, stopped at the end of the block.

    For Spark on this machine the tasks begin in threads of this process, and Spark is started when they last for more
    than ``STREAMVAULT_HEAD_START`` seconds (8; 0 starts it at once). A Spark that is there already is used at once.

    One Spark runs in a process: blocks inside of each other, or in several threads, share it. A Spark context that the
    program has started itself is used as it is, and left running.

    Args:
        master: a Spark master URL, or ``inline`` or ``inline[N]``: threads of this process, without Spark and Java.
        preload: modules that the tasks import: processes for tasks on this machine start with them loaded.

    Raises:
        InvalidMaster: no such kind of master.
        NoJava: Spark needs Java and there is none.
        SparkFailed: Spark did not start, or runs here already with another master.
        Usage: ``STREAMVAULT_HEAD_START`` is no number of seconds.
    """
    where = Master.parse(master)
    if where.kind == "inline":
        from sparkrun.inline import InlineRunner  # noqa: PLC0415  (it builds on this module)

        yield InlineRunner(where.threads)
        return
    from sparkrun.head_start import HeadStartRunner, head_start_seconds  # noqa: PLC0415  (likewise)

    seconds = head_start_seconds()
    if where.kind == "local" and seconds and not _is_spark_here():
        with HeadStartRunner(where, preload, seconds) as beginning:
            yield beginning
        return
    began = time.monotonic()
    from sparkrun.spark import SparkRunner  # noqa: PLC0415  (Spark is imported only where it is used)

    loading = time.monotonic() - began
    with SparkRunner(where, preload) as runner:
        if runner.start_seconds:
            runner.start_seconds += loading
        yield runner


def _is_spark_here() -> bool:
    """Whether a Spark runs in this process, or has started it."""
    loaded = sys.modules.get("pyspark.core.context")
    return "PYSPARK_GATEWAY_PORT" in os.environ or (
        loaded is not None and loaded.SparkContext._active_spark_context is not None  # noqa: SLF001
    )
