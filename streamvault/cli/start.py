"""What comes before all else: when the process started, and imports without the garbage collector."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STARTTIME = 22
"""Field of /proc/PID/stat (from 1) with the process's start time, in clock ticks since boot."""

_MAX_BEFORE_IMPORT = 600.0
"""Maximum plausible time until this module is imported (seconds); a larger value means a wrong clock."""


def _seconds_before_import() -> float:
    """Return the age of the process when this module was imported (seconds); 0 if unknown."""
    try:
        text = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
        # the second field is the program's name in parentheses, which may itself contain spaces and parentheses
        fields = text[text.rindex(")") + 2 :].split()
        started = int(fields[_STARTTIME - 3]) / os.sysconf("SC_CLK_TCK")
        lived = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (AttributeError, IndexError, OSError, ValueError):
        return 0.0
    return lived if 0.0 <= lived <= _MAX_BEFORE_IMPORT else 0.0


_BEFORE_IMPORT = _seconds_before_import()
_IMPORTED = time.monotonic()


def command_seconds() -> float:
    """Return the seconds since the process started; since this module's import if the start time is unknown."""
    return _BEFORE_IMPORT + time.monotonic() - _IMPORTED


@contextmanager
def without_collector() -> Iterator[None]:
    """Import in the block; afterwards, the collector runs as before, and passes over what exists by then.

    It would look through all classes again and again, and at the exit.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
