"""Runs a verb for a command: progress, log lines, result, errors and exit code."""

from __future__ import annotations

import dataclasses
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import Any, ClassVar, Protocol, TypeVar

from streamvault.cli.clock import command_seconds
from streamvault.cli.errors import CommandError, command_error
from streamvault.cli.logs import configure_logs
from streamvault.cli.output import OutputClosed, Results, print_stderr
from streamvault.cli.progress import watching
from streamvault.common.errors import Failed, without_logins
from streamvault.common.progress import Progress

T = TypeVar("T")
R = TypeVar("R", bound="Timed")


class LogLevel(StrEnum):
    """The lowest level of log lines to write."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Running:
    """Options of every command: ``--json`` and ``--log-level``."""

    as_json: bool = False
    log_level: LogLevel = LogLevel.WARNING


class Timed(Protocol):
    """A report with the total time of the command."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def total_seconds(self) -> float:
        """Total time in seconds."""


def run(
    work: Callable[[Progress], T],
    *,
    show: Callable[[Results, T], None],
    document: Callable[[T], dict[str, Any]],
    running: Running,
    resumable: bool = False,
    exit_code: Callable[[T], int] = lambda _: 0,
    begun: Callable[[Results], object] = lambda _: None,
    piecewise: bool = False,
) -> int:
    """Do a command's work and print its result.

    Args:
        work: calls the verb, after importing it.
        show: prints the result as text.
        document: returns the result as a JSON object.
        running: whether to print JSON, and the log level.
        resumable: whether the same command resumes an interrupted run.
        exit_code: returns the exit code for the result.
        begun: receives the results before the work starts, for a command that prints while it works.
        piecewise: whether `show` also writes the JSON object, piece by piece. An error is then printed as JSON only if
            nothing was written before.

    Returns:
        The exit code.
    """
    with Results() as results:
        try:
            configure_logs(running.log_level.value)
            begun(results)
            with watching() as progress:
                value = work(progress)
                for warning in getattr(value, "warnings", ()):
                    progress.warn(warning)
            code = exit_code(value)
            with _ignoring_closed_output():
                if running.as_json and not piecewise:
                    results.json(document(value))
                else:
                    show(results, value)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (reports every error as one line)
            if running.log_level is LogLevel.DEBUG:
                for line in "".join(traceback.format_exception(error)).splitlines():
                    print_stderr(without_logins(line))
            as_json = running.as_json and not (piecewise and results.started)
            return finish(results, command_error(error, resumable=resumable), as_json=as_json)
        return code


def finish(results: Results, end: CommandError, *, as_json: bool) -> int:
    """Print why the command ended, and return its exit code."""
    print_stderr(f"streamvault: {end}")
    if as_json:
        try:
            with _ignoring_closed_output():
                results.json(end.to_json())
        except Failed as error:
            print_stderr(f"streamvault: {error}")
    return end.exit_code


@contextmanager
def _ignoring_closed_output() -> Iterator[None]:
    """Ignore that the reader closed the output (``| head``): the work is done."""
    with suppress(OutputClosed):
        yield


def whole_command(report: R) -> R:
    """Return the report with ``total_seconds`` counted from the start of the process."""
    return dataclasses.replace(report, total_seconds=round(command_seconds(), 3))


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C; a second SIGTERM ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
