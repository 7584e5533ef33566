"""An archive's folder in memory, for tests of layouts."""

from __future__ import annotations

from obstore.store import MemoryStore

from streamvault.layouts.keys import Place
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import ObjectStore
from streamvault.streamstore.model import SegmentId

PREFIX = "scope/stream/"
SEGMENT = SegmentId(3, 7)


def memory() -> ObjectStore:
    return ObstoreStore(MemoryStore(), bucket="memory://archive")


def place_of(store: ObjectStore) -> Place:
    return Place(store, PREFIX)
