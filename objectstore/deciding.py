"""What several runs may decide, each for itself: whoever comes first decides for all."""

from __future__ import annotations

import time
from contextlib import suppress

from objectstore.errors import AlreadyExists, NoSuchObject, ObjectStoreUnavailable
from objectstore.store import ObjectStore

__all__ = ["decide"]

WAITS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds before each attempt."""


def decide(store: ObjectStore, key: str, data: bytes) -> tuple[bytes, bool]:
    """Create an object, or get the one that is there; returns the bytes that hold, and whether it was created now.

    If the object is deleted between the two, both are tried again, a few times.

    Args:
        store: where.
        key: the decision's name.
        data: what it is if nobody has decided yet.

    Raises:
        ObjectStoreUnavailable: the key is taken each time, but nothing is there.
        TooLarge: what is there is no decision.
    """
    for wait in WAITS:
        time.sleep(wait)
        try:
            store.put(key, data)
        except AlreadyExists:
            with suppress(NoSuchObject):
                return store.get(key), False
        else:
            return data, True
    raise ObjectStoreUnavailable(
        "the server says that the object exists, and then that it does not",
        where=f"{store.uri}/{key}",
        todo="Try again later.",
    )
