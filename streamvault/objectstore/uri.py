"""Addresses of roots: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``, and how to open them."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import quote

from streamvault.common.errors import Usage
from streamvault.objectstore.retrying import RETRY_SECONDS
from streamvault.objectstore.store import ColdStorage, InvalidRoot, ObjectLocks, ObjectStore, is_path


class Scheme(ABC):
    """Roots of one URI scheme: how they are written, and how their stores are opened.

    Attributes:
        form: how a root is written, for messages.
        may_be_cold: whether an object may have to be restored before it can be read.
    """

    form: ClassVar[str]
    may_be_cold: ClassVar[bool] = False

    @abstractmethod
    def parse(self, rest: str, uri: str) -> tuple[str, str]:
        """Parse what follows ``://`` in ``uri``; return the place and the path in it, see `RootAddress`.

        Raises:
            InvalidRoot: the URI is invalid. The message contains no credentials.
        """

    def format(self, place: str, path: str) -> str:
        """Return what follows ``://`` in the URI; the inverse of `parse`."""
        return f"{place}/{path}"

    def resolve(self, place: str) -> Any:
        """Determine how to reach a place: a small, hashable and picklable value, or None.

        Raises:
            AccessDenied: there are no credentials.
        """
        del place

    def probe(self, address: RootAddress, folder: str, size: int) -> Any:  # noqa: ARG002
        """Find out what new objects are best sent with; return what `resolve` did, completed.

        Args:
            address: the resolved address of the root.
            folder: where to try it; a path in the root with a trailing slash.
            size: how much will be put, about (bytes).
        """
        return address.access

    @abstractmethod
    def open(self, address: RootAddress, *, retry_seconds: float, timeout_seconds: float) -> ObjectStore:
        """Open the store of a resolved address without contacting a server.

        Args:
            address: the root's address, with the class of the objects put.
            retry_seconds: how long to retry a request while the server is busy or unreachable.
            timeout_seconds: how long a server may be silent during a request.
        """

    def check_data_class(self, name: str, root: str) -> None:
        """Check the form of the class that a user wants data objects to have; whether it exists, the server knows.

        Raises:
            Usage: it is malformed, or there are no classes at the root (a URI).
        """
        del name
        raise Usage("this root has no storage classes", where=root, todo="Omit --storage-class.")

    def check_read_at_once(self, name: str) -> None:
        """Reject a class whose objects cannot be read right after they are written.

        Raises:
            Usage: the objects of this class cannot be read at once.
        """
        del name

    def open_locks(self, address: RootAddress) -> ObjectLocks | None:
        """Open the locks below a root; None if there can be none.

        An unknown answer is an error: treating it as "no locks" could hide locked objects.

        Raises:
            AccessDenied: no permission to read the configuration of locks.
            ObjectStoreError: the configuration cannot be read.
        """
        del address
        return None

    def open_cold_storage(self, address: RootAddress) -> ColdStorage:
        """Open what of a root must be restored before it is read."""
        return ColdStorage(address.uri)


def parse_path(path: str, uri: str) -> str:
    """Return a path without its trailing slash.

    Raises:
        InvalidRoot: it has characters or parts that keys must not have.
    """
    path = path.rstrip("/")
    if path and not is_path(path):
        todo = "Use letters, digits and _ . = + @ : , ~ -, and no empty part, '.' or '..'."
        raise InvalidRoot("invalid prefix", where=repr(uri), todo=todo)
    return path


SCHEMES = {
    "s3": "streamvault.objectstore.s3.scheme",
    "file": "streamvault.objectstore.folder",
    "memory": "streamvault.objectstore.obstore_store",
}
"""URI scheme → the module whose ``SCHEME`` implements it."""

_FOR_TESTS = {"memory"}
_NOT_A_ROOT = "not a root URI"
_A_STREAM = re.compile(r"(pravega(\+tls)?|local)://", re.IGNORECASE)
_HOST_AND_PORT = re.compile(r"[\w.-]+:\d+(/|$)", re.ASCII)

TIMEOUT_SECONDS = 30.0
"""How long a server may be silent during a request."""


