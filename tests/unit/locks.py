"""A test double for Object Lock."""

from __future__ import annotations

from datetime import UTC, datetime

from streamvault.objectstore.s3.locks import Lock, ObjectLocks


class Locked(ObjectLocks):
    """Keys that begin with one of these are locked."""

    def __init__(self, *locked: str) -> None:
        self.locked = locked

    def lock_of(self, key: str) -> Lock | None:
        until = datetime(2030, 1, 1, tzinfo=UTC)
        return Lock(key, "retention (COMPLIANCE)", until) if key.startswith(self.locked) else None

    def _look(self, key: str) -> Lock | None:
        return self.lock_of(key)
