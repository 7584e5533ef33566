"""Calls that run side by side in threads of one command: they take turns, and end together.

A verb that waits does so by `pause`. In a joint run, that leaves the turn to another call, and ends the call if the run
is to end: as Ctrl-C ends what runs in the main thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOOK_SECONDS = 1.0
"""How often a call that waits for its turn looks whether the run is to end."""

_here = threading.local()


class JointRun:
    """Calls of which a limited number has its turn at the same time.

    Args:
        at_once: how many.
        rests: called in a call's thread whenever it leaves its turn; None for nothing.
    """

    def __init__(self, at_once: int, rests: Callable[[], None] | None = None) -> None:
        self._turns = threading.Semaphore(at_once)
        self._rests = rests
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Make each call end at its next `pause` or `check`, by a `KeyboardInterrupt` in its thread."""
        self._stopping.set()

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if the run is to end."""
        if self._stopping.is_set():
            raise KeyboardInterrupt

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Run the block as one of the calls, once it is its turn.

        Raises:
            KeyboardInterrupt: the run is to end.
        """
        _here.run = self
        try:
            self._begin()
            yield
        finally:
            _here.run = None
            self._turns.release()

    def pause(self, seconds: float) -> None:
        """Leave the turn to another call for some seconds.

        Raises:
            KeyboardInterrupt: the run is to end.
        """
        if self._rests:
            self._rests()
        self._turns.release()
        self._stopping.wait(seconds)
        self._begin()

    def _begin(self) -> None:
        # a call that is to end needs no turn for what it still does
        while not (self._stopping.is_set() or self._turns.acquire(timeout=_LOOK_SECONDS)):
            pass
        self.check()


def pause(seconds: float) -> None:
    """Wait; in a joint run, see `JointRun.pause`."""
    run: JointRun | None = getattr(_here, "run", None)
    if run is None:
        time.sleep(seconds)
    else:
        run.pause(seconds)
