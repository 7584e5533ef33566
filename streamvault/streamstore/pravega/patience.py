"""Retry policy for lost servers: retries with jitter until there was no progress for a total time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from streamvault.streamstore.errors import StreamStoreUnavailable

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0

FIRST_LOOK = 0.02
LONGEST_LOOK = 0.5


def unavailable(what: str, address: str, seconds: float) -> StreamStoreUnavailable:
    """Build the error for a server at ``HOST:PORT`` that could not be reached for some seconds."""
    return StreamStoreUnavailable(
        what,
        where=address,
        todo=f"Tried for {seconds:.0f} s; check that Pravega runs there and can be reached from this machine.",
    )


def pauses(seconds: float) -> Iterator[None]:
    """Yield until some seconds are over, each time after a longer pause; at once the first time."""
    pause, until = FIRST_LOOK, time.monotonic() + seconds
    while True:
        yield
        if time.monotonic() > until:
            return
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_LOOK)


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
