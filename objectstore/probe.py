"""Whether a server can hold an archive: some that speak S3 ignore what an archive relies on."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from objectstore.errors import (
    AccessDenied,
    AlreadyExists,
    ObjectStoreError,
    ObjectStoreUnavailable,
    UnorderedListing,
)
from objectstore.store import ObjectStore

__all__ = ["ServerCheck", "check_server", "creates_only_in_parts", "fit_server"]

_NAMES = ("0", "0-0", "0.0", "00", "A", "_", "a")
"""In byte order; most other orders disagree somewhere."""


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """What a probe found.

    Attributes:
        create_only: a second put of a key is refused. Without it, two runs at once could overwrite each other.
        ordered: keys are listed in the order of their bytes. Without it, there is no archive.
        deletes: objects can be deleted. Else unfinished work, and this probe, stay behind.
    """

    create_only: bool
    ordered: bool
    deletes: bool

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each thing that the server does not do; empty if all is well."""
        alone = "do not run two exports of a stream at once, or two handoffs"
        said = {
            f"the server overwrites objects in spite of If-None-Match: {alone}": self.create_only,
            "the server does not list keys in the order of their bytes: it cannot hold an archive": self.ordered,
        }
        return tuple(text for text, fine in said.items() if not fine)


def check_server(store: ObjectStore, prefix: str = "") -> ServerCheck:
    """Put a few empty objects below ``prefix`` + ``_work/``, look at them, and delete them again.

    Args:
        store: the root's store.
        prefix: empty, or the archive's folder.

    Raises:
        ObjectStoreError: the store cannot be reached, or cannot be written or read.
    """
    folder = f"{prefix}_work/probe-{secrets.token_hex(8)}/"
    keys = [folder + name for name in _NAMES]
    for key in reversed(keys):
        store.put(key, b"")
    return ServerCheck(
        create_only=_refuses(store, keys[0]),
        ordered=_is_listed(store, folder, keys),
        deletes=_deletes(store, keys),
    )


def fit_server(store: ObjectStore, prefix: str) -> tuple[str, ...]:
    """Probe a server before anything is kept there; returns what it does not do, a line each.

    Raises:
        UnorderedListing: nothing can be kept there. ObjectStoreError: as `check_server`.
    """
    found = check_server(store, prefix)
    if not found.ordered:
        raise UnorderedListing(
            "the server does not list keys in the order of their bytes",
            where=store.uri,
            todo="It cannot hold an archive; use another server.",
        )
    return found.warnings


def creates_only_in_parts(store: ObjectStore, prefix: str) -> bool:
    """Whether `ObjectStore.put_blocks` leaves an object alone that is there; tried below ``prefix`` + ``_work/``.

    Raises:
        ObjectStoreUnavailable, AccessDenied: the store cannot be asked.
    """
    key = f"{prefix}_work/probe-{secrets.token_hex(8)}/parts"
    store.put(key, b"")
    try:
        store.put_blocks(key, [b"again"])
    except AlreadyExists:
        return True
    except (AccessDenied, ObjectStoreUnavailable):
        raise
    except ObjectStoreError:
        return False  # it knows no such uploads, or no conditions on them
    finally:
        _deletes(store, [key])
    return False


def _refuses(store: ObjectStore, key: str) -> bool:
    try:
        store.put(key, b"again")
    except AlreadyExists:
        return True
    return False


def _is_listed(store: ObjectStore, folder: str, keys: list[str]) -> bool:
    try:
        return [entry.key for entry in store.list(folder)] == keys
    except UnorderedListing:
        return False


def _deletes(store: ObjectStore, keys: list[str]) -> bool:
    try:
        store.delete(keys)
    except AccessDenied:
        return False
    return True
