"""Log lines on standard error."""

from __future__ import annotations

import logging
import os
import sys

from streamvault.common.errors import without_logins

_VERBOSE = ("py4j", "botocore", "urllib3", "werkzeug", "pyiceberg")
"""Libraries whose tracebacks and request logs duplicate the command's own error line."""

_LEAKING = ("py4j", "botocore", "boto3", "pyiceberg")
"""Libraries whose debug logs contain session tokens, the Java gateway's secret, or settings with passwords."""


def configure_logs(level: str) -> None:
    """Send log lines to standard error.

    Args:
        level: the lowest level to write: ``debug``, ``info``, ``warning`` or ``error``.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=number, stream=sys.stderr, force=True)
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


class _RedactingFormatter(logging.Formatter):
    """Formatter that begins lines with the local time, and removes logins from URIs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted record, with its traceback if there is one."""
        return without_logins(super().format(record))


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    """Return False for the tracebacks that py4j logs through the root logger when a command is interrupted."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname
