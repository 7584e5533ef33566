"""How a run tells whoever watches it what it is doing.

The base class says nothing; the command line draws bars with it, a DAG writes log lines.
"""

from __future__ import annotations

__all__ = ["Progress"]


class Progress:
    """Told by a run, on the driver only, from one thread. Every method may do nothing."""

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:
        """A phase starts (``"exporting"``, ``"verifying"``); ends the one before it.

        Args:
            what: the phase, for a person.
            total_bytes: of segment bytes that the phase moves.
            done_bytes: how much of it an earlier run had done already.
        """

    def advance(self, events: int, size: int) -> None:
        """Some more was done: events, and segment bytes."""

    def say(self, text: str) -> None:
        """Something worth a line: what was resumed, what is waited for."""

    def note(self, text: str) -> None:
        """A line that whoever watches a long run waits for."""

    def warn(self, text: str) -> None:
        """Something the user should know although the run goes on."""

    def end(self) -> None:
        """The last phase is over."""
