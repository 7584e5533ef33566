"""Tunes glibc's malloc so that freed large buffers return to the system at once.

obstore allocates the parts of large objects. By default glibc keeps freed buffers of up to 32 MiB for reuse, in up to
eight heaps per core: a task process that had moved 4 GB held 284 MiB, a third of it in use.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache

__all__ = ["give_back_large_buffers"]

# malloc.h of glibc
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

LARGE_BYTES = 4 * 1024 * 1024
"""A buffer of at least this size returns to the system when it is freed."""

HEAPS = 2
"""Memory freed in one heap cannot be reused by threads assigned to another."""


@cache
def give_back_large_buffers() -> None:
    """Apply the settings to this process and its future forks. Does nothing without glibc."""
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_ARENA_MAX, HEAPS)
