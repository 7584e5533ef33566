"""Location of an archive in an open store."""

from __future__ import annotations

from typing import NamedTuple

from streamvault.objectstore.store import ObjectStore
from streamvault.objectstore.uri import RootAddress


class Place(NamedTuple):
    """An archive's folder in a store.

    Attributes:
        store: the store of the archive's root.
        prefix: ``SCOPE/STREAM/``; empty if the store's root is the archive.
    """

    store: ObjectStore
    prefix: str

    @property
    def uri(self) -> str:
        """The archive's URI for messages, without a trailing slash."""
        return f"{self.store.uri}/{self.prefix}".rstrip("/")

    def at(self, key: str) -> str:
        """Return the URI of a full key of the store, for messages."""
        return f"{self.store.uri}/{key}"


class PlaceAddress(NamedTuple):
    """The address of an archive's folder, for tasks that open it themselves: the root, and the folder below it."""

    root: RootAddress
    prefix: str

    def probe(self, size: int) -> PlaceAddress:
        """Return the address for tasks that put so many bytes, see `RootAddress.probe`."""
        return self._replace(root=self.root.probe(f"{self.prefix}_work/", size))

    def open(self) -> Place:
        """Open the archive's folder."""
        return Place(self.root.open(), self.prefix)

    def open_data(self) -> Place:
        """Open the archive's folder for putting data objects, see `RootAddress.open_data`."""
        return Place(self.root.open_data(), self.prefix)
