"""Runs the product as a user does: as a command in its own process."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peaks import Peaks, PeakWatch
from sparkrun.head_start import VARIABLE as HEAD_START

__all__ = ["Outcome", "run_command"]


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
    head_start: bool = False,
    checkout: Path | None = None,
) -> Outcome:
    """Run ``streamvault ARGUMENTS --json``.

    Args:
        arguments: the command's arguments.
        environment: variables to add to this process's own.
        watch: whether to measure its memory, which costs some CPU time.
        head_start: whether tasks start before Spark is ready, as by default; if False, Spark runs all of them.
        checkout: another checkout, after its ``bin/setup``, whose command to run instead of this one's.

    Raises:
        RuntimeError: the command failed; the message has its output.
    """
    whose = {} if head_start else {HEAD_START: "0"}
    python = sys.executable if checkout is None else str(checkout / ".venv/bin/python")
    before = _processor_seconds()
    began = time.monotonic()
    process = subprocess.Popen(
        [python, "-m", "streamvault", *arguments, "--json"],
        env={**os.environ, **environment, **whose},
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
