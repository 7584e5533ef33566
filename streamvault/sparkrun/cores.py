"""How many cores this process may use, and how many idle."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_STAT = Path("/proc/stat")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def allowed_cores() -> float:
    """Return the number of cores that this process may use: those of its affinity, or fewer by a container's quota."""
    allowed = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError):
        quota, period = _QUOTA.read_text().split()  # "max 100000" without a quota, see cgroups(7)
        allowed = min(allowed, int(quota) / int(period))
    return allowed


class IdleCores:
    """Measures how many of the cores that this process may use have idled since the object was made."""

    def __init__(self) -> None:
        self._first = _Reading.take()

    def count(self) -> float:
        """Return the mean number of idle cores."""
        now, first = _Reading.take(), self._first
        seconds = max(now.clock - first.clock, 1e-3)
        unused = allowed_cores() - (now.own - first.own) / seconds
        ticked = now.total - first.total
        if ticked <= 0:  # the system does not count
            return max(0.0, unused)
        idle = (now.idle - first.idle) / ticked * (os.cpu_count() or 1)
        return max(0.0, min(idle, unused))


class _Reading(NamedTuple):
    """Seconds of the clock and of this process's use, and the ticks of all cores: those they idled, and all."""

    clock: float
    own: float
    idle: int
    total: int

    @classmethod
    def take(cls) -> _Reading:
        used = os.times()
        ticks = [0] * 8
        with suppress(OSError, ValueError):
            # user, nice, system, idle, iowait, irq, softirq, steal, see proc(5)
            ticks = [int(text) for text in _STAT.read_text().partition("\n")[0].split()[1:9]]
        return cls(time.monotonic(), used.user + used.system, sum(ticks[3:5]), sum(ticks))
