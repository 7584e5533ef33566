"""Objects that are larger than a task's window: created from a sequence of blocks, and never held whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from common.errors import Failed
from objectstore.bulk import WINDOW_BYTES, get_parts, put_same, taken
from objectstore.errors import AlreadyExists, NoSuchObject
from objectstore.probe import creates_only_in_parts
from objectstore.store import ObjectStore

__all__ = ["create_large", "parts_of", "put_same_large"]

PART_BYTES = 4 * 1024 * 1024
"""A large object is read in parts of this size."""

MIB = 1024 * 1024

Buffer = bytes | bytearray | memoryview


def put_same_large(
    store: ObjectStore, prefix: str, key: str, size: int, blocks: Iterable[Buffer], *, window_bytes: int
) -> None:
    """Create an object from blocks, as `objectstore.bulk.put_same` does; it is held only if the window has room for it.

    Args:
        store: where to.
        prefix: the archive below it.
        key: the object, in full.
        size: of the object (bytes).
        blocks: its bytes, used up whatever happens to the object; each is valid until the next one is asked for.
        window_bytes: what may be held at once.

    Raises:
        Conflict: an object with other bytes has the key.
        Failed: the object is larger than the window, and the store takes none in parts without replacing what is there.
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
        raise taken(store, key)


def create_large(store: ObjectStore, prefix: str, key: str, size: int, blocks: Iterable[Buffer]) -> bool:
    """Create an object that is larger than the window; False if the key is taken.

    Arguments and errors as for `put_same_large`; ``size`` is only told to the user.
    """
    if not _creates_only(store, prefix):
        raise Failed(
            "a large event does not fit the window, and the server has no multipart uploads with If-None-Match",
            where=f"{store.uri}/{key}",
            todo=f"Use --window {-(-size // MIB)}MiB.",
        )
    try:
        store.size(key)
    except NoSuchObject:
        pass
    else:  # an earlier run has put it, so nothing is sent
        for _ in blocks:
            pass
        return False
    try:
        store.put_blocks(key, blocks)
    except AlreadyExists:
        return False
    return True


def parts_of(size: int) -> Iterator[tuple[int, int]]:
    """An object's bytes as parts to read."""
    return ((low, min(low + PART_BYTES, size)) for low in range(0, size, PART_BYTES))


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
