"""Memory that glibc would keep for a process that has freed it."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache

# malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

LARGE_BYTES = 4 * 1024 * 1024
"""A buffer of at least this size returns to the system when it is freed."""

KEPT_BYTES = 64 * 1024 * 1024
"""Smaller buffers are reused: each heap keeps so much of what is freed at its end. With glibc's own choice, 128 KiB as
soon as one of its settings is made, the system would clear new pages for every block of an object."""

HEAPS = 2
"""Memory freed in one heap cannot be reused by threads assigned to another."""


@cache
def give_back_large_buffers() -> None:
    """Tune glibc's malloc so that freed large buffers return to the system at once, also in future forks.

    Those are the parts of large objects and blocks of segments. By default glibc keeps freed buffers of up to 32 MiB
    for reuse, in up to eight heaps per core: a task process that had moved 4 GB held 284 MiB, a third of it in use.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_ARENA_MAX, HEAPS)
