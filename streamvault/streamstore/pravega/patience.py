"""Retry policy for lost servers: retries with jitter until there was no progress for a total time."""

from __future__ import annotations

from collections.abc import Iterator

from streamvault.common.retries import pauses
from streamvault.common.underway import PRAVEGA
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


def looks(seconds: float) -> Iterator[float]:
    """Yield when to look whether the controller has finished something: at once, then after growing pauses."""
    return pauses(seconds, first=FIRST_LOOK, longest=LONGEST_LOOK)


class Patience:
    """Counts the time since the last progress and pauses between attempts.

    Args:
        total: seconds without progress after which `pause` gives up.
    """

    def __init__(self, total: float) -> None:
        self._total = total
        self.progress()

    def progress(self) -> None:
        """Record progress: restart the count."""
        self._pauses = pauses(self._total, first=FIRST_PAUSE, longest=LONGEST_PAUSE, jitter=True, at_once=False)

    def pause(self, what: str, address: str) -> None:
        """Wait a little before the next attempt, longer each time.

        Raises:
            StreamStoreUnavailable: the time is over.
        """
        PRAVEGA.failed()
        if next(self._pauses, None) is None:
            raise unavailable(what, address, self._total)
