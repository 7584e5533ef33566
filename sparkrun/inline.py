"""Tasks as threads of this process: no Spark, no Java. For small jobs and quick tests."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from problems import Problem
from sparkrun.failures import task_failed
from sparkrun.runner import Runner

__all__ = ["InlineRunner"]

S = TypeVar("S")
R = TypeVar("R")

WIND_UP_SECONDS = 10.0
"""How long a run that failed waits for the tasks that are still at work: a thread cannot be killed."""


class InlineRunner(Runner):
    """Runs tasks in threads.

    Args:
        threads: how many tasks run at the same time.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads

    @property
    def parallelism(self) -> int:
        """How many threads there are."""
        return self._threads

    def run(self, function: Callable[[S], R], specs: Sequence[S]) -> Iterator[tuple[int, R]]:
        """As `Runner.run`."""
        tasks = _Tasks(function, specs)
        tasks.start(min(self._threads, len(specs)))
        try:
            for _ in specs:
                yield tasks.next_result()
        except (Exception, GeneratorExit):
            tasks.cancel()
            tasks.wait(WIND_UP_SECONDS)
            raise
        finally:
            tasks.cancel()


class _Tasks(Generic[S, R]):
    """The tasks of one run: what is left to do, and what is done and not yet taken (a small row each)."""

    def __init__(self, function: Callable[[S], R], specs: Sequence[S]) -> None:
        self._function = function
        self._todo = iter(enumerate(specs))
        self._lock = threading.Lock()
        self._done: queue.SimpleQueue[tuple[int, R] | BaseException] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, threads: int) -> None:
        for number in range(threads):
            # A daemon: Ctrl-C ends the process without waiting for the tasks.
            thread = threading.Thread(target=self._work, name=f"task {number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while not self._cancelled.is_set():
            with self._lock:
                task = next(self._todo, None)
            if task is None:
                return
            index, spec = task
            try:
                self._done.put((index, self._function(spec)))
            except BaseException as error:  # noqa: BLE001  (it is raised again where results are taken)
                self._cancelled.set()
                self._done.put(error)

    def next_result(self) -> tuple[int, R]:
        """The next that is done.

        Raises:
            Problem: the task did. TaskFailed: it raised something else.
        """
        done = self._done.get()
        if isinstance(done, Problem):
            raise done
        if isinstance(done, BaseException):
            raise task_failed(done) from done
        return done

    def cancel(self) -> None:
        """Start no more tasks."""
        self._cancelled.set()

    def wait(self, seconds: float) -> None:
        """Wait for the tasks that are at work."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
