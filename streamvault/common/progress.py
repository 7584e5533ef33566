"""Progress callbacks of a run.

The base class ignores them; the command line draws progress bars, DAGs write log lines.
"""

from __future__ import annotations


class Progress:
    """Receives a run's progress, on the driver, from one thread. All methods default to no-ops."""

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:
        """Begin a phase, ending the previous one.

        Args:
            what: the phase, for display, e.g. ``"exporting"`` or ``"verifying"``.
            total_bytes: segment bytes the phase processes.
            done_bytes: how many of them an earlier run already processed.
        """

    def advance(self, events: int, size: int) -> None:
        """Add processed events and segment bytes."""

    def say(self, text: str) -> None:
        """Report a detail worth a line, e.g. what was resumed or is being waited for."""

    def note(self, text: str) -> None:
        """Report a result, such as a finished generation of a long run."""

    def warn(self, text: str) -> None:
        """Warn the user; the run continues."""

    def end(self) -> None:
        """End the last phase."""
