"""Log lines on standard error, from a level on."""

from __future__ import annotations

import logging
import os
import sys

__all__ = ["configure_logs"]

_TALKATIVE = ("py4j", "botocore", "urllib3", "werkzeug", "pyiceberg")
"""Libraries that log tracebacks and requests which the command's own line says better."""


def configure_logs(level: str) -> None:
    """Send what is logged to standard error.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=number, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s", force=True)
    if number > logging.DEBUG:
        for handler in logging.getLogger().handlers:
            handler.addFilter(_is_ours_to_tell)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(number if number <= logging.DEBUG else logging.CRITICAL)


def _is_ours_to_tell(record: logging.LogRecord) -> bool:
    """Not what py4j logs by the root logger, with tracebacks, when a command is interrupted."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname
