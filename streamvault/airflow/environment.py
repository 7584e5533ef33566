"""Temporary changes to the worker's environment, for work in a task's own process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["environment"]


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within a ``with`` block; an empty value unsets one. Not thread-safe."""
    before = dict(os.environ)
    try:
        os.environ.update({name: value for name, value in variables.items() if value})
        for name in (name for name, value in variables.items() if not value):
            os.environ.pop(name, None)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
