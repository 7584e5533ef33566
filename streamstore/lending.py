"""Open stores that the tasks of one process use one after the other, or together.

Opening a cluster anew for every task costs a channel to the controller, and a connection and a question for each
segment. So a store is kept open for a while after its last user has given it back.
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
"""How long a store that nobody uses stays open."""


@dataclass(slots=True)
class _Kept:
    """An open store: how many use it now, and what will close it if nobody does."""

    store: StreamStore
    users: int = 0
    closing: threading.Timer | None = None


_lock = threading.Lock()
_kept: dict[Hashable, _Kept] = {}


@contextmanager
def lend(key: Hashable, open_it: Callable[[], StreamStore]) -> Iterator[StreamStore]:
    """A store that stays open for the next user of the same key in this process; it must not be closed.

    Args:
        key: names the store and how it is opened.
        open_it: opens it, if it is not open.
    """
    # by process: connections do not survive a fork
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
        # somebody may have come while the timer went off
        if kept.users or _kept.get(place) is not kept or kept.closing is not threading.current_thread():
            return
        del _kept[place]
    kept.store.close()
