"""How far a phase of a run is, how fast it goes, and how long the rest takes; nothing is shown here."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamvault.cli.output import plain
from streamvault.common.sizes import bytes_text, seconds_text
from streamvault.common.underway import RunningTasks

RATE_SECONDS = 30.0
"""How far back a rate looks."""

SETTLED_SECONDS = 5.0
"""How long bytes have to be reported before their rate says how long the rest takes: at first, tasks only start."""


class Phase:
    """How far a phase is: what its tasks have reported, and what those that run have acknowledged so far.

    Args:
        what: the phase, for display.
        total: its bytes.
        done: how many of them an earlier run has processed.
        clock: returns seconds.

    Attributes:
        tasks: the runs of tasks that are watched.
        rate: its rate.
        events: events of the tasks that have ended.
    """

    def __init__(
        self, what: str = "", total: int = 0, done: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.what, self.total = plain(what), total
        self.tasks: list[RunningTasks] = []
        self.rate = RecentRate(clock)
        self.events = 0
        self._done = self._seen = done

    @contextmanager
    def watch(self, tasks: RunningTasks) -> Iterator[None]:
        """See `Progress.watch`."""
        self.tasks.append(tasks)
        try:
            yield
        finally:
            self.tasks.remove(tasks)

    def advance(self, events: int, size: int) -> None:
        """See `Progress.advance`."""
        self.events += events
        self._done += size
        self.look()

    def look(self) -> int:
        """Return the bytes acknowledged until now, and let them count for the rate."""
        now = max(self._done, min(self._done + sum(one.acknowledged for one in list(self.tasks)), self.total))
        if now > self._seen:  # a task that begins again has less
            self.rate.add(now - self._seen)
            self._seen = now
        return now

    def speed(self, now: int) -> str:
        """Return the rate and, once it has settled, how long the rest takes at it.

        If there is no rate, return what was read and not acknowledged.
        """
        if text := _speed_text(self.rate, self.total - now):
            return text
        read = self.read(now)
        return f"{bytes_text(read)} more read" if read else ""

    def read(self, now: int) -> int:
        """Return the bytes that were read and are not acknowledged yet."""
        return min(sum(one.read for one in list(self.tasks)), max(self.total - now, 0))


class RecentRate:
    """How many bytes a second a phase has processed in the last seconds.

    Bytes are reported in lots, each when the last of them is done, so a lot counts from the report before it: two lots
    reported in a row after a minute are no burst.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # bars are drawn by a thread of their own
        self._from = clock()
        self._first: float | None = None
        self._lots: deque[tuple[float, int]] = deque()

    def add(self, size: int) -> None:
        """Count bytes as processed now."""
        with self._lock:
            now = self._clock()
            self._first = now if self._first is None else self._first
            self._lots.append((now, size))
            self._forget(now)

    def per_second(self) -> float:
        """Return bytes per second, until now; 0 if none have been reported for a while."""
        with self._lock:
            now = self._clock()
            self._forget(now)
            return sum(size for _, size in self._lots) / max(now - self._from, 0.001)

    def settled(self) -> bool:
        """Return whether bytes have been reported for long enough to foretell anything."""
        first = self._first
        return first is not None and self._clock() - first >= SETTLED_SECONDS

    def _forget(self, now: float) -> None:
        while self._lots and self._lots[0][0] < now - RATE_SECONDS:
            self._from = self._lots.popleft()[0]


def _speed_text(rate: RecentRate, left: float) -> str:
    if not (speed := rate.per_second()):
        return ""
    left_text = f", {seconds_text(max(left, 0) / speed)} left" if rate.settled() else ""
    return f"{bytes_text(round(speed))}/s{left_text}"
