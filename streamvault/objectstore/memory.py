"""Roots in memory, for tests: ``memory://NAME/PREFIX``. What they store is lost with the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from obstore.store import MemoryStore

from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import ObjectStore
from streamvault.objectstore.uri import Scheme, parse_path

if TYPE_CHECKING:
    from streamvault.objectstore.uri import RootAddress

_STORES: dict[str, MemoryStore] = {}


class _MemoryScheme(Scheme):
    form = "memory://NAME/PREFIX"

    def parse(self, rest: str, uri: str) -> tuple[str, str]:
        """The store's name and the prefix in it."""
        name, _, prefix = rest.partition("/")
        return name, parse_path(prefix, uri)

    def open(self, address: RootAddress, **_: Any) -> ObjectStore:
        """See the base class."""
        store = _STORES.setdefault(address.place, MemoryStore())
        return ObstoreStore(store, bucket=f"memory://{address.place}", prefix=address.prefix)


SCHEME = _MemoryScheme()
