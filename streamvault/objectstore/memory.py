"""Roots in memory, for tests: ``memory://NAME/PREFIX``. What they store is lost with the process."""

from __future__ import annotations

from typing import Any

from obstore.store import MemoryStore

from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.scheme import Scheme, parse_path
from streamvault.objectstore.store import ObjectStore

_STORES: dict[str, MemoryStore] = {}


class _MemoryScheme(Scheme):
    form = "memory://NAME/PREFIX"

    def parse(self, rest: str, uri: str) -> tuple[str, str]:
        """The store's name and the prefix in it."""
        name, _, prefix = rest.partition("/")
        return name, parse_path(prefix, uri)

    def open(self, place: str, path: str, access: Any, **_: Any) -> ObjectStore:  # noqa: ARG002
        """See the base class."""
        return ObstoreStore(_STORES.setdefault(place, MemoryStore()), bucket=f"memory://{place}", prefix=path)


SCHEME = _MemoryScheme()
