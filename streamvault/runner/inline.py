"""Runs tasks in threads of this process, without Spark and Java. For small jobs and quick tests."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import TracebackType
from typing import Generic, Self, TypeVar

from streamvault.common.errors import Problem
from streamvault.common.progress import Progress, RunningTasks
from streamvault.runner.runner import UNSEEN, Runner, task_failed

S = TypeVar("S")
R = TypeVar("R")

WIND_UP_SECONDS = 10.0
"""How long a failed run waits for running tasks: a thread cannot be killed."""


_slots: threading.Semaphore | None = None


@contextmanager
def sharing_threads(threads: int) -> Iterator[None]:
    """Run at most ``threads`` tasks at the same time in this process while the block runs, of all runs together."""
    global _slots  # noqa: PLW0603
    before, _slots = _slots, threading.Semaphore(threads)
    try:
        yield
    finally:
        _slots = before


class InlineRunner(Runner):
    """Runs tasks in threads, at most ``threads`` at the same time."""

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def run(
        self, function: Callable[[S], R], specs: Sequence[S], progress: Progress = UNSEEN
    ) -> Iterator[tuple[int, R]]:
        """As `Runner.run`."""
        with ThreadTasks(function, specs, self._threads) as tasks, progress.watch(tasks.under_way):
            for _ in range(len(specs)):
                yield tasks.next_result()


class ThreadTasks(Generic[S, R]):
    """The tasks of one run: those not yet started, and results not yet taken (a small row each).

    A context manager: on exit no more tasks start; after an error it waits a while for the running ones.

    Attributes:
        under_way: how far its tasks are.
    """

    def __init__(self, function: Callable[[S], R], specs: Sequence[S], threads: int) -> None:
        self.under_way = RunningTasks()
        self._function = function
        self._most = min(threads, len(specs))
        self._specs, self._todo = specs, iter(range(len(specs)))
        self._done: queue.SimpleQueue[tuple[int, R] | BaseException] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for number in range(self._most):
            # A daemon: Ctrl-C ends the process without waiting for the tasks.
            thread = threading.Thread(target=self._work, name=f"task {number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._cancelled.set()
        if isinstance(error, (Exception, GeneratorExit)):
            deadline = time.monotonic() + WIND_UP_SECONDS
            for thread in self._threads:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while not self._cancelled.is_set():
            with _slots or nullcontext():
                if (index := next(self._todo, None)) is None:
                    return
                try:
                    with self.under_way.task(index):
                        result = self._function(self._specs[index])
                    self._done.put((index, result))
                except BaseException as error:  # noqa: BLE001  (it is raised again where results are taken)
                    self._cancelled.set()  # no more tasks start
                    self._done.put(error)

    def next_result(self) -> tuple[int, R]:
        """Return the next result.

        Raises:
            Problem: raised by a task.
            TaskFailed: a task raised any other error.
        """
        done = self._done.get()
        if isinstance(done, Problem):
            raise done
        if isinstance(done, BaseException):
            raise task_failed(done) from done
        self.under_way.taken(done[0])
        return done
