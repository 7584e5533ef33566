"""Runs a verb for a command: progress, log lines, result, errors and exit code."""

from __future__ import annotations

import logging
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import FrameType
from typing import Any

import streamvault
from streamvault.cli.clock import command_seconds
from streamvault.cli.errors import CommandError, command_error
from streamvault.cli.logs import configure_logs
from streamvault.cli.output import LoggedResults, OutputClosed, Results, print_stderr
from streamvault.cli.progress import LineProgress, watching
from streamvault.common.errors import Failed, without_logins
from streamvault.scopes.reports import ScopeReport

_log = logging.getLogger("streamvault")


class LogLevel(StrEnum):
    """The lowest level of log lines to write."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Running:
    """How a command runs: ``--json`` and ``--log-level``, the options of every command, and ``--config``.

    Attributes:
        config: the file that declares the streams; None if the command line names one.
    """

    as_json: bool = False
    log_level: LogLevel = LogLevel.WARNING
    config: str | None = None

    def verb(self, name: str, *given: Any, show: Callable[[Results, Any], None], resumable: bool = False) -> int:
        """Run a verb and print its report.

        Args:
            name: the verb's function in `streamvault`; imported here, so that help texts do not wait for it.
            given: its arguments, and its options if it has any.
            show: prints the report as text.
            resumable: whether the same command resumes an interrupted run; a dry run never.

        Returns:
            The exit code.
        """
        with self.command(resumable=resumable and not getattr(given[-1], "dry_run", False)) as command:
            command.call(name, *given, show=show)
        return command.exit_code

    @contextmanager
    def command(self, *, resumable: bool = False) -> Iterator[RunningCommand]:
        """Run the block as a command: any error in it is printed, and becomes the command's exit code.

        It is no error that the reader closed the output (``| head``).
        """
        with Results() as results:
            command = RunningCommand(self, results)
            try:
                configure_logs(self.log_level.value)
                with watching() as command.progress, suppress(OutputClosed):
                    yield command
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (reports every error as one line)
                if self.log_level is LogLevel.DEBUG:
                    for line in "".join(traceback.format_exception(error)).splitlines():
                        print_stderr(without_logins(line))
                end = command_error(error, resumable=resumable)
                command.exit_code = finish(results, end, as_json=self.as_json and not results.in_line)


@dataclass
class RunningCommand:
    """A command while it runs.

    Attributes:
        running: how it runs.
        results: standard output.
        progress: standard error.
        exit_code: its exit code.
    """

    running: Running
    results: Results
    progress: LineProgress = field(default_factory=LineProgress)
    exit_code: int = 0

    def call(self, name: str, *given: Any, show: Callable[[Results, Any], None]) -> None:
        """Call a verb and print its report, see `Running.verb`. Its total time is that of the whole process."""
        function = getattr(streamvault, name)
        takes_options = hasattr(function, "with_options")
        if self.running.config is not None:
            report: Any = function.declared(self.running.config, given[-1], self.progress)
        else:
            report = function.with_options(*given, self.progress) if takes_options else function(*given)
        for warning in getattr(report, "warnings", ()):
            self.progress.warn(warning)
        if hasattr(report, "total_seconds"):
            report = replace(report, total_seconds=round(command_seconds(), 3))
        self.exit_code = report.exit_code
        if isinstance(report, ScopeReport):
            from streamvault.cli.scopes import show_scope

            self.write(report.to_json(), lambda results: show_scope(results, report, show))
        else:
            self.write(report.to_json(), lambda results: show(results, report))

    def write(self, document: Mapping[str, Any], show: Callable[[Results], None]) -> None:
        """Print a result: a JSON object, or what `show` prints, which else is logged if lines of level *info* are."""
        self.progress.end()
        if self.running.as_json:
            self.results.json(document)
            if _log.isEnabledFor(logging.INFO):
                show(LoggedResults(_log))
        else:
            show(self.results)


def finish(results: Results, end: CommandError, *, as_json: bool) -> int:
    """Print why the command ended, and return its exit code."""
    print_stderr(f"streamvault: {end}")
    if as_json:
        try:
            with suppress(OutputClosed):
                results.json(end.to_json())
        except Failed as error:
            print_stderr(f"streamvault: {error}")
    return end.exit_code


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
