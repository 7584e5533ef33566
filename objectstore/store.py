"""The narrow interface to a place that holds objects, and its contract.

One implementation over obstore serves S3, a folder and memory; retry, metrics and the like are wrappers with this same
interface. `tests/contract/object_store.py` is the contract as tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["SMALL", "ObjectInfo", "ObjectStore"]

SMALL = 64 * 1024 * 1024
"""Bytes that `get` takes if it is not told otherwise; an archive's plans, manifests, rows and marks are smaller."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One entry of a listing: the key below the root, and the object's size in bytes."""

    key: str
    size: int


class ObjectStore(ABC):
    """A flat space of keys below one root. Keys are ``/``-separated, relative, plain ASCII.

    Every method raises `ObjectStoreUnavailable` if the store cannot be reached within its retries, `AccessDenied` if it
    refuses, `NoSuchBucket` if the root is not there, `InvalidKey` for a key that could leave the root, and otherwise
    what its docstring says. Methods may be called from several threads at once.
    """

    @property
    @abstractmethod
    def uri(self) -> str:
        """The root's URI, e.g. ``s3://bucket/prefix`` (no trailing slash)."""

    @abstractmethod
    def put(self, key: str, data: bytes | memoryview) -> None:
        """Create an object; it becomes visible whole or not at all.

        Raises:
            AlreadyExists: the key is taken; nothing was changed.
        """

    def put_blocks(self, key: str, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
        """Create an object from blocks that follow each other; it becomes visible whole or not at all.

        A store that can do so holds a few mebibytes of them; this default holds all. Not every server is create-only
        here that is so in `put`: ask `objectstore.probe.creates_only_in_parts` first.

        Args:
            key: the object.
            blocks: its bytes, used up before the object appears; each is valid until the next one is asked for. What
                they raise is raised, and no object appears.

        Raises:
            AlreadyExists: the key is taken; nothing was changed.
        """
        self.put(key, b"".join(bytes(block) for block in blocks))

    @abstractmethod
    def get(self, key: str, at_most: int = SMALL) -> bytes:
        """All of an object.

        Args:
            key: the object's.
            at_most: bytes that it may have.

        Raises:
            NoSuchObject: no object has the key.
            TooLarge: it has more bytes; they were not read.
        """

    @abstractmethod
    def get_range(self, key: str, start: int, end: int) -> memoryview:
        """An object's bytes ``[start, end)``, read-only, and not copied on their way.

        Raises:
            WrongSize: the object does not reach so far; a short answer is an error, never a short result.
            NoSuchObject: no object has the key.
        """

    @abstractmethod
    def size(self, key: str) -> int:
        """An object's size in bytes.

        Raises:
            NoSuchObject: no object has the key.
        """

    @abstractmethod
    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """Every object whose key starts with ``prefix`` (empty, or ending in ``/``), in byte order of the keys.

        Pages are fetched as the caller goes on; memory does not grow with their number.

        Args:
            prefix: a whole folder.
            after: only keys that sort after this full key.

        Raises:
            UnorderedListing: the server's order is another.
        """

    @abstractmethod
    def folders(self, prefix: str) -> Sequence[str]:
        """The names directly below ``prefix`` that have objects below them, sorted, without slashes."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, in bulk requests where the store has them; keys that do not exist are fine."""
