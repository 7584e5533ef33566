"""Objects that must be restored before they can be read, because the store has moved them to an archive class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from streamvault.objectstore.errors import InArchiveClass

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
