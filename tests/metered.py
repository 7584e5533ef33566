"""Object store wrapper that counts requests and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Lock
from typing import TypeVar

from streamvault.objectstore.store import PAGE, SMALL, ByteStream, KeptChecksums, ObjectInfo, ObjectStore

D = TypeVar("D", bytes, memoryview)


@dataclass(slots=True)
class Meter:
    """Requests by kind, and the bytes read. Listings and deletions count one request per 1,000 keys."""

    puts: int = 0
    gets: int = 0
    sizes: int = 0
    lists: int = 0
    deletes: int = 0
    bytes_got: int = 0

    @property
    def requests(self) -> int:
        """Total number of requests."""
        return self.puts + self.gets + self.sizes + self.lists + self.deletes


class MeteredStore(ObjectStore):
    """Counts the requests to the wrapped store, including failed ones. Thread-safe."""

    def __init__(self, store: ObjectStore) -> None:
        self.uri = store.uri
        self._store = store
        self._meter = Meter()
        self._lock = Lock()

    @property
    def meter(self) -> Meter:
        """A copy of the current counts."""
        with self._lock:
            return replace(self._meter)

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See `ObjectStore.put`."""
        self._count(puts=1)
        self._store.put(key, data)

    def put_blocks(self, key: str, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
        """See `ObjectStore.put_blocks`; counted as one request regardless of the number of parts."""
        self._count(puts=1)
        self._store.put_blocks(key, blocks)

    def get(self, key: str, at_most: int = SMALL) -> bytes:
        """See `ObjectStore.get`."""
        return self._got(self._store.get, key, at_most)

    def get_range(self, key: str, start: int, end: int) -> memoryview:
        """See `ObjectStore.get_range`."""
        return self._got(self._store.get_range, key, start, end)

    def stream(self, key: str, start: int, end: int) -> ByteStream:
        """See `ObjectStore.stream`; counted as one request."""
        self._count(gets=1)
        blocks = self._store.stream(key, start, end)

        def take() -> memoryview | None:
            block = blocks.take()
            self._count(bytes_got=len(block or b""))
            return block

        return ByteStream(take, blocks.close)

    def _got(self, get: Callable[..., D], *what: str | int) -> D:
        self._count(gets=1)
        data = get(*what)
        self._count(bytes_got=len(data))
        return data

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        self._count(sizes=1)
        return self._store.size(key)

    def checksums(self, key: str) -> KeptChecksums:
        """See `ObjectStore.checksums`; counted like `size`."""
        self._count(sizes=1)
        return self._store.checksums(key)

    def modified(self, key: str) -> datetime | None:
        """See `ObjectStore.modified`; counted like `size`."""
        self._count(sizes=1)
        return self._store.modified(key)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        self._count(lists=1)
        for seen, entry in enumerate(self._store.list(prefix, after)):
            if seen and seen % PAGE == 0:
                self._count(lists=1)
            yield entry

    def folders(self, prefix: str) -> Sequence[str]:
        """See `ObjectStore.folders`."""
        self._count(lists=1)
        return self._store.folders(prefix)

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore.delete`."""
        self._count(deletes=-(-len(keys) // PAGE))
        self._store.delete(keys)

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, number in more.items():
                setattr(self._meter, name, getattr(self._meter, name) + number)
