"""First-writer-wins decisions among concurrent runs."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import islice

from streamvault.common.waiting import pauses
from streamvault.objectstore.store import AlreadyExists, NoSuchObject, ObjectStore, ObjectStoreUnavailable

TRIES = 6
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 1.6


def decide(store: ObjectStore, key: str, data: bytes) -> tuple[bytes, bool]:
    """Create an object or read the existing one; return the deciding bytes and whether this call created it.

    If the object is deleted between the two requests, both are retried a few times.

    Raises:
        ObjectStoreUnavailable: the server reported the key as taken, then as missing, on every attempt.
        TooLarge: the existing object is too large to be a decision.
    """
    for _ in islice(pauses(math.inf, first=FIRST_PAUSE, longest=LONGEST_PAUSE), TRIES):
        try:
            store.put(key, data)
        except AlreadyExists:
            with suppress(NoSuchObject):
                return store.get(key), False
        else:
            return data, True
    raise ObjectStoreUnavailable(
        "the server reports the object as existing, then as missing",
        where=f"{store.uri}/{key}",
        todo="Try again later.",
    )
