"""Progress on standard error: bars at a terminal, lines otherwise."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from streamvault.cli.progress_lines import LINE_SECONDS, LineProgress

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
