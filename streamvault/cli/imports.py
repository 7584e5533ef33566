"""Imports without the garbage collector, which would look through all classes again and again, and at the exit."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Import in the block; afterwards, the collector runs as before, and passes over what exists by then."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
