"""Where the states of reader groups are kept: below a root that servers share, or in memory, where they end with it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from obstore.store import MemoryStore

from streamvault.common.errors import Failed, Usage
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.probe import probe_folder, probe_server
from streamvault.objectstore.store import OutOfSpace, UnorderedListing
from streamvault.objectstore.uri import RootAddress
from streamvault.serving.state import Groups

RETRY_SECONDS = TIMEOUT_SECONDS = 10.0
"""How long a request is retried, and a server may be silent. Clients try again for longer, at another server too."""

OVERHEAD = 512
"""What an object in memory takes besides its bytes, about."""

SMALL = 128
"""Entries that append nothing are no longer: they truncate or delete, which is how room is made."""

CREATES = b'"kind": "create"'
"""What entries have that create a group: however small they are, they make no room."""


def open_groups(root: str, limit: int, archives: Iterable[str]) -> Groups:
    """Open the reader groups below a root that servers share.

    Args:
        root: its URI, or a folder.
        limit: most bytes of their states in memory.
        archives: the URIs of what is served.

    Raises:
        Usage: there are archives at the root, or it is in one: deleting these would delete states.
        Failed: its writes are not create-only, so one server would overwrite what another has acknowledged.
        ObjectStoreError: it cannot be reached, listed, written, or deleted from.
    """
    address = RootAddress.parse(root)
    for one in archives:
        if f"{one}/".startswith(f"{address.uri}/") or f"{address.uri}/".startswith(f"{one}/"):
            what, where = "the states of reader groups require a separate root", f"--state {address}, {one}"
            raise Usage(what, where=where, todo="Name one that contains no archives and is not inside one.")
    store = address.open(retry_seconds=RETRY_SECONDS, timeout_seconds=TIMEOUT_SECONDS)
    probed = probe_server(store, probe_folder())
    if not probed.is_ordered:
        raise UnorderedListing.at(address.uri)
    if not (probed.creates_only and probed.deletes):
        what = "creates no object only if there is none" if not probed.creates_only else "may not delete"
        raise Failed(f"the states of reader groups cannot be kept here: the server {what}", where=address.uri)
    return Groups(store, limit)


def groups_in_memory(limit: int) -> Groups:
    """Return reader groups that end with the process and take at most so many bytes."""
    return Groups(_Memory(limit // 2), limit // 2)  # each of them has the states


class _Memory(ObstoreStore):
    """Objects in memory, of so many bytes at most."""

    def __init__(self, limit: int) -> None:
        super().__init__(MemoryStore(), bucket="memory://state")
        self._limit, self._sizes = limit, dict[str, int]()
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See the base class; a snapshot, too, makes room, as what is before it is deleted next."""
        size = len(data) + OVERHEAD
        with self._lock:
            grows = len(data) > SMALL or CREATES in bytes(data[:SMALL])
            if self._bytes + size > self._limit and grows and "/snapshots/" not in key:
                raise OutOfSpace("the states of the reader groups take too much memory", todo="Raise --cache.")
            super().put(key, data)
            self._sizes[key] = size
            self._bytes += size

    def delete(self, keys: Sequence[str]) -> None:
        """See the base class."""
        with self._lock:
            super().delete(keys)
            self._bytes -= sum(self._sizes.pop(key, 0) for key in keys)
