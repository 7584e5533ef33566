"""Jobs that fill segments while more are created."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable

from streamvault.common.progress import Progress
from streamvault.importer.fill import Filled, FillTask, fill_segment
from streamvault.sparkrun.runner import Runner

STOP_SECONDS = 5.0
"""How long a failed import waits for running appends to end."""

JOBS_AT_ONCE = 4
"""Maximum batches of segments that are filled at the same time; each is one job of the runner."""


class FillJobs:
    """Fill jobs, which run while scales create more segments: a few at a time; further tasks wait for the next job."""

    def __init__(self, runner: Runner, progress: Progress) -> None:
        self._runner = runner
        self._progress = progress
        self._waiting: list[FillTask] = []
        self._running = 0
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._results: queue.SimpleQueue[Filled | BaseException | None] = queue.SimpleQueue()

    @property
    def idle(self) -> bool:
        """Whether no task waits or runs, and no result is left to take."""
        return not self._waiting and not self._running and self._results.empty()

    def add(self, tasks: Iterable[FillTask]) -> None:
        """Start or enqueue tasks."""
        self._waiting += tasks
        if self._waiting and self._running < JOBS_AT_ONCE:
            batch, self._waiting = self._waiting, []
            self._running += 1
            thread = threading.Thread(target=self._run, args=(batch,), name="fill job", daemon=True)
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]
            thread.start()

    def close(self) -> None:
        """Start nothing more, and wait some seconds for running jobs, which would disturb a run right after."""
        self._stopped.set()
        self._waiting = []
        deadline = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def next_result(self, seconds: float) -> Filled | None:
        """Return the next full segment, or None after ``seconds``; raise the error of a failed task."""
        try:
            result = self._results.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(result, BaseException):
            raise result
        if result is None:
            self._running -= 1
            self.add(())
        return result

    def _run(self, batch: list[FillTask]) -> None:
        try:
            for _, filled in self._runner.run(fill_segment, batch, self._progress):
                self._results.put(filled)
                if self._stopped.is_set():
                    break
        except BaseException as error:  # noqa: BLE001  (it is raised again where results are taken)
            self._results.put(error)
        self._results.put(None)
