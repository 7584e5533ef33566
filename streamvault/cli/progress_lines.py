"""Progress as lines on standard error, or in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime

from streamvault.cli.output import plain, print_stderr
from streamvault.cli.phases import Phase
from streamvault.common.progress import Progress
from streamvault.common.sizes import bytes_text
from streamvault.common.underway import RunningTasks, silences

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
