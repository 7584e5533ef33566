"""Runs the product as a user does: as a command in its own process, whose peak memory the kernel records.

``VmHWM`` in ``/proc/PID/status`` is a process's peak resident size since its start, shared pages included, so
occasional polling misses only what happens after the last poll.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

EVERY_SECONDS = 0.05
WORKER = "streamvault.runner.daemon"
PEAKS = ("a task's process", "the command's process", "Spark's Java")


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

    @property
    def cells(self) -> list[str]:
        """The cells of a table's row below `PEAKS`."""
        return [f"{peak / 2**20:,.0f} MiB" for peak in (self.task, self.driver, self.java)]


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
            with suppress(psutil.Error):
                for process in (self._root, *self._root.children(recursive=True)):
                    self._look(process)

    def _look(self, process: psutil.Process) -> None:
        with suppress(psutil.Error, OSError):
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a command.

    Attributes:
        report: the report printed with ``--json``.
        seconds: wall time of its process.
        processor_seconds: CPU time of all its processes.
        peaks: peak memory of its processes; zeros if not watched.
    """

    report: dict[str, Any]
    seconds: float
    processor_seconds: float
    peaks: Peaks


def run_command(
    *arguments: str,
    environment: Mapping[str, str],
    watch: bool = False,
    checkout: Path | None = None,
) -> Outcome:
    """Run ``streamvault ARGUMENTS --json``.

    Args:
        arguments: the command's arguments.
        environment: variables to add to this process's own.
        watch: whether to measure its memory, which costs some CPU time.
        checkout: another checkout, after its ``bin/setup``, whose command to run instead of this one's.

    Raises:
        RuntimeError: the command failed; the message has its output.
    """
    python = sys.executable if checkout is None else str(checkout / ".venv/bin/python")
    before = _processor_seconds()
    began = time.monotonic()
    process = subprocess.Popen(
        [python, "-m", "streamvault", *arguments, "--json"],
        env={**os.environ, **environment},
        cwd=checkout,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with PeakWatch(process.pid) if watch else nullcontext() as peaks:
        try:
            out, err = process.communicate()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode != 0:
        raise RuntimeError(f"streamvault {' '.join(arguments)} ended with {process.returncode}:\n{err[-4000:]}")
    seconds = time.monotonic() - began
    return Outcome(json.loads(out), seconds, _processor_seconds() - before, peaks.peaks if peaks else Peaks(0, 0, 0))


def _processor_seconds() -> float:
    """Return the CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
