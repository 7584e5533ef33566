"""Where a root is: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``, and what a process needs to open it."""

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
"""How long a request is tried again while the server is busy or away."""

TIMEOUT_SECONDS = 30.0
"""How long a server may be silent in the middle of a request."""

_FORMS = "A root is s3://BUCKET/PREFIX or file:///FOLDER."
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_MEMORY: dict[str, MemoryStore] = {}


@dataclass(frozen=True, slots=True)
class RootAddress:
    """The address of a root. Small, hashable and picklable: it travels to the tasks. Shows no secret.

    Attributes:
        scheme: ``s3``, ``file`` or ``memory`` (tests only: gone with the process).
        place: the bucket, the absolute folder, or memory's name.
        prefix: where in the bucket; a path without slashes at its ends, or empty.
        access: how the bucket is reached, once `resolve` found out.
        storage_class: S3 storage class of what is put through this address; empty for the bucket's own.
    """

    scheme: Literal["s3", "file", "memory"]
    place: str
    prefix: str = ""
    access: S3Access | None = None
    storage_class: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a root's URI. Nothing is looked up.

        Raises:
            InvalidRoot: it is neither of the two forms.
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
        raise InvalidRoot("not a root's URI", where=repr(text), todo=_FORMS)

    def __str__(self) -> str:
        return self.uri

    @property
    def uri(self) -> str:
        """The URI, without a slash at its end."""
        if self.scheme == "file":
            return f"file://{quote(self.place)}"
        return f"{self.scheme}://{self.place}/{self.prefix}".rstrip("/")

    def split(self) -> tuple[Self, str, str]:
        """Take an archive's address apart: its root, scope and stream (``ROOT/SCOPE/STREAM``).

        Raises:
            InvalidRoot: it has not two folders to give.
        """
        path = self.place if self.scheme == "file" else f"/{self.prefix}"
        rest, _, stream = path.rpartition("/")
        root, slash, scope = rest.rpartition("/")
        if not (slash and scope and stream):
            raise InvalidRoot("not an archive's URI", where=self.uri, todo="An archive is ROOT/SCOPE/STREAM.")
        if self.scheme == "file":
            return replace(self, place=root or "/"), scope, stream
        return replace(self, prefix=root.strip("/")), scope, stream

    def resolve(self) -> Self:
        """On the driver: find out how the bucket is reached, so that every task does it alike.

        Static credentials become part of the address; renewable ones are left to each process, by the profile's name.

        Raises:
            AccessDenied: there are no credentials.
        """
        if self.scheme != "s3" or self.access is not None:
            return self
        from objectstore.s3.aws import resolve_access  # noqa: PLC0415  (it imports botocore; tasks do without)

        return replace(self, access=resolve_access(self.place))

    def open(self, *, retry_seconds: float = RETRY_SECONDS, timeout_seconds: float = TIMEOUT_SECONDS) -> ObjectStore:
        """Open the store; nothing is asked of the server yet. The same address gives a process the same store.

        Args:
            retry_seconds: how long a request is tried again while the server is busy or away.
            timeout_seconds: how long a server may be silent in the middle of a request.

        Raises:
            AccessDenied: there are no credentials.
        """
        return _open(self.resolve(), retry_seconds, timeout_seconds, os.getpid())


def forget_memory() -> None:
    """Drop all that was put below ``memory`` roots, for tests: a table's file there keeps a descriptor each."""
    _open.cache_clear()
    _MEMORY.clear()


@lru_cache(maxsize=16)
def _open(address: RootAddress, retry_seconds: float, timeout_seconds: float, _process: int) -> ObjectStore:
    # By process: connections do not survive a fork.
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
    from objectstore.s3.multipart import upload  # noqa: PLC0415  (it imports botocore; few objects need it)

    if address.access is None:
        raise ValueError("an address is resolved before it is opened")
    upload(address.access, address.place, key, blocks, storage_class=address.storage_class)


def _bucket(bucket: str, text: str) -> str:
    if not bucket:
        raise InvalidRoot("no bucket in the URI", where=repr(text), todo=_FORMS)
    if {":", "@"} & set(bucket):
        todo = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
        raise InvalidRoot("a login does not belong into a bucket's URI", where="s3://…", todo=todo)
    if not _BUCKET.fullmatch(bucket):
        raise InvalidRoot("not a bucket's name", where=repr(bucket), todo=_FORMS)
    return bucket


def _prefix(prefix: str, text: str) -> str:
    prefix = prefix.rstrip("/")
    if prefix and not is_path(prefix):
        todo = "Use letters, digits and _ . = + @ : , ~ - in it, and no empty part, '.' or '..'."
        raise InvalidRoot("not a prefix for a bucket", where=repr(text), todo=todo)
    return prefix


def _folder(rest: str, text: str) -> str:
    folder = unquote(rest.removeprefix("localhost"))
    if not folder.startswith("/"):
        raise InvalidRoot("not an absolute folder", where=repr(text), todo="Use file:///FOLDER, with three slashes.")
    if "\0" in folder or ".." in folder.split("/"):
        raise InvalidRoot("not a plain folder", where=repr(text), todo="Leave out '..' and control characters.")
    return os.path.normpath("/" + folder.lstrip("/"))
