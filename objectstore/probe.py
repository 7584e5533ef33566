"""Checks whether a server can hold an archive: some S3-compatible servers lack features an archive relies on."""

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
"""Test names in byte order; most other orders sort at least one differently."""


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """Results of a probe.

    Attributes:
        create_only: a second put of a key is rejected. Without it, concurrent runs could overwrite each other.
        ordered: keys are listed in byte order. Required for an archive.
        deletes: objects can be deleted. Otherwise unfinished work, and this probe's objects, remain.
    """

    create_only: bool
    ordered: bool
    deletes: bool

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line per missing feature; empty if there are none."""
        alone = "do not run two exports of a stream at once, or two handoffs"
        problems = {
            f"the server ignores If-None-Match and overwrites objects: {alone}": self.create_only,
            "the server does not list keys in byte order: it cannot hold an archive": self.ordered,
        }
        return tuple(text for text, fine in problems.items() if not fine)


def check_server(store: ObjectStore, prefix: str = "") -> ServerCheck:
    """Probe a server by writing, listing and deleting a few empty objects below ``prefix`` + ``_work/``.

    Args:
        store: the root's store.
        prefix: the archive's folder, or empty.

    Raises:
        ObjectStoreError: the store cannot be reached, written or read.
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
    """Probe a server before storing anything on it; return a warning for each missing feature.

    Raises:
        UnorderedListing: the server cannot hold an archive.
        ObjectStoreError: as `check_server`.
    """
    found = check_server(store, prefix)
    if not found.ordered:
        raise UnorderedListing(
            "the server does not list keys in byte order",
            where=store.uri,
            todo="It cannot hold an archive; use another server.",
        )
    return found.warnings


def creates_only_in_parts(store: ObjectStore, prefix: str) -> bool:
    """Return whether `ObjectStore.put_blocks` is create-only, by a test below ``prefix`` + ``_work/``.

    Raises:
        ObjectStoreUnavailable: the store cannot be reached.
        AccessDenied: access is denied.
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
        return False  # no multipart uploads, or none with conditions
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
