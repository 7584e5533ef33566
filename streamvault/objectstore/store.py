"""The object store interface and its contract: objects and keys, checksums, archive classes, locks, and errors.

`ObstoreStore` implements it for S3 and memory, `FolderStore` for a local folder; `RetryingStore` and `CountedStore`
wrap any of them. `tests/contract/test_object_store.py` tests the contract.

Every store takes the same keys: a valid one is valid on S3, on MinIO and as a file name, and stays below the root.
"""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal, TypeVar

from streamvault.common.errors import Absent, Conflict, Damaged, Failed, Usage

B = TypeVar("B", bound=bytes | bytearray | memoryview)


@dataclass(frozen=True, slots=True)
class KeptChecksums:
    """What a store says of an object without reading it.

    Attributes:
        size: bytes.
        crc64nvme: CRC64NVME of all of its bytes, in base64 as S3 has it; empty if the store keeps none.
        sha256: SHA-256 of all of its bytes, in base64; empty if the store keeps none.
    """

    size: int
    crc64nvme: str = ""
    sha256: str = ""


class RunningChecksum:
    """The CRC64NVME of consecutive blocks, so far."""

    def __init__(self) -> None:
        self.value = 0

    def update(self, block: bytes | bytearray | memoryview) -> None:
        """Append a block."""
        self.value = _model().calc(block, self.value)

    def append(self, other: RunningChecksum, size: int) -> None:
        """Append the ``size`` bytes that another one is of."""
        self.value = _model().combine(self.value, other.value, size)

    def of(self, blocks: Iterable[B]) -> Iterator[B]:
        """Yield the blocks; each is appended first."""
        for block in blocks:
            self.update(block)
            yield block

    @property
    def text(self) -> str:
        """The value in base64, as S3 has it."""
        return base64.b64encode(self.value.to_bytes(8)).decode()


def crc64nvme(data: bytes | bytearray | memoryview) -> str:
    """Return the CRC64NVME of some bytes in base64, as S3 has it."""
    found = RunningChecksum()
    found.update(data)
    return found.text


@cache
def _model() -> Any:
    from anycrc import Model  # noqa: PLC0415  (15 ms, which only what writes chunks needs)

    return Model("CRC64-NVME")


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


class ObjectStoreError(Failed):
    """Base class of object store errors."""


class ObjectStoreUnavailable(ObjectStoreError):
    """The store did not answer, throttled or failed until the retries were exhausted. A later retry may succeed."""

    transient = True


class NoSuchHost(ObjectStoreUnavailable):
    """The endpoint's host name does not exist."""


class ServerBusy(ObjectStoreUnavailable):
    """The server answers, but throttles or fails."""


class AccessDenied(ObjectStoreError):
    """The credentials are invalid or lack permission (a read-only bucket)."""


class NoSuchBucket(Absent, ObjectStoreError):
    """The bucket does not exist, or neither the root folder nor the one that it would be created in."""

    @classmethod
    def of(cls, where: str) -> NoSuchBucket:
        """Build the error for a bucket."""
        todo = "Check its name and the endpoint; a new one must be created first."
        return cls("no such bucket", where=where, todo=todo)


class NoSuchObject(ObjectStoreError):
    """No object has this key."""


class InArchiveClass(ObjectStoreError):
    """An object is in an archive class (S3 Glacier) and cannot be read until it is restored."""

    retriable = False

    @classmethod
    def of(cls, class_name: str, where: str) -> InArchiveClass:
        """Build the error for an object that no restore was requested for."""
        todo = "Restore it with 'streamvault warm', which may take hours; then run this again."
        return cls(f"an object is in the archive class {class_name}".rstrip(), where=where, todo=todo)


class OutOfSpace(ObjectStoreError):
    """The store is full."""


class UnorderedListing(ObjectStoreError):
    """The server does not list keys in byte order, so it cannot hold an archive."""

    @classmethod
    def at(cls, root: str) -> UnorderedListing:
        """Build the error for a root (a URI)."""
        todo = "It cannot hold an archive; use another server."
        return cls("the server does not list keys in byte order", where=root, todo=todo)


