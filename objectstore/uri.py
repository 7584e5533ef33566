"""Addresses of roots: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``, and how to open them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote, unquote

from obstore.store import MemoryStore

from objectstore.errors import InvalidRoot
from objectstore.folder.store import FolderStore
from objectstore.obstore_store import ObstoreStore
from objectstore.paths import is_path
from objectstore.retrying import RetryingStore
from objectstore.s3.access import S3Access
from objectstore.s3.bucket import open_bucket
from objectstore.store import ObjectStore

__all__ = ["RETRY_SECONDS", "RootAddress", "forget_memory"]

RETRY_SECONDS = 60.0
"""How long a request is retried while the server is busy or unreachable."""

TIMEOUT_SECONDS = 30.0
"""How long a server may be silent during a request."""

_FORMS = "A root is s3://BUCKET/PREFIX or file:///FOLDER."
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_MEMORY: dict[str, MemoryStore] = {}


@dataclass(frozen=True, slots=True)
class RootAddress:
    """The address of a root. Small, hashable and picklable, for sending to tasks. Its repr shows no secrets.

    Attributes:
        scheme: ``s3``, ``file`` or ``memory`` (tests only: lost with the process).
        place: the bucket, the absolute folder, or the name of a memory store.
        prefix: path in the bucket, without leading or trailing slash; may be empty.
        access: how to reach the bucket; set by `resolve`.
        storage_class: S3 storage class of objects put through this address; empty for the bucket's default.
    """

    scheme: Literal["s3", "file", "memory"]
    place: str
    prefix: str = ""
    access: S3Access | None = None
    storage_class: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a root URI. Nothing is looked up.

        Raises:
            InvalidRoot: the text has neither of the two forms.
        """
        scheme, separator, rest = text.partition("://")
        if separator and scheme == "s3":
            bucket, _, prefix = rest.partition("/")
            return cls("s3", _bucket(bucket, text), _prefix(prefix, text))
        if separator and scheme == "file":
            return cls("file", _folder(rest, text))
        if separator and scheme == "memory":
            name, _, prefix = rest.partition("/")
            return cls("memory", name, _prefix(prefix, text))
        raise InvalidRoot("not a root URI", where=repr(text), todo=_FORMS)

    def __str__(self) -> str:
        return self.uri

    @property
    def uri(self) -> str:
        """The URI, without trailing slash."""
        if self.scheme == "file":
            return f"file://{quote(self.place)}"
        return f"{self.scheme}://{self.place}/{self.prefix}".rstrip("/")

    def split(self) -> tuple[Self, str, str]:
        """Split an archive's address ``ROOT/SCOPE/STREAM`` into root, scope and stream.

        Raises:
            InvalidRoot: the path has fewer than two folders.
        """
        path = self.place if self.scheme == "file" else f"/{self.prefix}"
        rest, _, stream = path.rpartition("/")
        root, slash, scope = rest.rpartition("/")
        if not (slash and scope and stream):
            raise InvalidRoot("not an archive URI", where=self.uri, todo="An archive is ROOT/SCOPE/STREAM.")
        if self.scheme == "file":
            return replace(self, place=root or "/"), scope, stream
        return replace(self, prefix=root.strip("/")), scope, stream

    def resolve(self) -> Self:
        """Determine on the driver how to reach the bucket, so that all tasks do the same.

        Static credentials become part of the address; renewable ones are resolved by each process from the profile.

        Raises:
            AccessDenied: there are no credentials.
        """
        if self.scheme != "s3" or self.access is not None:
            return self
        from objectstore.s3.aws import resolve_access  # noqa: PLC0415  (imports botocore, which tasks avoid)

        return replace(self, access=resolve_access(self.place))

    def open(self, *, retry_seconds: float = RETRY_SECONDS, timeout_seconds: float = TIMEOUT_SECONDS) -> ObjectStore:
        """Open the store without contacting the server. A process gets the same store for the same address.

        Args:
            retry_seconds: how long to retry a request while the server is busy or unreachable.
            timeout_seconds: how long a server may be silent during a request.

        Raises:
            AccessDenied: there are no credentials.
        """
        return _open(self.resolve(), retry_seconds, timeout_seconds, os.getpid())


def forget_memory() -> None:
    """Drop everything stored below ``memory`` roots, for tests: each table file there keeps a descriptor open."""
    _open.cache_clear()
    _MEMORY.clear()


@lru_cache(maxsize=16)
def _open(address: RootAddress, retry_seconds: float, timeout_seconds: float, _process: int) -> ObjectStore:
    # Keyed by process: connections do not survive a fork.
    if address.scheme == "file":
        return FolderStore(Path(address.place))
    if address.scheme == "memory":
        memory = _MEMORY.setdefault(address.place, MemoryStore())
        return ObstoreStore(memory, bucket=f"memory://{address.place}", prefix=address.prefix)
    if address.access is None:
        raise ValueError("an address is resolved before it is opened")
    open_it = partial(open_bucket, address.place, address.access, timeout=timeout_seconds)
    store = ObstoreStore(
        open_it(),
        bucket=f"s3://{address.place}",
        prefix=address.prefix,
        endpoint=address.access.endpoint,
        patient=partial(open_it, patient=True),
        storage_class=address.storage_class,
        upload=partial(_upload, address),
    )
    return RetryingStore(store, total_seconds=retry_seconds)


def _upload(address: RootAddress, key: str, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
    from objectstore.s3.multipart import upload  # noqa: PLC0415  (imports botocore; few objects need it)

    if address.access is None:
        raise ValueError("an address is resolved before it is opened")
    upload(address.access, address.place, key, blocks, storage_class=address.storage_class)


def _bucket(bucket: str, text: str) -> str:
    if not bucket:
        raise InvalidRoot("the URI has no bucket", where=repr(text), todo=_FORMS)
    if {":", "@"} & set(bucket):
        todo = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
        raise InvalidRoot("a bucket URI must not contain credentials", where="s3://…", todo=todo)
    if not _BUCKET.fullmatch(bucket):
        raise InvalidRoot("invalid bucket name", where=repr(bucket), todo=_FORMS)
    return bucket


def _prefix(prefix: str, text: str) -> str:
    prefix = prefix.rstrip("/")
    if prefix and not is_path(prefix):
        todo = "Use letters, digits and _ . = + @ : , ~ -, and no empty part, '.' or '..'."
        raise InvalidRoot("invalid prefix", where=repr(text), todo=todo)
    return prefix


def _folder(rest: str, text: str) -> str:
    folder = unquote(rest.removeprefix("localhost"))
    if not folder.startswith("/"):
        raise InvalidRoot("not an absolute folder", where=repr(text), todo="Use file:///FOLDER, with three slashes.")
    if "\0" in folder or ".." in folder.split("/"):
        raise InvalidRoot("invalid folder", where=repr(text), todo="Remove '..' and control characters.")
    return os.path.normpath("/" + folder.lstrip("/"))
