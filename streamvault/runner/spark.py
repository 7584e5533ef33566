"""Runs tasks on Spark: one job per run, one task per specification (or a few), results as tasks finish."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import cloudpickle
from pyspark.accumulators import Accumulator, AccumulatorParam, _accumulatorRegistry

from streamvault.common.errors import Problem
from streamvault.common.progress import MappedTasks, Progress, RunningTasks, mapped_task
from streamvault.runner.runner import UNSEEN, Master, Runner, SparkFailed, task_failed
from streamvault.runner.session import Session, acquire, call_in_thread, release

S = TypeVar("S")
R = TypeVar("R")

CANCEL_SECONDS = 5.0
"""How long a run that ends early waits for Spark to cancel its job."""

MAX_TASKS = 1000
"""Maximum tasks per job; more specifications share tasks, as 10,000 small segments would overload the scheduler."""

PATIENCE_SECONDS = 30.0
"""Seconds without any executor before the user is warned."""

_log = logging.getLogger(__name__)
_numbers = itertools.count(1)


class SparkRunner(Runner):
    """Runs tasks on Spark; a context manager that shares the process's session."""

    def __init__(self, master: Master, preload: Sequence[str] = ()) -> None:
        self._master = master
        self._preload = preload
        self._session: Session | None = None

    def __enter__(self) -> Self:
        self._session, fresh = acquire(self._master, self._preload)
        self.start_seconds = self._session.start_seconds if fresh else 0.0
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        session, self._session = self._session, None
        if session is not None:
            release(session)

    def run(
        self, function: Callable[[S], R], specs: Sequence[S], progress: Progress = UNSEEN
    ) -> Iterator[tuple[int, R]]:
        """As `Runner.run`."""
        if not specs:
            return
        if self._session is None:
            raise RuntimeError("the runner is closed")
        job = SparkJob(self._session, function, specs)
        try:
            with progress.watch(job.under_way):
                yield from job.results()
        finally:
            job.cancel()


class SparkJob:
    """A Spark job of at least one specification, submitted by its own thread, which waits for the end.

    Results arrive through an accumulator: Spark passes a task's part to the driver when the task finishes, and only for
    its first successful attempt.

    Attributes:
        under_way: how far its tasks are; of those on other machines, nothing is known until they end.
    """

    def __init__(self, session: Session, function: Callable[[Any], Any], specs: Sequence[Any]) -> None:
        self._session = session
        self._specs = specs
        self._name = f"streamvault-{next(_numbers)}"
        # Holds a small row a specification at most.
        self._results: queue.SimpleQueue[tuple[int, bytes] | BaseException | None] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self.under_way: RunningTasks = RunningTasks()
        place = "", ""
        if session.master.kind == "local":
            self.under_way = mapped = MappedTasks(len(specs))
            place = mapped.place
        session.warn_of_logins(function, specs[0])
        self._task = _Task(function, place, session.context.accumulator([], _Deliver(self._results.put)))
        self._thread = threading.Thread(target=self._submit, name=self._name, daemon=True)
        self._thread.start()

    def _submit(self) -> None:
        try:
            context = self._session.context
            context.setJobGroup(self._name, self._name, interruptOnCancel=True)
            if not self._cancelled.is_set():
                rows = context.parallelize(list(enumerate(self._specs)), min(len(self._specs), MAX_TASKS))
                rows.foreachPartition(self._task)
        except BaseException as error:  # noqa: BLE001  (it is raised again where results are taken)
            self._results.put(self._failure(error))
        else:
            self._results.put(None)
        finally:
            _accumulatorRegistry.pop(self._task.left.aid, None)
            self.under_way.close()

    def _failure(self, error: BaseException) -> BaseException:
        """Translate the failure of a job for the user."""
        if not isinstance(error, Exception) or self._cancelled.is_set():
            return error
        if isinstance(error, Py4JJavaError):
            return task_failed(str(error.java_exception.toString()))
        if isinstance(error, (Py4JError, OSError, EOFError)):
            _log.debug("lost the connection to Spark", exc_info=error)
            return SparkFailed("Spark's process ended during the run", where=self._session.last_words)
        return task_failed(error)

    def results(self) -> Iterator[tuple[int, Any]]:
        """Yield the results as `Runner.run`; call it once."""
        seen: set[int] = set()
        for index, outcome in self._outcomes():
            if index in seen:
                continue
            seen.add(index)
            self.under_way.taken(index)
            result, problem = cloudpickle.loads(outcome)
            if problem is not None:
                raise problem
            yield index, result
        if len(seen) < len(self._specs):
            raise SparkFailed(f"Spark ended the job after {len(seen)} of {len(self._specs)} results")

    def _outcomes(self) -> Iterator[tuple[int, bytes]]:
        """Yield the outcomes of tasks as they finish.

        Raises:
            TaskFailed, SparkFailed: the job failed.
        """
        warned = False
        while True:
            try:
                result = self._results.get(timeout=PATIENCE_SECONDS)
            except queue.Empty:
                if not warned and self._session.has_no_executor():
                    warned = True
                    _log.warning("waiting for an executor from %s", self._session.master.url)
                continue
            if result is None:
                return
            if isinstance(result, BaseException):
                raise result
            yield result

    def cancel(self) -> None:
        """End the job if it still runs; its tasks are killed within a second."""
        self._cancelled.set()
        deadline = time.monotonic() + CANCEL_SECONDS
        with suppress(TimeoutError, Py4JError, OSError):
            # More than once: the thread may be just about to submit.
            while self._thread.is_alive() and time.monotonic() < deadline:
                call_in_thread(lambda: self._session.context.cancelJobGroup(self._name), CANCEL_SECONDS)
                self._thread.join(0.1)


class _Task:
    """Runs on an executor: calls the function for the specifications of one partition."""

    def __init__(
        self, function: Callable[[Any], Any], words: tuple[str, str], left: Accumulator[list[tuple[int, bytes]]]
    ) -> None:
        self.function = function
        self.words = words
        self.left = left

    def __call__(self, rows: Iterable[tuple[int, Any]]) -> None:
        for index, spec in rows:
            outcome: tuple[Any, Problem | None]
            try:
                with mapped_task(self.words, index):
                    outcome = self.function(spec), None
            except Problem as problem:  # a value: Spark must neither try again nor print a traceback
                outcome = None, problem
            self.left.add([(index, cloudpickle.dumps(outcome))])  # type: ignore[no-untyped-call]


class _Collect(AccumulatorParam[list[tuple[int, bytes]]]):
    """On an executor: a list."""

    def zero(self, value: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:  # noqa: ARG002
        return []

    def addInPlace(  # noqa: N802  (Spark's name)
        self, value1: list[tuple[int, bytes]], value2: list[tuple[int, bytes]]
    ) -> list[tuple[int, bytes]]:
        return value1 + value2


class _Deliver(_Collect):
    """On the driver: hands each finished task's part on; sent to an executor, it is a `_Collect`."""

    def __init__(self, deliver: Callable[[tuple[int, bytes]], None]) -> None:
        self._deliver = deliver

    def addInPlace(  # noqa: N802
        self, value1: list[tuple[int, bytes]], value2: list[tuple[int, bytes]]
    ) -> list[tuple[int, bytes]]:
        for outcome in value2:
            self._deliver(outcome)
        return value1

    def __reduce__(self) -> tuple[type[_Collect], tuple[()]]:
        return _Collect, ()
