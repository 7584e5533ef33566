"""The object store interface and its contract.

`ObstoreStore` implements it for S3 and memory, `FolderStore` for a local folder; `RetryingStore` and `CountedStore`
wrap any of them. `tests/contract/object_store.py` tests the contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from streamvault.objectstore.checksums import KeptChecksums

SMALL = 64 * 1024 * 1024
"""Default size limit of `get` (bytes); an archive's plans, manifests, rows and marks are smaller."""

PAGE = 1000
"""Entries of a listing that S3 sends at once, and its maximum of keys per bulk delete."""

MOST_RECORDS = 1_000_000
"""Entries of a listing that is kept in memory: of manifests and what is beside them."""

STREAM_BYTES = 1024 * 1024
"""About the size of the blocks of `ObjectStore.stream`."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """A listing entry: the key below the root and the object's size in bytes."""

    key: str
    size: int


class ByteStream:
    """Consecutive blocks of an object's bytes, see `ObjectStore.stream`. One thread at a time may use it.

    Args:
        take: returns the next block, a read-only view that stays valid; None at the end. After an
            `ObjectStoreUnavailable` it goes on behind the last block, with bytes of the same object.
        close: drops the connection, if there is one.
    """

    def __init__(self, take: Callable[[], memoryview | None], close: Callable[[], None] = lambda: None) -> None:
        self.take = take
        self.close = close

    def __iter__(self) -> Iterator[memoryview]:
        return iter(self.take, None)


class ObjectStore(ABC):
    """A flat space of keys below one root. Keys are ``/``-separated, relative, plain ASCII.

    Every method raises `ObjectStoreUnavailable` if the store cannot be reached within its retries, `AccessDenied` if
    access is denied, `NoSuchBucket` if the root does not exist, `InvalidKey` for a key that is not allowed, and the
    errors its docstring lists. Methods are thread-safe.

    Attributes:
        uri: the root's URI, e.g. ``s3://bucket/prefix`` (no trailing slash).
    """

    uri: str

    @abstractmethod
    def put(self, key: str, data: bytes | memoryview) -> None:
        """Create an object atomically.

        Raises:
            AlreadyExists: the key is taken; nothing was changed.
        """

    def put_blocks(self, key: str, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
        """Create an object atomically from consecutive blocks.

        Implementations may buffer only a few MiB; this default buffers all blocks. A server that is create-only in
        `put` may not be here: check with `objectstore.probe.creates_only_in_parts` first.

        Args:
            key: the object's key.
            blocks: its bytes, consumed before the object appears; each block is valid until the next is requested. An
                exception raised by the iterable propagates, and no object is created.

        Raises:
            AlreadyExists: the key is taken; nothing was changed.
        """
        self.put(key, b"".join(bytes(block) for block in blocks))

    @abstractmethod
    def get(self, key: str, at_most: int = SMALL) -> bytes:
        """Read a whole object.

        Args:
            key: the object's key.
            at_most: maximum size (bytes).

        Raises:
            NoSuchObject: no object has the key.
            TooLarge: the object is larger than ``at_most``; it was not read.
        """

    @abstractmethod
    def get_range(self, key: str, start: int, end: int) -> memoryview:
        """Read the bytes ``[start, end)`` of an object as a read-only view, without copying.

        Raises:
            WrongSize: the object ends before ``end``; a short result is never returned.
            NoSuchObject: no object has the key.
        """

    def stream(self, key: str, start: int, end: int) -> ByteStream:
        """Read the bytes ``[start, end)`` of an object block by block; close the result unless it is read to its end.

        Nothing is requested before the first block is. Implementations send one request, whose body they receive as
        blocks are taken; this default gets all bytes with the first one.

        Raises, where a block is taken:
            WrongSize: the object ends before ``end``.
            NoSuchObject: no object has the key.
            ObjectStoreError: the object was replaced after the first block.
        """
        held: list[memoryview] = []
        at = 0

        def take() -> memoryview | None:
            nonlocal at
            if not held:
                held.append(self.get_range(key, start, end))
            block = held[0][at : at + STREAM_BYTES]
            at += len(block)
            return block or None

        return ByteStream(take)

    @abstractmethod
    def size(self, key: str) -> int:
        """Return an object's size in bytes.

        Raises:
            NoSuchObject: no object has the key.
        """

    def checksums(self, key: str) -> KeptChecksums:
        """Return an object's size and the checksums that the store keeps of it, without reading it.

        Raises:
            NoSuchObject: no object has the key.
        """
        return KeptChecksums(self.size(key))

    def modified(self, key: str) -> datetime | None:
        """Return when an object was written, by the store's own clock; None if it has none but this machine's.

        Raises:
            NoSuchObject: no object has the key.
        """
        self.size(key)  # raises if there is none
        return None

    @abstractmethod
    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """Iterate over the objects whose key starts with ``prefix``, in byte order of the keys.

        Pages are fetched lazily; memory use is constant.

        Args:
            prefix: a folder ending in ``/``, or empty.
            after: return only keys that sort after this full key.

        Raises:
            UnorderedListing: the server does not list in byte order.
        """

    @abstractmethod
    def folders(self, prefix: str) -> Sequence[str]:
        """Return the names of the non-empty folders directly below ``prefix``, sorted, without slashes."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in bulk requests where supported; missing keys are ignored."""
