"""How long the command has been running, counted from the start of its process."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["command_seconds"]

_STARTTIME = 22
"""The field of /proc/PID/stat (counted from 1) that has the start of the process, in clock ticks since boot."""

_MOST_BEFORE_IMPORT = 600.0
"""Seconds: nobody's interpreter takes longer to get here, so a larger figure is a broken clock."""


def _seconds_before_import() -> float:
    """How long the process had lived when this module was imported; 0 where that cannot be had."""
    try:
        text = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
        # the second field is the program's name in parentheses, and may hold blanks and parentheses itself
        fields = text[text.rindex(")") + 2 :].split()
        started = int(fields[_STARTTIME - 3]) / os.sysconf("SC_CLK_TCK")
        lived = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (AttributeError, IndexError, OSError, ValueError):
        return 0.0
    return lived if 0.0 <= lived <= _MOST_BEFORE_IMPORT else 0.0


_BEFORE_IMPORT = _seconds_before_import()
_IMPORTED = time.monotonic()


def command_seconds() -> float:
    """Seconds since the process started; where the kernel does not say when that was, since the import of this."""
    return _BEFORE_IMPORT + time.monotonic() - _IMPORTED