class WrongSize(ObjectStoreError):
    """An object is shorter than the requested range, or its size differs from the listing."""

    @classmethod
    def short(cls, start: int, end: int, where: str) -> WrongSize:
        """Build the error for an object that ends before the bytes ``[start, end)`` do."""
        return cls(f"the object is too short for bytes {start} to {end}", where=where)


class TooLarge(Damaged):
    """An object is larger than anything an archive stores under its key."""

    @classmethod
    def of(cls, size: int, at_most: int, where: str) -> TooLarge:
        """Build the error for an object of ``size`` bytes where ``at_most`` were expected."""
        return cls(f"the object has {size} bytes instead of at most {at_most}", where=where)


class AlreadyExists(Conflict):
    """An object with this key already exists."""


class InvalidRoot(Usage):
    """The root is neither ``s3://BUCKET/PREFIX`` nor ``file:///FOLDER``."""


class InvalidKey(Usage):
    """The key is not allowed (absolute, ``..``, control characters, an empty part)."""


Warmth = Literal["readable", "cold", "coming"]

Tier = Literal["Bulk", "Standard", "Expedited"]
"""Speed and price of a restore."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object and whether it can be read.

    Attributes:
        key: the key below the root.
        size: bytes.
        class_name: the store's name of its class.
        warmth: ``readable``, ``cold`` (needs a restore request), or ``coming`` (restore in progress).
    """

    key: str
    size: int
    class_name: str
    warmth: Warmth

    def problem(self, root: str) -> InArchiveClass:
        """Return the error for reading it now; ``root`` is the root's URI."""
        where = f"{root}/{self.key}"
        if self.warmth == "coming":
            todo = "S3 is restoring it: wait with 'streamvault warm --wait', or import with --wait-for-warm."
            return InArchiveClass(f"an object is in the archive class {self.class_name}", where=where, todo=todo)
        return InArchiveClass.of(self.class_name, where)


class ColdStorage:
    """What of a root must be restored before it is read. This one is of stores where everything is readable.

    Attributes:
        uri: the root's URI.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def objects(self, folder: str, after: str, stop: str, *, first_page: bool = False) -> Iterator[StoredObject]:
        """Iterate over a folder's objects between two keys, in order; one page of 1,000 is held at a time.

        Args:
            folder: the folder below the root, with trailing slash; empty for the whole root.
            after: list only keys that sort after this one.
            stop: list only keys that sort before this one.
            first_page: stop after the first page.
        """
        del folder, after, stop, first_page
        return iter(())

    def ask(self, objects: Iterable[StoredObject], days: int, tier: Tier) -> int:
        """Request the restore of objects for some days, concurrently; return the number of new requests.

        Repeating it is harmless: restores in progress continue. One page of objects is held at a time.
        """
        del objects, days, tier
        return 0


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


MAX_KEY = 900
"""Maximum length (characters). S3 allows 1,024 bytes; the rest is for the root's prefix."""

# Parts of 1 to 255 characters, none of them "." or "..".
_PART = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9_.=+@:,~ -]{1,255}"
_PATH = re.compile(rf"{_PART}(?:/{_PART})*")


def is_path(text: str) -> bool:
    """Return whether a text is a valid relative path, without leading or trailing slash."""
    return len(text) <= MAX_KEY and _PATH.fullmatch(text) is not None


def check_key(key: str) -> None:
    """Raise `InvalidKey` unless a key is relative, stays below the root and has only characters all stores preserve."""
    if not is_path(key):
        raise InvalidKey("invalid key", where=repr(key[:200]))


def check_prefix(prefix: str) -> None:
    """Raise `InvalidKey` unless a prefix is empty or a valid path with a trailing slash."""
    if prefix and not (prefix.endswith("/") and is_path(prefix[:-1])):
        raise InvalidKey("invalid prefix (it must end in '/')", where=repr(prefix[:200]))
