"""Counts the requests to an object store."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any, cast

from streamvault.objectstore.store import PAGE, ObjectInfo, ObjectStore


class CountedStore:
    """Counts the requests to a store, also those that fail: of listings and deletions, one for each 1,000 keys.

    Attributes:
        requests: how many were made.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.requests = 0
        self._store = store
        self._lock = Lock()

    @property
    def store(self) -> ObjectStore:
        """The store whose requests are counted."""
        return cast("ObjectStore", self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)

        def call(*args: Any, **options: Any) -> Any:
            self._add(-(-len(args[0]) // PAGE) if name == "delete" else 1)
            result = found(*args, **options)
            return self._pages(result) if name == "list" else result

        return call if callable(found) else found

    def _pages(self, entries: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        for seen, entry in enumerate(entries):
            if seen and seen % PAGE == 0:
                self._add(1)
            yield entry

    def _add(self, requests: int) -> None:
        with self._lock:
            self.requests += requests
