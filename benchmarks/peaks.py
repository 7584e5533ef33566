"""Peak memory of a command's processes, as recorded by the kernel.

``VmHWM`` in ``/proc/PID/status`` is a process's peak resident size since its start, shared pages included. The kernel
records it, so occasional polling misses only what happens after the last poll.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

__all__ = ["PeakWatch", "Peaks"]

EVERY_SECONDS = 0.05
WORKER = "sparkrun.daemon"


@dataclass(frozen=True, slots=True)
class Peaks:
    """Peak resident size of a single process of each kind (bytes); 0 if there was none.

    Attributes:
        task: Spark's Python workers, in which the tasks run.
        driver: the command itself.
        java: Spark.
    """

    task: int
    driver: int
    java: int


class PeakWatch:
    """Context manager that watches a process and its descendants; `peaks` returns the result."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._found = {"task": 0, "driver": 0, "java": 0}
        self._kinds: dict[psutil.Process, str] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def peaks(self) -> Peaks:
        """Return the peaks so far."""
        return Peaks(**self._found)

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            with contextlib.suppress(psutil.Error):
                for process in (self._root, *self._root.children(recursive=True)):
                    self._look(process)

    def _look(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.Error, OSError):
            kind = self._kinds.get(process) or self._kind(process)
            if kind:
                self._found[kind] = max(self._found[kind], _high_water_mark(process.pid))

    def _kind(self, process: psutil.Process) -> str:
        """Return a process's kind; not stored until known, because a new process starts as a copy of its parent."""
        command = process.cmdline()
        if WORKER in command:
            kind = "task"
        elif process == self._root:
            kind = "driver"
        elif command and Path(command[0]).name == "java":
            kind = "java"
        else:
            return ""
        self._kinds[process] = kind
        return kind


def _high_water_mark(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
