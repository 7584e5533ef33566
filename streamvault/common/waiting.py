"""Waiting: pauses until a state is reached, attempts and rounds until one succeeds, and calls that take turns.

A verb that waits does so by `pause`. Calls that run side by side in threads of one command are a joint run. There, a
pause leaves the turn to another call, and ends the call if the run is to end: as Ctrl-C ends what runs in the main
thread.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential

from streamvault.common.errors import Problem
from streamvault.common.progress import ForwardedProgress, Progress
from streamvault.common.units import seconds_text

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


MAX_PAUSE_SECONDS = 60.0
NOTE_SECONDS = 60.0
"""Interval between notes about one outage."""

T = TypeVar("T")


def is_transient(error: BaseException) -> bool:
    """Return whether an error is one of those that the next attempt may not meet (`Problem.transient`)."""
    return isinstance(error, Problem) and error.transient


def pauses(
    seconds: float,
    *,
    first: float,
    longest: float | None = None,
    jitter: bool = False,
    at_once: bool = True,
    sleep: Callable[[float], object] | None = None,
) -> Iterator[float]:
    """Pause again and again, each time twice as long, and yield how long it took so far (seconds).

    The last pause ends when the time is over. The time begins with the first `next`, not with this call.

    Args:
        seconds: total time; 0: no pause.
        first: the first pause (seconds).
        longest: maximum of each pause (seconds); by default ``first``, so that they are all alike.
        jitter: whether to shorten each pause by a random part, up to half of it.
        at_once: whether to yield before the first pause, too.
        sleep: pauses for some seconds, or less; by default `time.sleep`.
    """
    began, pause, longest = time.monotonic(), first, first if longest is None else longest
    if at_once:
        yield 0.0
    while (left := began + seconds - time.monotonic()) > 0:
        share = random.uniform(0.5, 1.0) if jitter else 1.0  # noqa: S311  (no secret)
        (sleep or time.sleep)(min(left, share * pause))
        pause = min(2 * pause, longest)
        yield time.monotonic() - began


def attempts(
    again: Callable[[BaseException], bool],
    stop: Callable[[RetryCallState], bool],
    *,
    first: float,
    longest: float,
    least: float = 0.0,
    **more: Any,
) -> Retrying:
    """Build a loop of attempts with random, growing pauses; the last attempt's error is raised as it is.

    Args:
        again: whether to make another attempt after an error.
        stop: whether to give up.
        first: maximum of the first pause (seconds); it doubles each time.
        longest: maximum of each pause (seconds).
        least: minimum of each pause (seconds).
        **more: further arguments of `tenacity.Retrying`.
    """
    wait = wait_random_exponential(multiplier=first, max=longest, min=least)
    return Retrying(retry=retry_if_exception(again), stop=stop, wait=wait, reraise=True, **more)


class Retrier:
    """Retries what fails with an error that is transient, with growing pauses.

    Args:
        seconds: how long to retry after the first failure; starts anew whenever data were moved. 0: no retries.
        progress: receives a note about the first failure, then about one a minute, and about the recovery.
        until: absolute limit, on the monotonic clock (seconds).

    Attributes:
        until: see above.
        watched: the progress that it must report to; it forwards to ``progress``.
        retries: number of retries.
    """

    def __init__(self, seconds: float, progress: Progress, *, until: float = math.inf) -> None:
        self.until = until
        self.watched = _WatchedProgress(progress)
        self.retries = 0
        self._seconds = seconds
        self._progress = progress
        self._counted_from = self._deadline = self._noted = -math.inf
        self._backoff = wait_random_exponential(multiplier=1, max=MAX_PAUSE_SECONDS)

    def __call__(self, function: Callable[[], T]) -> T:
        """Call a function, with retries; return its result.

        Raises:
            Exception: the error of the last attempt, or the first error that is not transient.
        """
        first: float | None = None

        def attempt() -> T:
            nonlocal first
            try:
                return function()
            except Problem as error:
                if not error.transient:
                    raise
                now = time.monotonic()
                if first is None:
                    first, self._noted = now, -math.inf
                if first == now or self.watched.advanced > self._counted_from:
                    self._counted_from, self._deadline = now, min(now + self._seconds, self.until)
                raise

        retrying = Retrying(
            retry=retry_if_exception(is_transient),
            stop=lambda _: time.monotonic() >= self._deadline,
            wait=lambda state: max(0.0, min(self._backoff(state), self._deadline - time.monotonic())),
            sleep=pause,
            before_sleep=self._note,
            reraise=True,
        )
        result = retrying(attempt)
        if first is not None:
            self._progress.note(f"recovered after {seconds_text(time.monotonic() - first)}")
        return result

    def _note(self, state: RetryCallState) -> None:
        self.retries += 1
        now = time.monotonic()
        if now - self._noted < NOTE_SECONDS or state.outcome is None:
            return
        self._noted = now
        pause, left = seconds_text(state.upcoming_sleep), seconds_text(self._deadline - now)
        self._progress.note(f"retrying in {pause}, for at most {left}: {state.outcome.exception()}")


class _WatchedProgress(ForwardedProgress):
    """Records when data were last moved."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self.advanced = -math.inf

    def advance(self, events: int, size: int) -> None:
        """See `Progress.advance`."""
        self.advanced = time.monotonic()
        self._progress.advance(events, size)


Ended = Literal["idle", "sealed", "time"]
"""Why rounds ended: nothing new for a while, the stream is sealed and done with, or the time is over."""


@dataclass(frozen=True, slots=True)
class Round:
    """Result of a round.

    Attributes:
        changed: whether there was anything new.
        sealed: whether the stream is sealed and nothing is left to do.
    """

    changed: bool
    sealed: bool


def repeat_rounds(
    run_round: Callable[[], Round],
    retrier: Retrier,
    *,
    every: float,
    idle: float | None,
    began: float,
) -> Ended:
    """Repeat rounds; return why they ended.

    Args:
        run_round: one round, with its retries.
        retrier: makes those retries, and has the limit of all rounds; the duration of an outage does not count as
            ``idle``.
        every: seconds from the beginning of a round to that of the next.
        idle: end after this many seconds without changes; None: never.
        began: when the command began, on the monotonic clock (seconds).
    """
    active = began
    while True:
        round_began, retries = time.monotonic(), retrier.retries
        done = run_round()
        if done.sealed:
            return "sealed"
        if done.changed or retrier.retries > retries:
            active = time.monotonic()
        now = time.monotonic()
        if now >= retrier.until:
            return "time"
        if idle is not None and not done.changed and now - active >= idle:
            return "idle"
        ends = math.inf if idle is None else active + idle
        pause(max(0.0, min(round_began + every, retrier.until, ends) - now))
