"""Locks that keep objects from being deleted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that prevents the deletion of an object.

    Attributes:
        key: the object's key below the root.
        reason: ``legal hold``, ``retention (GOVERNANCE)`` or ``retention (COMPLIANCE)``.
        until: when the retention ends; None for a legal hold, which lasts until it is removed.
    """

    key: str
    reason: str
    until: datetime | None = None


class ObjectLocks(ABC):
    """The locks of the objects below a root; opened by `RootAddress.open_locks`."""

    @abstractmethod
    def lock_of(self, key: str) -> Lock | None:
        """Return the lock of one object, or None. A missing permission raises and is never mistaken for "no lock".

        Raises:
            AccessDenied: no permission to read locks.
        """

    @abstractmethod
    def first_lock(self, keys: Iterable[str]) -> Lock | None:
        """Return the first lock found on any of the objects, or None. Sends one request per object, concurrently.

        Keys are consumed lazily, so memory use is constant.

        Raises:
            AccessDenied: no permission to read the objects.
            ObjectStoreError: the objects cannot be read.
        """
