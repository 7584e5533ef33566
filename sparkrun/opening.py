"""Opening the place where tasks run, by its ``--master``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sparkrun.head_start import HeadStartRunner, head_start_seconds
from sparkrun.inline import InlineRunner
from sparkrun.masters import Master
from sparkrun.runner import Runner

__all__ = ["open_runner"]


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
        yield InlineRunner(where.threads)
        return
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
