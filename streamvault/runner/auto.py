"""Chooses threads of this process or Spark on this machine, by what a run moves.

Spark takes about eight seconds of two cores to start, and brings processes, not cores. It pays where a run is long and
the machine has more cores than the threads of one process can use, which share the interpreter's lock.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from streamvault.common.errors import Problem
from streamvault.common.progress import Progress
from streamvault.runner.inline import InlineRunner
from streamvault.runner.runner import UNSEEN, Master, Runner

S = TypeVar("S")
R = TypeVar("R")

SPARK_BYTES = 8 << 30
"""A run that moves as much uses Spark: threads would need more than three times as long as its start."""

SPARK_CORES = 4
"""With fewer cores, threads are as fast."""

MAX_THREADS = 4
"""More threads would contend for the GIL; Spark runs each task in a process."""

_QUOTA = Path("/sys/fs/cgroup/cpu.max")

_log = logging.getLogger(__name__)


def allowed_cores() -> float:
    """Return the number of cores that this process may use: those of its affinity, or fewer by a container's quota."""
    allowed = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError):
        quota, period = _QUOTA.read_text().split()  # "max 100000" without a quota, see cgroups(7)
        allowed = min(allowed, int(quota) / int(period))
    return allowed


class AutoRunner(Runner):
    """Uses Spark for a large run and all later ones, and threads otherwise; a context manager.

    If Spark cannot be started, a warning is logged and threads run all tasks.
    """

    def __init__(self, master: Master, preload: Sequence[str]) -> None:
        self._master = master
        self._preload = preload
        self._threads = InlineRunner(min(master.threads, MAX_THREADS))
        self._lock = threading.Lock()
        self._chosen: Runner | None = None if allowed_cores() >= SPARK_CORES else self._threads
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._open.__exit__(kind, error, tb)

    def run(
        self, function: Callable[[S], R], specs: Sequence[S], progress: Progress = UNSEEN
    ) -> Iterator[tuple[int, R]]:
        """As `Runner.run`."""
        with self._lock:
            sizes = accumulate(getattr(spec, "size", 0) for spec in specs)
            if self._chosen is None and any(size >= SPARK_BYTES for size in sizes):
                self._chosen = self._start_spark()
            runner = self._chosen or self._threads
        yield from runner.run(function, specs, progress)

    def _start_spark(self) -> Runner:
        from streamvault.runner.spark import SparkRunner  # noqa: PLC0415  (Spark is imported only where it is used)

        _log.info("starting Spark: there is much to do")
        try:
            spark = self._open.enter_context(SparkRunner(self._master, self._preload))
        except Problem as problem:
            _log.warning("%s; continuing without Spark", problem)
            return self._threads
        self.start_seconds = spark.start_seconds
        return spark
