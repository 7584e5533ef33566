"""Progress on standard error: bars at a terminal, log lines otherwise."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamvault.cli.output import plain, print_stderr
from streamvault.common.progress import PartProgress, Progress
from streamvault.common.sizes import bytes_text, count_text, seconds_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import Task, TaskID

_log = logging.getLogger("streamvault")

RATE_SECONDS = 30.0
"""How far back a rate looks."""

LINE_SECONDS = 10.0
"""Shortest time between two log lines about a phase."""


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
        self._lots: deque[tuple[float, int]] = deque()

    def add(self, size: int) -> None:
        """Count bytes as processed now."""
        with self._lock:
            now = self._clock()
            self._lots.append((now, size))
            self._forget(now)

    def per_second(self) -> float:
        """Return bytes per second, until now; 0 if none have been reported for a while."""
        with self._lock:
            now = self._clock()
            self._forget(now)
            return sum(size for _, size in self._lots) / max(now - self._from, 0.001)

    def _forget(self, now: float) -> None:
        while self._lots and self._lots[0][0] < now - RATE_SECONDS:
            self._from = self._lots.popleft()[0]


class LineProgress(Progress):
    """Progress without bars: warnings as lines, the rest as log lines of level *info*.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._warned: set[str] = set()
        self._clock = clock
        self._what, self._total, self._done = "", 0, 0
        self._logged = clock()
        self._rate = RecentRate(clock)

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:
        """Log the phase and its total size."""
        self._what, self._total, self._done = plain(what), total_bytes, done_bytes
        self._logged = self._clock()
        self._rate = RecentRate(self._clock)
        done = f", {bytes_text(done_bytes)} done before" if done_bytes else ""
        _log.info("%s: %s%s", self._what, bytes_text(total_bytes), done)

    def advance(self, events: int, size: int) -> None:  # noqa: ARG002
        """Log how far the phase is, if that was not logged in the last seconds."""
        self._rate.add(size)
        self._done += size
        if self._what and self._clock() - self._logged >= LINE_SECONDS:
            self._logged = self._clock()
            done, speed = bytes_text(self._done), _speed_text(self._rate, self._total - self._done)
            _log.info("%s", ", ".join(filter(None, [f"{self._what}: {done} of {bytes_text(self._total)}", speed])))

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

    def _line(self, text: str) -> None:
        print_stderr(text)


class BarProgress(LineProgress):
    """A bar with events, bytes, rate and remaining time; lines are written above it."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._bars: Bars | None = None
        self._task: TaskID | None = None
        self._events = 0

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:
        """Show a bar for the phase; the previous bar stays visible."""
        if self._bars is None:
            self._bars = _bars(self._console)
            self._bars.start()
        self._finish()
        self._events = 0
        self._rate = RecentRate()
        self._task = self._bars.add_task(
            plain(what), total=total_bytes, completed=done_bytes, events="", rate=self._rate
        )

    def advance(self, events: int, size: int) -> None:
        """Advance the bar."""
        if self._bars is not None and self._task is not None:
            self._events += events
            self._rate.add(size)
            self._bars.update(
                self._task, advance=size, events=count_text(self._events, "event") if self._events else ""
            )

    def say(self, text: str) -> None:
        """Write the text above the bar."""
        self._line(text)

    def part(self, name: str) -> Progress:
        """Return a progress that has a bar of its own while a phase of it lasts."""
        if self._bars is None:
            self._bars = _bars(self._console)
            self._bars.start()
        return _StreamBar(self, name, self._bars)

    def end(self) -> None:
        """Stop updating the bars and restore the terminal."""
        if self._bars is not None:
            self._finish()
            self._bars.stop()
        self._bars = self._task = None

    def _finish(self) -> None:
        if self._bars is not None and self._task is not None:
            self._bars.stop_task(self._task)
            self._task = None

    def _line(self, text: str) -> None:
        self._console.print(plain(text), soft_wrap=True)


class _StreamBar(PartProgress):
    """The bar of one of several streams; it disappears with the end of its phase."""

    def __init__(self, whole: Progress, name: str, bars: Bars) -> None:
        super().__init__(whole, name)
        self._bars = bars
        self._task: TaskID | None = None
        self._rate = RecentRate()

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:
        """See `Progress.begin`."""
        self.end()
        text = plain(f"{self.name}: {what}")
        self._rate = RecentRate()
        self._task = self._bars.add_task(text, total=total_bytes, completed=done_bytes, events="", rate=self._rate)

    def advance(self, events: int, size: int) -> None:  # noqa: ARG002
        """See `Progress.advance`."""
        if self._task is not None:
            self._rate.add(size)
            self._bars.update(self._task, advance=size)

    def end(self) -> None:
        """See `Progress.end`."""
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None


def _rate_text(task: Task) -> str:
    """Return the rate and how long the rest takes at it; once the phase has ended, how long it took."""
    if task.finished or task.stop_time is not None:
        return seconds_text(task.elapsed or 0)
    return _speed_text(task.fields["rate"], task.remaining or 0)


def _speed_text(rate: RecentRate, left: float) -> str:
    speed = rate.per_second()
    return f"{bytes_text(round(speed))}/s, {seconds_text(max(left, 0) / speed)} left" if speed else ""


def _bars(console: Console) -> Bars:
    from rich.progress import BarColumn, DownloadColumn, ProgressColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_rate_text(task))

    return Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[events]}", markup=False),
        DownloadColumn(binary_units=True),
        RateColumn(),
        console=console,
        redirect_stdout=False,
        redirect_stderr=False,
    )


@contextmanager
def watching() -> Iterator[LineProgress]:
    """Show progress in the form that suits standard error; always restore the terminal."""
    if not sys.stderr.isatty():
        yield LineProgress()
        return
    from rich.console import Console

    progress = BarProgress(Console(stderr=True, markup=False, emoji=False, highlight=False))
    try:
        yield progress
    finally:
        progress.end()
