"""Progress as bars at a terminal, which rich draws."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from streamvault.cli.output import plain, record
from streamvault.cli.progress import LINE_SECONDS, LineProgress, Phase
from streamvault.common.progress import SILENT_SECONDS, PartProgress, Progress, RunningTasks, silences
from streamvault.common.units import count_text, seconds_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import Task

WIDE_COLUMNS = 120
"""A narrower terminal gets a shorter bar, and no number of events, so that a bar stays on one line."""


class BarProgress(LineProgress):
    """A bar with events, bytes, rate and remaining time; lines are written above it."""

    def __init__(self, console: Console, *, every: float = LINE_SECONDS) -> None:
        super().__init__(every=every)
        self._console = console
        self._bars: Bars | None = None
        self._bar: _Bar | None = None
        self._streams: list[_StreamBar] = []

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:
        """Show a bar for the phase; the previous bar stays visible."""
        self._finish()
        self._phase = Phase(what, total_bytes, done_bytes)
        self._bar = _Bar(self._shown(), self._phase, done_bytes)

    def advance(self, events: int, size: int) -> None:
        """Advance the bar."""
        self._phase.advance(events, size)
        if self._bar is not None:
            self._bar.draw()

    def tick(self) -> None:
        """Draw how far the phases are, and which server does not answer."""
        bars = [one for one in (self._bar, *(stream.bar for stream in self._streams)) if one is not None]
        texts = silences([tasks for bar in bars for tasks in bar.phase.tasks])
        for bar in bars:
            bar.draw("; ".join(texts))
        if not bars:
            self._say_silences(texts)

    def say(self, text: str) -> None:
        """Write the text above the bar."""
        self._line(text)

    def part(self, name: str) -> Progress:
        """Return a progress that has a bar of its own while a phase of it lasts."""
        self._streams = [one for one in self._streams if one.bar is not None]
        self._streams.append(_StreamBar(self, name, self._shown()))
        return self._streams[-1]

    def end(self) -> None:
        """Stop updating the bars and restore the terminal."""
        if self._bars is not None:
            self._finish()
            self._bars.stop()
        self._bars = self._bar = None
        self._phase = Phase()

    def _shown(self) -> Bars:
        if self._bars is None:
            self._bars = _bars(self._console)
            self._bars.start()
        return self._bars

    def _finish(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _say_silences(self, texts: list[str]) -> None:
        if texts and self._every and self._clock() - self._told_at >= min(self._every, SILENT_SECONDS):
            self._told_at = self._clock()
            self._line("; ".join(texts))

    def _line(self, text: str) -> None:
        record(plain(text))
        self._console.print(plain(text), soft_wrap=True)


class _Bar:
    """One bar.

    Args:
        bars: where it is.
        phase: the phase that it shows.
        done: bytes that an earlier run has processed.
        name: what its text begins with.
    """

    def __init__(self, bars: Bars, phase: Phase, done: int, name: str = "") -> None:
        self.phase = phase
        self._bars = bars
        text = plain(name) + phase.what
        self._task = bars.add_task(text, total=phase.total, completed=done, events="", phase=phase, silences="")

    def draw(self, silences: str = "") -> None:
        """Draw it as it is now."""
        events = count_text(self.phase.events, "event") if self.phase.events else ""
        with suppress(KeyError):  # it has been removed
            self._bars.update(self._task, completed=self.phase.look(), events=events, silences=silences)

    def stop(self) -> None:
        """Leave it as it is."""
        self.draw()
        self._bars.stop_task(self._task)

    def remove(self) -> None:
        """Take it away."""
        self._bars.remove_task(self._task)


class _StreamBar(PartProgress):
    """The bar of one of several streams; it disappears with the end of its phase.

    Attributes:
        bar: the bar; None if there is no phase.
    """

    def __init__(self, whole: Progress, name: str, bars: Bars) -> None:
        super().__init__(whole, name)
        self._bars = bars
        self.bar: _Bar | None = None

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:
        """See `Progress.begin`."""
        self.end()
        self.bar = _Bar(self._bars, Phase(what, total_bytes, done_bytes), done_bytes, f"{self.name}: ")

    def advance(self, events: int, size: int) -> None:  # noqa: ARG002
        """See `Progress.advance`."""
        if (bar := self.bar) is not None:
            bar.phase.advance(0, size)
            bar.draw()

    def watch(self, tasks: RunningTasks) -> AbstractContextManager[None]:
        """See `Progress.watch`."""
        return nullcontext() if self.bar is None else self.bar.phase.watch(tasks)

    def end(self) -> None:
        """See `Progress.end`."""
        bar, self.bar = self.bar, None
        if bar is not None:
            bar.remove()


def _rate_text(task: Task) -> str:
    """Return what `Phase.speed` says; once the phase has ended, how long it took."""
    if task.finished or task.stop_time is not None:
        return seconds_text(task.elapsed or 0)
    text: str = task.fields["silences"] or task.fields["phase"].speed(int(task.completed))
    return text


def _bars(console: Console) -> Bars:
    from rich.progress import BarColumn, DownloadColumn, ProgressColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.table import Column
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_rate_text(task))

    narrow = console.width < WIDE_COLUMNS
    longest = max(8, console.width - (68 if narrow else 96))  # the other columns take so much at most
    return Bars(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, max_width=longest)),
        BarColumn(bar_width=12 if narrow else 24),
        TextColumn("{task.percentage:>3.0f} %"),
        *([] if narrow else [TextColumn("{task.fields[events]}", markup=False)]),
        DownloadColumn(binary_units=True),
        RateColumn(),
        console=console,
        redirect_stdout=False,
        redirect_stderr=False,
    )
