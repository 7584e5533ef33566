"""Sizes of a task's window: the maximum data it buffers in memory."""

from __future__ import annotations

from common.errors import Usage
from common.sizes import bytes_text
from streamstore.model import ANY_EVENT_BYTES, MAX_EVENT_BYTES

__all__ = ["MIN_WINDOW", "WINDOW", "check_largest_event", "check_window"]

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


def check_largest_event(size: int) -> None:
    """Reject a maximum event size (bytes) below what every client may write, or above what a header can express.

    Raises:
        Usage: the size is out of bounds.
    """
    if not MAX_EVENT_BYTES <= size <= ANY_EVENT_BYTES:
        raise Usage(
            f"the largest event must be from {bytes_text(MAX_EVENT_BYTES)} to 2 GiB - 1 byte",
            where=f"--largest-event {bytes_text(size)}",
        )
