"""Sizes of a task's window: the maximum data it buffers in memory."""

from __future__ import annotations

from streamvault.common.errors import Usage
from streamvault.common.units import bytes_text

WINDOW = 64 * 1024 * 1024
"""Default window (bytes): a range of the default size."""

MIN_WINDOW = 16 * 1024 * 1024
"""Minimum window (bytes): an event of 8 MiB and a copy of it. Larger events are moved in parts."""


def check_window(window: int, whole: int = 0) -> None:
    """Reject a window that is too small.

    Args:
        window: the window (bytes).
        whole: size of a range that is written as one object (bytes), which must fit in the window.

    Raises:
        Usage: the window is too small.
    """
    if window < MIN_WINDOW:
        raise Usage(f"the window must be at least {bytes_text(MIN_WINDOW)}", where=f"--window {bytes_text(window)}")
    if window < whole:
        raise Usage(
            "the window must be at least the range size, because a chunk is written whole",
            where=f"--window {bytes_text(window)}, --range-size {bytes_text(whole)}",
            todo="Increase --window or, for a new archive, decrease --range-size.",
        )
