"""Checks whether a server can hold an archive: some S3-compatible servers lack features an archive relies on."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from streamvault.objectstore.store import (
    AccessDenied,
    AlreadyExists,
    ObjectStore,
    ObjectStoreError,
    ObjectStoreUnavailable,
    UnorderedListing,
)

_NAMES = ("0", "0-0", "0.0", "00", "A", "_", "a")
"""Test names in byte order; most other orders sort at least one differently."""


@dataclass(frozen=True, slots=True)
class ProbedServer:
    """What a server does.

    Attributes:
        creates_only: whether a second object of a key is refused.
        is_ordered: whether keys are listed in byte order.
        written: when the last object was written, by the server's clock; None if it has none but this machine's, or it
            was not asked.
        deletes: whether objects may be deleted; if not, the probe's remain.
    """

    creates_only: bool
    is_ordered: bool
    written: datetime | None
    deletes: bool


def probe_folder(prefix: str = "") -> str:
    """Return a new name of a folder for test objects, which no archive uses, below ``prefix`` + ``_work/``."""
    return f"{prefix}_work/probe-{secrets.token_hex(8)}/"


def probe_server(
    store: ObjectStore, folder: str, *, clock: bool = False, go_on: Callable[[], object] = lambda: None
) -> ProbedServer:
    """Find out what a server does by writing, listing and deleting a few empty objects.

    They are deleted also if this fails or is interrupted, unless the server does not answer or denies deletions.

    Args:
        store: the server.
        folder: see `probe_folder`.
        clock: whether to ask when an object was written.
        go_on: called before each object; may raise to interrupt the probe.

    Raises:
        ObjectStoreError: the store cannot be reached, written or read.
    """
    keys = [folder + name for name in _NAMES]
    try:
        for key in reversed(keys):
            go_on()
            store.put(key, b"")
        written = store.modified(keys[0]) if clock else None
        refuses, ordered = _refuses(store, keys[0]), _is_listed(store, folder, keys)
    except ObjectStoreUnavailable:
        raise  # it would not delete anything either
    except BaseException:
        with suppress(ObjectStoreError):
            _delete(store, keys)
        raise
    return ProbedServer(refuses, ordered, written, _delete(store, keys))


def fit_server(store: ObjectStore, prefix: str = "") -> tuple[str, ...]:
    """Probe a server before storing anything on it; return a warning for each missing feature.

    Writes, lists and deletes a few empty objects below ``prefix`` + ``_work/``. Where objects cannot be deleted, these
    remain, as unfinished work does.

    Raises:
        UnorderedListing: the server cannot hold an archive.
        ObjectStoreError: the store cannot be reached, written or read.
    """
    found = probe_server(store, probe_folder(prefix))
    if not found.is_ordered:
        raise UnorderedListing.at(store.uri)
    if found.creates_only:
        return ()
    alone = "do not run two exports of a stream at once, or two handoffs"
    return (f"the server ignores If-None-Match and overwrites objects: {alone}",)


def creates_only_in_parts(store: ObjectStore, prefix: str) -> bool:
    """Return whether `ObjectStore.put_blocks` is create-only, by a test below ``prefix`` + ``_work/``.

    Raises:
        ObjectStoreUnavailable: the store cannot be reached.
        AccessDenied: access is denied.
    """
    key = f"{probe_folder(prefix)}parts"
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


def _delete(store: ObjectStore, keys: list[str]) -> bool:
    try:
        store.delete(keys)
    except AccessDenied:
        return False
    return True
