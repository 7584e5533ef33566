"""Errors of commands: one line and one exit code each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from streamvault.cli.output import plain
from streamvault.common.errors import (
    Absent,
    Conflict,
    Damaged,
    Failed,
    Problem,
    ShortOf,
    Usage,
    shortage,
    without_logins,
)

INTERRUPTED = 130
"""Exit code of a command stopped by Ctrl-C or SIGTERM."""

EXIT_CODES = {
    0: "done",
    Failed.exit_code: "failed",
    Usage.exit_code: "usage error",
    Damaged.exit_code: "damaged archive",
    Conflict.exit_code: "conflict",
    Absent.exit_code: "no such stream, archive, generation or bucket",
    6: "the replica was promoted",
    INTERRUPTED: "interrupted",
}
"""Meaning of each exit code."""


@dataclass(frozen=True, slots=True)
class CommandError:
    """Error that ended a command, as shown to the user.

    Attributes:
        what: what happened.
        where: the object concerned, or empty.
        todo: the next step, or empty.
        exit_code: exit code of the process.
        retriable: whether the same command may succeed later without the user changing anything.
    """

    what: str
    where: str
    todo: str
    exit_code: int
    retriable: bool

    def __str__(self) -> str:
        """Return the line for standard error, without the program's name."""
        return plain(str(Problem(self.what, where=self.where, todo=self.todo)))

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints instead of a report."""
        return {"error": asdict(self)}


def command_error(error: BaseException, *, resumable: bool) -> CommandError:
    """Convert an exception to the error shown to the user.

    Args:
        error: the exception that ended the command.
        resumable: whether the same command would resume the work.
    """
    if isinstance(error, Problem):
        return CommandError(error.what, error.where, error.todo, error.exit_code, error.retriable)
    if short := _shortage(error):
        return command_error(short, resumable=resumable)
    if _is_of_interrupt(error):
        what = "interrupted; run the same command again to resume" if resumable else "interrupted"
        return CommandError(what, "", "", INTERRUPTED, retriable=True)
    message = without_logins(" ".join(str(error).split()))
    what = f"internal error: {type(error).__name__}" + (f": {message}" if message else "")
    todo = "Run again with --log-level debug for the traceback."
    return CommandError(what, "", todo, Failed.exit_code, Failed.retriable)


def _shortage(error: BaseException | None) -> ShortOf | None:
    """Return the shortage that an error says, or what it came from."""
    while error is not None and shortage(error) is None:
        error = error.__context__
    return None if error is None else shortage(error)


def _is_of_interrupt(error: BaseException | None) -> bool:
    """Return whether it is an interrupt, or what a library stumbled over that was interrupted anywhere.

    Of an interrupt in a function that pydantic calls, only the name is left, in a text.
    """
    while (
        error is not None and not isinstance(error, KeyboardInterrupt) and KeyboardInterrupt.__name__ not in str(error)
    ):
        error = error.__context__
    return error is not None


_PLAINLY = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "it is not a whole number",
    "Input should be a valid number, unable to parse string as a number": "it is not a number",
}
"""What typer says of a value, and what the user reads."""


def usage_error(message: str, command: str) -> CommandError:
    """Return the error for an invalid command line."""
    for said, plainly in _PLAINLY.items():
        message = message.replace(said, plainly)
    message = without_logins(" ".join(message.split()).rstrip("."))
    return CommandError(message, "", f"See {command} --help.", Usage.exit_code, Usage.retriable)
