"""What goes away by itself, and trying again until it has."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from common.progress import Progress
from common.sizes import seconds_text
from objectstore.errors import ObjectStoreUnavailable
from streamstore.errors import StoreBusy, StreamStoreUnavailable
from streamstore.lease import LeaseHeld

__all__ = ["PASSING", "Endurance"]

PASSING = (StreamStoreUnavailable, ObjectStoreUnavailable, LeaseHeld, StoreBusy)
"""Nobody answers, or a server throttles or fails; somebody else is at it. Each was tried again for a while already."""

LONGEST_PAUSE = 60.0
TOLD_EVERY = 60.0
"""Seconds between two lines about one outage."""

T = TypeVar("T")


class Endurance:
    """Tries again what fails with one of `PASSING`, with growing pauses.

    Args:
        seconds: for how long, from the first failure on; anew whenever something was moved in between. 0: not at all.
        until: when it ends anyhow, on the monotonic clock (seconds).
        progress: told of the first failure, and of one a minute after that; and when it works again.

    Attributes:
        watched: the progress to give to what is tried: it passes on what it is told.
        retries: how often something was tried again.
    """

    def __init__(self, seconds: float, progress: Progress, *, until: float = math.inf) -> None:
        self.watched = _Watched(progress)
        self.retries = 0
        self._seconds = seconds
        self._until = until
        self._progress = progress
        self._counted_from = self._deadline = self._told = -math.inf
        self._backing_off = wait_random_exponential(multiplier=1, max=LONGEST_PAUSE)

    def __call__(self, work: Callable[[], T]) -> T:
        """What the work returns, once it does.

        Raises:
            Exception: what the work raised at its last try, or at its first if that does not pass.
        """
        first: float | None = None

        def tried() -> T:
            nonlocal first
            try:
                return work()
            except PASSING:
                now = time.monotonic()
                if first is None:
                    first, self._told = now, -math.inf
                if first == now or self.watched.advanced > self._counted_from:
                    self._counted_from, self._deadline = now, min(now + self._seconds, self._until)
                raise

        retrying = Retrying(
            retry=retry_if_exception_type(PASSING),
            stop=lambda _: time.monotonic() >= self._deadline,
            wait=lambda state: max(0.0, min(self._backing_off(state), self._deadline - time.monotonic())),
            before_sleep=self._tell,
            reraise=True,
        )
        result = retrying(tried)
        if first is not None:
            self._progress.note(f"it works again, after {seconds_text(time.monotonic() - first)}")
        return result

    def _tell(self, state: RetryCallState) -> None:
        self.retries += 1
        now = time.monotonic()
        if now - self._told < TOLD_EVERY or state.outcome is None:
            return
        self._told = now
        pause, left = seconds_text(state.upcoming_sleep), seconds_text(self._deadline - now)
        self._progress.note(f"trying again in {pause}, for {left} at most: {state.outcome.exception()}")


class _Watched(Progress):
    """Passes on what it is told, and notes when something was moved last."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.advanced = -math.inf

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:
        """See `Progress.begin`."""
        self._progress.begin(what, total_bytes, done_bytes)

    def advance(self, events: int, size: int) -> None:
        """See `Progress.advance`."""
        self.advanced = time.monotonic()
        self._progress.advance(events, size)

    def say(self, text: str) -> None:
        """See `Progress.say`."""
        self._progress.say(text)

    def note(self, text: str) -> None:
        """See `Progress.note`."""
        self._progress.note(text)

    def warn(self, text: str) -> None:
        """See `Progress.warn`."""
        self._progress.warn(text)

    def end(self) -> None:
        """See `Progress.end`."""
        self._progress.end()
