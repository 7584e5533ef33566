"""Objects larger than a task's window: created from blocks, never held in memory whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from streamvault.common.errors import Failed
from streamvault.objectstore.bulk import WINDOW_BYTES, different_object, get_parts, parts_of, put_same
from streamvault.objectstore.errors import AlreadyExists, NoSuchObject
from streamvault.objectstore.probe import creates_only_in_parts
from streamvault.objectstore.store import ObjectStore

MIB = 1024 * 1024

Buffer = bytes | bytearray | memoryview


def put_same_large(
    store: ObjectStore, prefix: str, key: str, size: int, blocks: Iterable[Buffer], *, window_bytes: int
) -> None:
    """Create an object from blocks like `objectstore.bulk.put_same`, buffering it whole only if it fits the window.

    Args:
        store: the target.
        prefix: the archive's folder in it.
        key: the object's full key.
        size: the object's size (bytes).
        blocks: its bytes, always consumed; each block is valid until the next is requested.
        window_bytes: maximum bytes buffered at once.

    Raises:
        Conflict: the key holds different bytes.
        Failed: the object exceeds the window, and the store's multipart uploads are not create-only.
    """
    if size <= window_bytes:
        put_same(store, key, memoryview(_whole(blocks, size)))
        return
    proof = hashlib.sha256()
    if create_large(store, prefix, key, size, _hashed(blocks, proof)):
        return
    found = hashlib.sha256()
    if store.size(key) == size:
        for part in get_parts(store, key, parts_of(size), window_bytes=min(window_bytes, WINDOW_BYTES)):
            found.update(part)
    if found.digest() != proof.digest():
        raise different_object(store, key)


def create_large(store: ObjectStore, prefix: str, key: str, size: int, blocks: Iterable[Buffer]) -> bool:
    """Create an object larger than the window; return False if the key is taken.

    Arguments and errors as for `put_same_large`; ``size`` is used only in messages.
    """
    if not _creates_only(store, prefix):
        raise Failed(
            "a large event exceeds the window, and the server does not support If-None-Match for multipart uploads",
            where=f"{store.uri}/{key}",
            todo=f"Use --window {-(-size // MIB)}MiB.",
        )
    try:
        store.size(key)
    except NoSuchObject:
        pass
    else:  # stored by an earlier run: send nothing
        for _ in blocks:
            pass
        return False
    try:
        store.put_blocks(key, blocks)
    except AlreadyExists:
        return False
    return True


def _whole(blocks: Iterable[Buffer], size: int) -> bytearray:
    held, at = bytearray(size), 0
    for block in blocks:
        held[at : at + len(block)] = block
        at += len(block)
    return held


def _hashed(blocks: Iterable[Buffer], proof: Any) -> Iterator[Buffer]:
    for block in blocks:
        proof.update(block)
        yield block


@lru_cache(maxsize=64)
def _creates_only(store: ObjectStore, prefix: str) -> bool:
    return creates_only_in_parts(store, prefix)
