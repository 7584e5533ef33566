"""Rounds: work that is repeated as a stream grows, until one of several ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from streamvault.common.joint_run import pause
from streamvault.common.retries import Retrier

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
    lasting: float | None,
    began: float,
) -> Ended:
    """Repeat rounds; return why they ended.

    Args:
        run_round: one round, with its retries.
        retrier: makes those retries; the duration of an outage does not count as ``idle``.
        every: seconds from the beginning of a round to that of the next.
        idle: end after this many seconds without changes; None: never.
        lasting: end this many seconds after ``began``; None: never.
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
        if lasting is not None and now - began >= lasting:
            return "time"
        if idle is not None and not done.changed and now - active >= idle:
            return "idle"
        rests = [round_began + every - now]
        rests += [] if lasting is None else [began + lasting - now]
        rests += [] if idle is None else [active + idle - now]
        pause(max(0.0, min(rests)))
