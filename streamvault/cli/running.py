"""Runs a verb for a command: progress, log lines, result, errors and exit code; ends it when it is interrupted.

Ctrl-C raises `KeyboardInterrupt` in the main thread, but not before that leaves the native code of a client library;
and who winds up may wait for threads, or for another answer. So an interrupted command that goes on waiting for a
server is ended. A server that is alive answers in the meantime.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from streamvault.cli import INTERRUPTED
from streamvault.cli.output import (
    LoggedResults,
    OutputClosed,
    Results,
    configure_logs,
    print_stderr,
)
from streamvault.cli.progress import LINE_SECONDS, LineProgress, watching
from streamvault.cli.start import command_seconds
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
from streamvault.common.progress import Progress, unanswered_seconds
from streamvault.scopes.reports import ScopeReport

if TYPE_CHECKING:
    from streamvault.serving.reports import RunningServer

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


class Interrupted(Problem):
    """A command stopped by Ctrl-C or SIGTERM."""

    exit_code = INTERRUPTED
    retriable = True


def command_error(error: BaseException, *, resumable: bool) -> Problem:
    """Convert an exception to the error shown to the user.

    Args:
        error: the exception that ended the command.
        resumable: whether the same command would resume the work.
    """
    if isinstance(error, Problem):
        return error
    if short := _shortage(error):
        return short
    if _is_of_interrupt(error):
        return Interrupted("interrupted; run the same command again to resume" if resumable else "interrupted")
    message = " ".join(str(error).split())
    what = f"internal error: {type(error).__name__}" + (f": {message}" if message else "")
    return Failed(what, todo="Run again with --log-level debug for the traceback.")


def error_document(error: Problem) -> dict[str, Any]:
    """Return the object that ``--json`` prints instead of a report."""
    return {"error": {name: getattr(error, name) for name in ("what", "where", "todo", "exit_code", "retriable")}}


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


def usage_error(message: str, command: str) -> Usage:
    """Return the error for an invalid command line."""
    for said, plainly in _PLAINLY.items():
        message = message.replace(said, plainly)
    return Usage(" ".join(message.split()).rstrip("."), todo=f"See {command} --help.")


GRACE_SECONDS = 0.7
"""How long an interrupted command may wait for an answer."""

ENDS_SECONDS = 20.0
"""How long it may take to end, whatever it waits for."""

LOOK_SECONDS = 0.1

_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def ending_in_time(give_up: Callable[[], int]) -> Iterator[None]:
    """End the process if the block is interrupted, by SIGINT or SIGTERM, and does not end soon.

    It does not wait for servers that do not answer, and ends at once if the interrupt came in a destructor, where
    Python would ignore it.

    What that leaves is as after a kill.

    Args:
        give_up: called from another thread before the process ends; returns its exit code.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    hook = sys.unraisablehook

    def ignored(error: sys.UnraisableHookArgs) -> None:
        # in other threads it is the end of a run, see `JointRun`
        if issubclass(error.exc_type, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            os._exit(give_up())
        hook(error)

    heard, told = socket.socketpair()
    with heard, told:
        told.setblocking(False)
        before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        thread = threading.Thread(target=_watch, args=(heard, give_up), name="interrupts", daemon=True)
        sys.unraisablehook = ignored
        try:
            thread.start()
            yield
        finally:
            signal.set_wakeup_fd(before)
            sys.unraisablehook = hook
            told.shutdown(socket.SHUT_RDWR)  # also if a child has it, too
            with suppress(RuntimeError):  # the interrupt came before the thread had started
                thread.join()


def _watch(heard: socket.socket, give_up: Callable[[], int]) -> None:
    try:
        while not {signal.SIGINT, signal.SIGTERM} & set(numbers := heard.recv(64)):
            if not numbers:
                return
    except OSError:  # closed: the block ended before this thread had started
        return
    interrupted = time.monotonic()
    heard.settimeout(LOOK_SECONDS)
    while unanswered_seconds(interrupted) < GRACE_SECONDS and time.monotonic() - interrupted < ENDS_SECONDS:
        try:
            if not heard.recv(64):
                return
        except TimeoutError:
            pass
    if sys.stderr.isatty():
        sys.stderr.write(_SHOW_CURSOR)
    os._exit(give_up())


_log = logging.getLogger("streamvault")

R = TypeVar("R")


class LogLevel(StrEnum):
    """The lowest level of log lines to write."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass
class Command:
    """A command: the options that every command has, and what it is while it runs.

    Attributes:
        as_json: ``--json``.
        log_level: ``--log-level``, or what ``-v`` and ``-q`` make of it.
        config: ``--config``: the file that declares the streams; None if the command line names one.
        log_file: ``--log-file``.
        progress_every: ``--progress-every`` (seconds).
        quiet: ``-q``.
        metrics_port: ``--metrics-port``, of those commands that have it: host and port.
        results: standard output.
        progress: standard error.
        exit_code: its exit code.
        resumable: whether the same command resumes an interrupted run.
        importing: what lasts while the command's function imports what it calls, until `run`.
        is_ready: whether it answers, if it is a server.
        server: what it tells of itself if it is a server, once it answers.
    """

    as_json: bool = False
    log_level: LogLevel = LogLevel.WARNING
    config: str | None = None
    log_file: str | None = None
    progress_every: float = LINE_SECONDS
    quiet: bool = False
    metrics_port: tuple[str, int] | None = None
    results: Results = field(default_factory=Results)
    progress: LineProgress = field(default_factory=LineProgress)
    exit_code: int = 0
    resumable: bool = False
    importing: ExitStack = field(default_factory=ExitStack)
    is_ready: bool = True
    server: RunningServer | None = None

    @contextmanager
    def started(self) -> Iterator[Self]:
        """Run the block as the command: any error in it is printed, and becomes the command's exit code.

        It is no error that the reader closed the output (``| head``).
        """
        with self.results, ending_in_time(lambda: self._ended_by(KeyboardInterrupt())):
            try:
                configure_logs(self.log_level.value, self.log_file)
                logs = self.log_level in {LogLevel.DEBUG, LogLevel.INFO}
                with (
                    watching(self.progress_every, quiet=self.quiet, logs=logs) as self.progress,
                    suppress(OutputClosed),
                ):
                    yield self
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  (reports every error as one line)
                if self.log_level is LogLevel.DEBUG:
                    for line in "".join(traceback.format_exception(error)).splitlines():
                        print_stderr(without_logins(line))
                self.exit_code = self._ended_by(error)

    def _ended_by(self, error: BaseException) -> int:
        end = command_error(error, resumable=self.resumable)
        return finish(self.results, end, as_json=self.as_json and not self.results.in_line)

    def run(self, function: Callable[..., R], *given: Any, **keywords: Any) -> R:
        """Call a function; a verb gets its options and the progress, and may get a scope or what ``--config`` declares.

        Commands import it within their function: an editor finds the way from one to the other, and help texts do not
        wait for the import.

        Args:
            function: the function.
            given: its arguments, and its options if it has any.
            keywords: its keyword arguments, if it is no verb.
        """
        from streamvault.scopes.uri import taking_scopes

        verb: Any = taking_scopes(function)
        self.importing.close()
        with self._measured(function.__name__.partition("_")[0]) as progress:
            if self.config is not None:
                result: R = verb.declared(self.config, given[-1], progress)
            elif hasattr(verb, "with_options"):
                result = verb.with_options(*given, progress)
            else:
                result = verb(*given, **keywords)
        return result

    def call(
        self, verb: Callable[..., R], *given: Any, show: Callable[[Results, R], None], resumable: bool = False
    ) -> None:
        """Call a verb and print its report. The report's total time is that of the whole process.

        Args:
            verb: as for `run`.
            given: as for `run`.
            show: prints the report as text.
            resumable: whether the same command resumes an interrupted run; a dry run never.
        """
        self.resumable = resumable and not getattr(given[-1], "dry_run", False)
        report: Any = self.run(verb, *given)
        self.progress.warn_all(getattr(report, "warnings", ()))
        if hasattr(report, "total_seconds"):
            report = replace(report, total_seconds=round(command_seconds(), 3))
        self.exit_code = report.exit_code
        if isinstance(report, ScopeReport):
            from streamvault.cli.lines import show_scope

            self.write(report.to_json(), lambda results: show_scope(results, report, show))
        else:
            self.write(report.to_json(), lambda results: show(results, report))

    @contextmanager
    def _measured(self, verb: str) -> Iterator[Progress]:
        """Yield the progress; with ``--metrics-port``, one whose figures Prometheus gets meanwhile."""
        if self.metrics_port is None:
            yield self.progress
            return
        from streamvault.cli import measuring

        figures = measuring.RunFigures()
        with measuring.answering(
            self.metrics_port,
            lambda: figures.metrics(verb) + (self.server() if self.server else ""),
            lambda: self.is_ready,
            lambda: self.server.status() if self.server else {},
        ):
            yield measuring.MeasuredProgress(self.progress, figures)

    @contextmanager
    def serving(self, server: RunningServer) -> Iterator[None]:
        """Be ready while the block runs, in which a server answers that has metrics and a status of its own."""
        self.server, self.is_ready = server, True
        try:
            yield
        finally:
            self.is_ready = False

    def write(self, document: Mapping[str, Any], show: Callable[[Results], None]) -> None:
        """Print a result: a JSON object, or what `show` prints, which else is logged if lines of level *info* are."""
        self.progress.end()
        if self.as_json:
            self.results.json(document)
            if _log.isEnabledFor(logging.INFO):
                show(LoggedResults(_log))
        else:
            show(self.results)


def finish(results: Results, end: Problem, *, as_json: bool) -> int:
    """Print why the command ended, and return its exit code."""
    print_stderr(f"streamvault: {end}")
    if as_json:
        try:
            with suppress(OutputClosed):
                results.json(error_document(end))
        except Failed as error:
            if str(error) != str(end):
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
