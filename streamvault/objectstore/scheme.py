"""What a kind of object store provides to be named in a root's URI. `objectstore.uri` lists the implementations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from streamvault.common.errors import Usage
from streamvault.objectstore.cold import ColdStorage
from streamvault.objectstore.errors import InvalidRoot
from streamvault.objectstore.locks import ObjectLocks
from streamvault.objectstore.paths import is_path
from streamvault.objectstore.store import ObjectStore

if TYPE_CHECKING:
    from streamvault.objectstore.uri import RootAddress


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
    def open(
        self, address: RootAddress, *, data_class: str, retry_seconds: float, timeout_seconds: float
    ) -> ObjectStore:
        """Open the store of a resolved address without contacting a server.

        Args:
            address: the root's address.
            data_class: the class of the objects put, see `RootAddress`; empty for the default.
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
