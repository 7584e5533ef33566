"""Retry policy for lost servers: retries with jitter until there was no progress for a total time."""

from __future__ import annotations

import random
import time

from streamstore.errors import StreamStoreUnavailable

__all__ = ["Patience", "unavailable"]

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0


def unavailable(what: str, address: str, seconds: float) -> StreamStoreUnavailable:
    """Build the error for an unreachable server.

    Args:
        what: the fact, e.g. ``"a Pravega segment store does not answer"``.
        address: ``HOST:PORT``.
        seconds: how long it was tried.
    """
    return StreamStoreUnavailable(
        what,
        where=address,
        todo=f"Tried for {seconds:.0f} s; check that Pravega runs there and can be reached from this machine.",
    )


class Patience:
    """Counts the time since the last progress and pauses between attempts.

    Args:
        total: seconds without progress after which `pause` gives up.
    """

    def __init__(self, total: float) -> None:
        self._total = total
        self._since: float | None = None
        self._pause = FIRST_PAUSE

    def progress(self) -> None:
        """Record progress: restart the count."""
        self._since = None
        self._pause = FIRST_PAUSE

    def pause(self, what: str, address: str) -> None:
        """Wait a little before the next attempt, longer each time.

        Raises:
            StreamStoreUnavailable: the time is over.
        """
        now = time.monotonic()
        if self._since is None:
            self._since = now
        left = self._since + self._total - now
        if left <= 0:
            raise unavailable(what, address, now - self._since)
        time.sleep(min(left, random.uniform(0.5, 1.0) * self._pause))  # noqa: S311  (jitter, no secret)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