@dataclass(frozen=True, slots=True)
class RootAddress:
    """The address of a root. Small, hashable and picklable, for sending to tasks. Its repr shows no secrets.

    Attributes:
        name: the URI's scheme, a key of `SCHEMES`.
        place: the bucket; empty for a folder.
        prefix: path in the place, without leading or trailing slash; may be empty.
        access: how to reach the place; set by `resolve`.
        data_class: the class, in the store's terms, of the objects put through `open_data`; empty for the default.
    """

    name: str
    place: str
    prefix: str = ""
    access: Any = None
    data_class: str = ""

    @classmethod
    def parse(cls, text: str | os.PathLike[str]) -> Self:
        """Parse a root URI, or the absolute path of a folder. Nothing is looked up.

        Raises:
            InvalidRoot: the text is not such a URI.
        """
        text = str(text)
        name, separator, rest = folder_uri(text).partition("://")
        name = name.lower()
        if not separator or name not in SCHEMES:
            forms = ", ".join(_scheme(known).form for known in SCHEMES if known not in _FOR_TESTS)
            todo = f"{_hint(text)}A root is {forms} or the absolute path of a folder."
            raise InvalidRoot(_NOT_A_ROOT, where=repr(text), todo=todo)
        return cls(name, *_scheme(name).parse(rest, text))

    def __str__(self) -> str:
        return self.uri

    @property
    def scheme(self) -> Scheme:
        """The implementation of the URI's scheme."""
        return _scheme(self.name)

    @property
    def uri(self) -> str:
        """The URI, without trailing slash unless it is the root folder's."""
        return f"{self.name}://{self.scheme.format(self.place, self.prefix).rstrip('/') or '/'}"

    @property
    def folder(self) -> Path | None:
        """The local folder; None if the root is not one."""
        return Path("/", self.prefix) if self.name == "file" else None

    def below(self, path: str) -> Self:
        """Return the address of a path below this one."""
        return replace(self, prefix=f"{self.prefix}/{path}".strip("/"))

    @classmethod
    def parse_archive(cls, text: str | os.PathLike[str]) -> tuple[Self, str, str]:
        """Parse an archive's address ``ROOT/SCOPE/STREAM`` into root, scope and stream. Nothing is looked up.

        Raises:
            InvalidRoot: the text is not such an address.
        """
        try:
            address = cls.parse(text)
        except InvalidRoot as error:
            if error.what != _NOT_A_ROOT:
                raise
            todo = f"An archive is ROOT/SCOPE/STREAM. {error.todo}"
            raise InvalidRoot("not an archive URI", where=error.where, todo=todo) from None
        return address.split()

    def split(self) -> tuple[Self, str, str]:
        """Split an archive's address ``ROOT/SCOPE/STREAM`` into root, scope and stream.

        Raises:
            InvalidRoot: the path has fewer than two folders.
        """
        *root, scope, stream = "", *self.prefix.split("/")
        if not (scope and stream):
            raise InvalidRoot("not an archive URI", where=self.uri, todo="An archive is ROOT/SCOPE/STREAM.")
        return replace(self, prefix="/".join(root[1:])), scope, stream

    def resolve(self) -> Self:
        """Determine on the driver how to reach the place, so that all tasks do the same.

        Raises:
            AccessDenied: there are no credentials.
        """
        return self if self.access is not None else replace(self, access=self.scheme.resolve(self.place))

    def probe(self, folder: str, size: int) -> Self:
        """Find out on the driver how so many bytes are best sent, so that all tasks do the same.

        May write a small object below ``folder``, a path in the root with a trailing slash, and delete it.
        """
        resolved = self.resolve()
        return replace(resolved, access=self.scheme.probe(resolved, folder, size))

    def with_data_class(self, name: str) -> Self:
        """Return the address with a class for data objects; empty for the default.

        Raises:
            Usage: the class is malformed, or the store has none.
        """
        if name:
            self.scheme.check_data_class(name, self.uri)
        return replace(self, data_class=name)

    def check_read_at_once(self) -> None:
        """Check that data objects can be read right after they are written.

        Raises:
            Usage: those of the address's class cannot.
        """
        self.scheme.check_read_at_once(self.data_class)

    def open(self, *, retry_seconds: float = RETRY_SECONDS, timeout_seconds: float = TIMEOUT_SECONDS) -> ObjectStore:
        """Open the store without contacting the server. A process gets the same store for the same address.

        Raises:
            AccessDenied: there are no credentials.
        """
        return _open(replace(self.resolve(), data_class=""), retry_seconds, timeout_seconds, os.getpid())

    def open_data(self) -> ObjectStore:
        """Open the store for putting data objects: like `open`, with the address's class."""
        return _open(self.resolve(), RETRY_SECONDS, TIMEOUT_SECONDS, os.getpid()) if self.data_class else self.open()

    def open_locks(self) -> ObjectLocks | None:
        """See `Scheme.open_locks`."""
        return self.scheme.open_locks(self.resolve())

    def open_cold_storage(self) -> ColdStorage:
        """See `Scheme.open_cold_storage`."""
        return self.scheme.open_cold_storage(self.resolve())


def folder_uri(text: str) -> str:
    """Return the URI of a folder given by its absolute path, where a ``*`` stays one; any other text as it is."""
    return f"file://{quote(os.fsencode(text), safe='/*')}" if text.startswith("/") else text


def _hint(text: str) -> str:
    """Return what a text seems to be that is not a root, as a sentence."""
    if _A_STREAM.match(text):
        return "It is a stream's URI: are the arguments in the wrong order? "
    if _HOST_AND_PORT.match(text):
        return f"If it is a Pravega cluster, write pravega://{text}. "
    return ""


def _scheme(name: str) -> Scheme:
    scheme: Scheme = import_module(SCHEMES[name]).SCHEME
    return scheme


@lru_cache(maxsize=16)
def _open(address: RootAddress, retry_seconds: float, timeout_seconds: float, _process: int) -> ObjectStore:
    # Keyed by process: connections do not survive a fork.
    return address.scheme.open(address, retry_seconds=retry_seconds, timeout_seconds=timeout_seconds)
