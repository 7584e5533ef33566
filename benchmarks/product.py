"""Runs the product as a user does: the command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
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
        peaks: the greatest memory its processes took; zeros if nobody watched.
    """

    report: dict[str, Any]
    seconds: float
    peaks: Peaks


def run_command(
    *arguments: str, environment: Mapping[str, str], watch: bool = False, head_start: bool = False
) -> Outcome:
    """Run ``streamvault ARGUMENTS --json``.

    Args:
        arguments: of the command.
        environment: variables to add to this process's own.
        watch: whether to look after its memory, which costs some of the processor's time.
        head_start: whether tasks begin before Spark is there, as they do by default; or Spark runs them all.

    Raises:
        RuntimeError: it failed; with what it said.
    """
    whose = {} if head_start else {HEAD_START: "0"}
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "streamvault", *arguments, "--json"],
        env={**os.environ, **environment, **whose},
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
    return Outcome(json.loads(out), time.monotonic() - began, peaks.peaks if peaks else Peaks(0, 0, 0))
