"""Starts tasks at once in threads of this process; Spark on this machine joins where that pays.

A start of Spark takes some seconds of two cores, and brings processes, not cores. It pays if much is left to do and
cores idle, because the threads of one process share the interpreter's lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from streamvault.common.errors import Problem
from streamvault.common.progress import Progress
from streamvault.sparkrun.cores import IdleCores
from streamvault.sparkrun.inline import ThreadTasks
from streamvault.sparkrun.masters import Master
from streamvault.sparkrun.runner import UNSEEN, Runner, one

if TYPE_CHECKING:
    from streamvault.sparkrun.spark import SparkJob, SparkRunner

S = TypeVar("S")
R = TypeVar("R")

START_SECONDS = 8.0
"""About the start time of Spark on two cores."""

FACTOR = 3.0
"""Spark joins if the threads would need longer than this many starts for the tasks that have not begun."""

EARLY_SECONDS = 2.0
"""How long the rate is measured before Spark may join where several cores idle; elsewhere as long as a start takes."""

MAX_THREADS = 4
"""More threads would contend for the GIL; Spark runs each task in a process."""

POLL_SECONDS = 0.1
"""How often to check whether to start Spark, or whether it is ready."""

_log = logging.getLogger(__name__)


class Rate:
    """The rate of a run's tasks in this process, which decides whether Spark joins.

    Args:
        sizes: the sizes of the tasks, in the order in which they begin.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._upto = [0, *accumulate(sizes)]
        self._began = monotonic()
        self._cores = IdleCores()
        self._done = 0

    def add(self, index: int) -> None:
        """Count a task that has ended."""
        self._done += self._sizes[index]

    def asks_for_spark(self, unbegun: int) -> bool:
        """Return whether a start of Spark pays, with so many tasks that have not begun."""
        seconds = monotonic() - self._began
        left = self._upto[-1] - self._upto[-1 - unbegun]
        return pays(seconds, left / self._done * seconds if self._done else 0.0, self._cores.count)


def pays(seconds: float, left: float, idle_cores: Callable[[], float]) -> bool:
    """Return whether a start of Spark pays.

    Args:
        seconds: how long the run has lasted.
        left: how long its threads would need for the tasks that have not begun (seconds).
        idle_cores: returns the number of cores that idle; called only if it matters.
    """
    if left <= FACTOR * START_SECONDS or seconds < EARLY_SECONDS:
        return False
    idle = idle_cores()
    return idle >= 2 or (idle >= 1 and seconds >= START_SECONDS)


class HeadStartRunner(Runner):
    """Runs tasks in threads, and on Spark where that pays; a context manager.

    Runners with the same master share one Spark, which stops when the last of them ends. If Spark cannot be started, a
    warning is logged and threads run all tasks.
    """

    def __init__(self, master: Master, preload: Sequence[str]) -> None:
        self._master = master
        self._preload = preload
        self._threads = min(master.threads, MAX_THREADS)
        self._spark: _Spark | None = None

    def __enter__(self) -> Self:
        self._spark = _acquire(self._master, self._preload)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        spark, self._spark = self._spark, None
        if spark is not None:
            _release(spark, error)

    def run(
        self,
        function: Callable[[S], R],
        specs: Sequence[S],
        size: Callable[[S], int] = one,
        progress: Progress = UNSEEN,
    ) -> Iterator[tuple[int, R]]:
        """As `Runner.run`."""
        spark = self._spark
        if spark is None:
            raise RuntimeError("the runner is closed")
        if spark.runner is not None:
            yield from spark.runner.run(function, specs, progress=progress)
            return
        rate = Rate([size(spec) for spec in specs])
        job: SparkJob | None = None
        left = len(specs)
        with ExitStack() as watched, ThreadTasks(function, specs, self._threads) as tasks:
            watched.enter_context(progress.watch(tasks.under_way))
            try:
                while left:
                    if job is None and (spark.is_wanted or rate.asks_for_spark(tasks.unbegun)):
                        job = self._hand_over(spark, function, tasks)
                        if job is not None:
                            watched.enter_context(progress.watch(job.under_way))
                    try:
                        result = tasks.next_result(POLL_SECONDS)
                    except TimeoutError:
                        continue
                    left -= 1
                    rate.add(result[0])
                    yield result
            finally:
                if job is not None:
                    job.cancel()

    @staticmethod
    def _hand_over(place: _Spark, function: Callable[[S], R], tasks: ThreadTasks[S, R]) -> SparkJob | None:
        """Hand the tasks not yet started to Spark; None while it is not ready."""
        spark = place.wanted()
        rest = tasks.take_unbegun() if spark is not None else []
        if spark is None or not rest:
            return None
        job = spark.job(function, [spec for _, spec in rest])
        indices = [index for index, _ in rest]
        threading.Thread(target=_pass_on, args=(job, indices, tasks), name="results of Spark", daemon=True).start()
        return job


def _pass_on(job: SparkJob, indices: Sequence[int], tasks: ThreadTasks[Any, Any]) -> None:
    try:
        for index, result in job.results():
            tasks.add(indices[index], result)
    except BaseException as error:  # noqa: BLE001  (it is raised again where results are taken)
        tasks.fail(error)


class _Spark:
    """Spark, started in the background when first needed.

    Attributes:
        master: the master.
        users: number of runners that share it.
        runner: None until Spark is ready.
    """

    def __init__(self, master: Master, preload: Sequence[str]) -> None:
        self.master = master
        self.users = 0
        self._preload = preload
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._starting: SparkRunner | None = None
        self._stopped = False
        self.runner: SparkRunner | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether its start has begun."""
        return self._thread is not None

    def wanted(self) -> SparkRunner | None:
        """Start Spark if necessary; return the runner once it is ready, else None."""
        with self._lock:
            if self._thread is None and not self._stopped:
                _log.info("starting Spark: cores are idle, and much is left to do")
                self._thread = threading.Thread(target=self._start, name="start of Spark", daemon=True)
                self._thread.start()
        return self.runner

    def _start(self) -> None:
        try:
            from streamvault.sparkrun.spark import SparkRunner  # noqa: PLC0415  (Spark is imported only where it is used)

            starting = SparkRunner(self.master, self._preload)
            with self._lock:
                if self._stopped:
                    return
                self._starting = starting
            runner = starting.__enter__()
        except Problem as problem:
            if not self._stopped:
                _log.warning("%s; continuing without Spark", problem)
            return
        except Exception:
            if not self._stopped:  # PySpark fails in ways of its own once its context is stopped
                raise
            return
        with self._lock:
            if not self._stopped:
                self.runner = runner
                return
        runner.__exit__(None, None, None)

    def stop(self, error: BaseException | None) -> None:
        """Stop Spark, even while it is starting; ``error`` is what ended its use, if any."""
        with self._lock:
            self._stopped = True
            runner, self.runner = self.runner, None
            starting = self._starting
        if runner is not None:
            runner.__exit__(None if error is None else type(error), error, None)
        elif starting is not None and self._thread is not None and self._thread.is_alive():
            starting.give_up()


_lock = threading.Lock()
_shared: list[_Spark] = []


def _acquire(master: Master, preload: Sequence[str]) -> _Spark:
    with _lock:
        spark = next((one for one in _shared if one.master == master), None)
        if spark is None:
            spark = _Spark(master, preload)
            _shared.append(spark)
        spark.users += 1
        return spark


def _release(spark: _Spark, error: BaseException | None) -> None:
    with _lock:
        spark.users -= 1
        is_last = not spark.users
        if is_last:
            _shared.remove(spark)
    if is_last:
        spark.stop(error)
