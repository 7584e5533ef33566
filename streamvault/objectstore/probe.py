"""Checks whether a server can hold an archive: some S3-compatible servers lack features an archive relies on."""

from __future__ import annotations

import secrets
from contextlib import suppress

from streamvault.objectstore.errors import (
    AccessDenied,
    AlreadyExists,
    ObjectStoreError,
    ObjectStoreUnavailable,
    UnorderedListing,
)
from streamvault.objectstore.store import ObjectStore

_NAMES = ("0", "0-0", "0.0", "00", "A", "_", "a")
"""Test names in byte order; most other orders sort at least one differently."""


def fit_server(store: ObjectStore, prefix: str = "") -> tuple[str, ...]:
    """Probe a server before storing anything on it; return a warning for each missing feature.

    Writes, lists and deletes a few empty objects below ``prefix`` + ``_work/``. Where objects cannot be deleted, these
    remain, as unfinished work does.

    Raises:
        UnorderedListing: the server cannot hold an archive.
        ObjectStoreError: the store cannot be reached, written or read.
    """
    folder = f"{prefix}_work/probe-{secrets.token_hex(8)}/"
    keys = [folder + name for name in _NAMES]
    for key in reversed(keys):
        store.put(key, b"")
    refuses, ordered = _refuses(store, keys[0]), _is_listed(store, folder, keys)
    _delete(store, keys)
    if not ordered:
        raise UnorderedListing.at(store.uri)
    if refuses:
        return ()
    alone = "do not run two exports of a stream at once, or two handoffs"
    return (f"the server ignores If-None-Match and overwrites objects: {alone}",)


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
        _delete(store, [key])
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


def _delete(store: ObjectStore, keys: list[str]) -> None:
    with suppress(AccessDenied):
        store.delete(keys)
