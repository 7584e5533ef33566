"""How a command that did not succeed ends: one line, one code."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from common.errors import Conflict, Damaged, Failed, Problem, Usage, without_logins
from streamvault.cli.output import plain

__all__ = ["EXIT_CODES", "INTERRUPTED", "Ending", "ending", "misuse"]

INTERRUPTED = 130
"""The exit code of a command that was stopped by Ctrl-C or SIGTERM."""

EXIT_CODES = {
    0: "done",
    Failed.exit_code: "failed",
    Usage.exit_code: "invalid request",
    Damaged.exit_code: "damaged archive",
    Conflict.exit_code: "conflict",
    INTERRUPTED: "interrupted",
}
"""What each exit code means."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a command ended, as it is shown.

    Attributes:
        what: what happened. where: what it is about, or empty. todo: the next step, or empty.
        exit_code: of the process.
        retriable: whether the same command may succeed later without the user changing anything.
    """

    what: str
    where: str
    todo: str
    exit_code: int
    retriable: bool

    def __str__(self) -> str:
        """The line on standard error, without the program's name."""
        return plain(str(Problem(self.what, where=self.where, todo=self.todo)))

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints instead of a report."""
        return {"error": asdict(self)}


def ending(error: BaseException, *, resumable: bool) -> Ending:
    """What an exception means to the user.

    Args:
        error: what ended the command.
        resumable: whether the same command would take up the work where it stopped.
    """
    if isinstance(error, Problem):
        return Ending(error.what, error.where, error.todo, error.exit_code, error.retriable)
    if isinstance(error, KeyboardInterrupt):
        what = "interrupted; the same command goes on where it stopped" if resumable else "interrupted"
        return Ending(what, "", "", INTERRUPTED, retriable=True)
    message = without_logins(" ".join(str(error).split()))
    what = f"internal error: {type(error).__name__}" + (f": {message}" if message else "")
    todo = "Run again with --log-level debug for the traceback."
    return Ending(what, "", todo, Failed.exit_code, Failed.retriable)


def misuse(message: str, command: str) -> Ending:
    """A command line that cannot be read."""
    message = without_logins(" ".join(message.replace("Value error, ", "").split()).rstrip("."))
    return Ending(message, "", f"See {command} --help.", Usage.exit_code, Usage.retriable)
