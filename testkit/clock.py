"""A clock that a test sets."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Clock:
    """Stands in for the module `time`; sleeping takes no time.

    Attributes:
        now: seconds, of all clocks. slept: how long each pause was.
    """

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return int(self.now * 1e9)

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
