"""Progress on standard error: bars at a terminal, lines otherwise."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime

from streamvault.cli.output import plain, print_stderr
from streamvault.common.progress import Progress, RunningTasks, silences
from streamvault.common.units import bytes_text, seconds_text

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


_log = logging.getLogger("streamvault")

LINE_SECONDS = 10.0
"""Shortest time between two lines about a phase, unless `--progress-every` says otherwise."""


class LineProgress(Progress):
    """Progress without bars: notes, warnings and how far a phase is as lines, the rest as log lines of level *info*.

    Args:
        clock: returns seconds.
        every: shortest time between two lines about how far a phase is (seconds); 0 for no such lines.
        quiet: whether to leave out notes and warnings.
        logs: whether log lines of level *info* are written to standard error.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        every: float = LINE_SECONDS,
        quiet: bool = False,
        logs: bool = False,
    ) -> None:
        self._warned: set[str] = set()
        self._clock = clock
        self._every = every
        self._quiet = quiet
        self._logs = logs
        self._phase = Phase(clock=clock)
        self._told, self._told_at = (-1, 0), clock()

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:
        """Log the phase and its total size."""
        self._phase = Phase(what, total_bytes, done_bytes, self._clock)
        self._told, self._told_at = (-1, 0), self._clock()
        done = f", {bytes_text(done_bytes)} done before" if done_bytes else ""
        _log.info("%s: %s%s", self._phase.what, bytes_text(total_bytes), done)

    def advance(self, events: int, size: int) -> None:
        """Count them; say how far the phase is, if it is time."""
        self._phase.advance(events, size)
        self.tick()

    def watch(self, tasks: RunningTasks) -> AbstractContextManager[None]:
        """See `Progress.watch`."""
        return self._phase.watch(tasks)

    def tick(self) -> None:
        """Say how far the phase is, if it is time and that has changed, and which server does not answer."""
        if not self._every or self._clock() - self._told_at < self._every:
            return
        phase = self._phase
        now, texts = phase.look(), silences(phase.tasks)
        state = now, phase.read(now)
        if phase.what and (texts or state != self._told):
            how_far = f"{phase.what}: {bytes_text(now)} of {bytes_text(phase.total)}"
            texts = [", ".join(filter(None, [how_far, phase.speed(now)])), *texts]
        if texts:
            self._told, self._told_at = state, self._clock()
            self._tell("; ".join(texts))

    def say(self, text: str) -> None:
        """Log the text."""
        _log.info("%s", plain(text))

    def note(self, text: str) -> None:
        """Write the text."""
        self._line(text)

    def warn(self, text: str) -> None:
        """Write ``warning: …``, once for each text."""
        if text not in self._warned:
            self._warned.add(text)
            self._line(f"warning: {text}")

    def end(self) -> None:
        """See `Progress.end`."""
        self._phase = Phase(clock=self._clock)

    def _tell(self, text: str) -> None:
        """Write a line about the progress: a log line if those are written."""
        if self._logs:
            _log.info("%s", text)
        else:
            print_stderr(text, time=f"{datetime.now():%H:%M:%S}")  # noqa: DTZ005  (as log lines have it)

    def _line(self, text: str) -> None:
        if not self._quiet:
            print_stderr(text)


TICK_SECONDS = 0.5
"""How often to look at tasks that run."""


@contextmanager
def watching(every: float = LINE_SECONDS, *, quiet: bool = False, logs: bool = False) -> Iterator[LineProgress]:
    """Show progress in the form that suits standard error; always restore the terminal.

    Args:
        every: as for `LineProgress`; at a terminal, 0 leaves out the bars.
        quiet: whether to show nothing but errors.
        logs: as for `LineProgress`.
    """
    progress: LineProgress
    if quiet or not every or not sys.stderr.isatty():
        progress = LineProgress(every=0 if quiet else every, quiet=quiet, logs=logs)
    else:
        from rich.console import Console

        from streamvault.cli.progress_bars import BarProgress

        progress = BarProgress(Console(stderr=True, markup=False, emoji=False, highlight=False), every=every)
    ended = threading.Event()
    if not quiet and every:
        threading.Thread(target=_tick, args=(progress, ended), name="progress", daemon=True).start()
    try:
        yield progress
    finally:
        ended.set()
        progress.end()


def _tick(progress: LineProgress, ended: threading.Event) -> None:
    while not ended.wait(TICK_SECONDS):
        progress.tick()
