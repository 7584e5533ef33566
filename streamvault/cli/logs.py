"""Log lines on standard error."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from streamvault.cli.output import LINES, plain, print_stderr, record_by
from streamvault.common.errors import Failed, without_logins
from streamvault.common.modes import make_file

_log = logging.getLogger(__name__)

_VERBOSE = ("py4j", "botocore", "urllib3", "werkzeug", "pyiceberg")
"""Libraries whose tracebacks and request logs duplicate the command's own error line."""

_LEAKING = ("py4j", "botocore", "boto3", "pyiceberg")
"""Libraries whose debug logs contain session tokens, the Java gateway's secret, or settings with passwords."""


def check_log_file(file: str) -> None:
    """Raise `Failed` if a log file cannot be appended to."""
    try:
        with suppress(FileExistsError):
            os.close(make_file(file))
        with Path(file).open("a"):
            pass
    except OSError as error:
        raise Failed("the log file cannot be written", where=f"{file}: {error.strerror or error}") from None


def configure_logs(level: str, file: str | None = None) -> None:
    """Send log lines to standard error.

    Args:
        level: the lowest level to write: ``debug``, ``info``, ``warning`` or ``error``.
        file: a file that gets them, too, those of level *info* in any case, and all other lines for standard error; it
            is appended to. None for none.
    """
    number = shown = logging.getLevelNamesMapping()[level.upper()]
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    handlers[0].setLevel(shown)
    record_by(None)
    if file is not None:
        number = min(number, logging.INFO)
        handlers.append(opened := _LogFile(file, encoding="utf-8", errors="backslashreplace"))
        record_by(lambda line: opened.handle(logging.LogRecord("streamvault", logging.INFO, "", 0, line, None, None)))
    logging.basicConfig(level=number, handlers=handlers, force=True)
    if number > logging.DEBUG:
        for handler in logging.getLogger().handlers:
            handler.addFilter(_is_not_from_py4j)
    for name in _VERBOSE:
        logging.getLogger(name).setLevel(number if number <= logging.DEBUG else logging.CRITICAL)
    if number <= logging.DEBUG:
        for name in _LEAKING:
            logging.getLogger(name).setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))


class _LogFile(logging.FileHandler):
    """A log file. That it cannot be written, its disk is full, is said once: the command goes on."""

    _said = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (as the base class has it)
        """See the base class."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._said:
            self._said = True
            print_stderr(f"warning: the log file cannot be written: {self.baseFilename}: {error.strerror or error}")

    def close(self) -> None:
        """See the base class. What could not be written is not tried again."""
        with suppress(OSError):
            super().close()


def log_unraisable(error: sys.UnraisableHookArgs) -> None:
    """Log an error that nobody can catch at level *debug*: an interrupt leaves half-made objects of libraries."""
    raised = error.exc_value
    _log.debug("ignored in %r", error.object, exc_info=(type(raised), raised, error.exc_traceback) if raised else None)


class _RedactingFormatter(logging.Formatter):
    """Formatter that begins lines with the local time, removes logins from URIs, and escapes control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted record, with its traceback if there is one."""
        return plain(without_logins(super().format(record)), LINES)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    """Return False for the tracebacks that py4j logs through the root logger when a command is interrupted."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname
