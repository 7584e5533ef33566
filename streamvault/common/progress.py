"""Progress callbacks of a run.

The base class ignores them; the command line draws progress bars, DAGs write log lines.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from streamvault.common.sizes import bytes_text
from streamvault.common.underway import RunningTasks


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

    def watch(self, tasks: RunningTasks) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return a context manager in whose block tasks of the phase run, which say themselves how far they are.

        What they have acknowledged is not in `advance` yet: each task is reported there when it has ended.
        """
        return nullcontext()

    def say(self, text: str) -> None:
        """Report a detail worth a line, e.g. what was resumed or is being waited for."""

    def note(self, text: str) -> None:
        """Report a result, such as a finished generation of a long run."""

    def warn(self, text: str) -> None:
        """Warn the user; the run continues."""

    def end(self) -> None:
        """End the last phase."""

    def part(self, name: str) -> Progress:
        """Return the progress of one of several streams at once, which may be reported from a thread of its own.

        Args:
            name: the stream's name, for display.
        """
        return PartProgress(self, name)


class ForwardedProgress(Progress):
    """Passes on whatever its class has no method of its own for; parts are parts of this one."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        for name in ("begin", "advance", "watch", "say", "note", "warn", "end"):
            if getattr(type(self), name) is getattr(Progress, name):
                setattr(self, name, getattr(progress, name))


class PartProgress(Progress):
    """Progress of one of several streams: each text begins with its name, and a phase is a text."""

    def __init__(self, whole: Progress, name: str) -> None:
        self.name = name
        self._whole = whole

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:  # noqa: ARG002
        """See `Progress.begin`."""
        self.say(f"{what} {bytes_text(total_bytes)}")

    def say(self, text: str) -> None:
        """See `Progress.say`."""
        self._whole.say(f"{self.name}: {text}")

    def note(self, text: str) -> None:
        """See `Progress.note`."""
        self._whole.note(f"{self.name}: {text}")

    def warn(self, text: str) -> None:
        """See `Progress.warn`."""
        self._whole.warn(f"{self.name}: {text}")
