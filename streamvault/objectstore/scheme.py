"""What a kind of object store provides to be named in a root's URI. `objectstore.uri` lists the implementations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from streamvault.objectstore.errors import InvalidRoot
from streamvault.objectstore.paths import is_path
from streamvault.objectstore.store import ObjectStore


class Scheme(ABC):
    """Roots of one URI scheme: how they are written, and how their stores are opened.

    Attributes:
        form: how a root is written, for messages.
        has_storage_classes: whether an object has a storage class, which may have to be restored before it can be read.
    """

    form: ClassVar[str]
    has_storage_classes: ClassVar[bool] = False

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

    @abstractmethod
    def open(
        self, place: str, path: str, access: Any, *, storage_class: str, retry_seconds: float, timeout_seconds: float
    ) -> ObjectStore:
        """Open the store without contacting a server.

        Args:
            place: as parsed.
            path: as parsed.
            access: what `resolve` has returned.
            storage_class: of the objects put; empty for the default.
            retry_seconds: how long to retry a request while the server is busy or unreachable.
            timeout_seconds: how long a server may be silent during a request.
        """


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
