"""How much a task may hold in memory of what is on its way."""

from __future__ import annotations

from common.errors import Usage
from common.sizes import bytes_text

__all__ = ["LEAST_WINDOW", "WINDOW", "check_window"]

WINDOW = 64 * 1024 * 1024
"""The default (bytes): a range of the default size."""

LEAST_WINDOW = 16 * 1024 * 1024
"""Room for an event of 8 MiB and a copy of it (bytes); larger ones are moved in parts."""


def check_window(window: int, whole: int = 0) -> None:
    """Refuse a window that is too small.

    Args:
        window: bytes.
        whole: what has to be held at once (bytes): a range that becomes one object.

    Raises:
        Usage: it is.
    """
    if window < LEAST_WINDOW:
        raise Usage(f"a window has {bytes_text(LEAST_WINDOW)} at least", where=f"--window {bytes_text(window)}")
    if window < whole:
        raise Usage(
            "a chunk is put whole, so the window must be at least the range size",
            where=f"--window {bytes_text(window)}, --range-size {bytes_text(whole)}",
            todo="Raise the one or, for a new archive, lower the other.",
        )
