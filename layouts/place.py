"""Where an archive lies in a store that is open."""

from __future__ import annotations

from typing import NamedTuple

from objectstore.store import ObjectStore

__all__ = ["Place"]


class Place(NamedTuple):
    """An archive's folder in a store.

    Attributes:
        store: the root's.
        prefix: ``SCOPE/STREAM/``, or empty if the store's root is the archive.
    """

    store: ObjectStore
    prefix: str

    @property
    def uri(self) -> str:
        """For messages, without a slash at its end."""
        return f"{self.store.uri}/{self.prefix}".rstrip("/")

    def at(self, key: str) -> str:
        """For messages: the URI of a full key of the store."""
        return f"{self.store.uri}/{key}"
