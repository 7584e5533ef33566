"""The end of a process, within one."""

from __future__ import annotations


class Killed(BaseException):
    """Ends a run without any cleanup, as kill -9 ends a process; the product must not catch it and continue."""
