"""Log lines on standard error, from a level on."""

from __future__ import annotations

import logging
import os
import sys

from common.errors import without_logins

__all__ = ["configure_logs"]

_TALKATIVE = ("py4j", "botocore", "urllib3", "werkzeug", "pyiceberg")
"""Libraries that log tracebacks and requests which the command's own line says better."""

_INDISCREET = ("py4j", "botocore", "boto3", "pyiceberg")
"""Libraries that log, for debugging, session tokens, the secret of the way to Java, or settings with passwords."""


def configure_logs(level: str) -> None:
    """Send what is logged to standard error.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=number, stream=sys.stderr, force=True)
    if number > logging.DEBUG:
        for handler in logging.getLogger().handlers:
            handler.addFilter(_is_ours_to_tell)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(number if number <= logging.DEBUG else logging.CRITICAL)
    if number <= logging.DEBUG:
        for name in _INDISCREET:
            logging.getLogger(name).setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Discreet("%(levelname)s %(name)s: %(message)s"))


class _Discreet(logging.Formatter):
    """Lines without the logins of URIs."""

    def format(self, record: logging.LogRecord) -> str:
        """A line, with a traceback if there is one."""
        return without_logins(super().format(record))


def _is_ours_to_tell(record: logging.LogRecord) -> bool:
    """Not what py4j logs by the root logger, with tracebacks, when a command is interrupted."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname
