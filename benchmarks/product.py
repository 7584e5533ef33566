"""Runs the product as a user does: the command in a process of its own."""

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
    """What a command did.

    Attributes:
        report: what it printed with ``--json``.
        seconds: from the start of its process to its end.
        processor_seconds: of the processor, all its processes together.
        peaks: the greatest memory its processes took; zeros if nobody watched.
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
        arguments: of the command.
        environment: variables to add to this process's own.
        watch: whether to look after its memory, which costs some of the processor's time.
        head_start: whether tasks begin before Spark is there, as they do by default; or Spark runs them all.
        checkout: whose command to run instead of this one's, after its ``bin/setup``.

    Raises:
        RuntimeError: it failed; with what it said.
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
    """Of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
