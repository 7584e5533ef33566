"""A test double for Object Lock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from streamvault.objectstore.store import Lock, ObjectLocks


class Locked(ObjectLocks):
    """Keys that begin with one of these are locked."""

    def __init__(self, *locked: str) -> None:
        self.locked = locked

    def lock_of(self, key: str) -> Lock | None:
        until = datetime(2030, 1, 1, tzinfo=UTC)
        return Lock(key, "retention (COMPLIANCE)", until) if key.startswith(self.locked) else None

    def first_lock(self, keys: Iterable[str]) -> Lock | None:
        return next(filter(None, map(self.lock_of, keys)), None)
