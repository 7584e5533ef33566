"""Shares open stores among the tasks of one process.

Reopening a cluster for every task costs a channel to the controller, plus a connection and a lookup per segment. So a
store stays open for a while after its last use.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streamstore.store import StreamStore

__all__ = ["KEEP_SECONDS", "lend"]

KEEP_SECONDS = 10.0
"""How long an unused store stays open."""


@dataclass(slots=True)
class _Kept:
    """An open store, its number of users, and the timer that closes it when unused."""

    store: StreamStore
    users: int = 0
    closing: threading.Timer | None = None


_lock = threading.Lock()
_kept: dict[Hashable, _Kept] = {}


@contextmanager
def lend(key: Hashable, open_it: Callable[[], StreamStore]) -> Iterator[StreamStore]:
    """Lend a store that stays open for the next user of the same key in this process; do not close it."""
    # keyed by process: connections do not survive a fork
    place = (os.getpid(), key)
    with _lock:
        kept = _kept.get(place)
        if kept is None:
            kept = _kept[place] = _Kept(open_it())
        if kept.closing is not None:
            kept.closing.cancel()
            kept.closing = None
        kept.users += 1
    try:
        yield kept.store
    finally:
        with _lock:
            kept.users -= 1
            if not kept.users:
                kept.closing = threading.Timer(KEEP_SECONDS, _close, (place, kept))
                kept.closing.daemon = True
                kept.closing.start()


def _close(place: Hashable, kept: _Kept) -> None:
    with _lock:
        # it may have been lent again while the timer fired
        if kept.users or _kept.get(place) is not kept or kept.closing is not threading.current_thread():
            return
        del _kept[place]
    kept.store.close()
