"""What is done to many objects at once: threads over the blocking interface, bounded in number and in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import chain, islice

from streamvault.common.errors import Conflict, Damaged
from streamvault.objectstore.errors import AlreadyExists, TooLarge, WrongSize
from streamvault.objectstore.store import MOST_RECORDS, ObjectInfo, ObjectStore
from streamvault.objectstore.transfers import Transfers, in_order

MAX_IN_FLIGHT = 32
"""Maximum objects in flight. More threads are not faster: obstore's own work is the limit."""

FIRST_IN_FLIGHT = 8
"""Objects that are fetched before the first is used. A reader that stops early has fetched about what it used."""

WINDOW_BYTES = 32 * 1024 * 1024
"""Maximum bytes in flight; a larger object is transferred alone. obstore may hold each byte two or three times."""

HELD_TWICE = 2
"""Data in flight is buffered both here and in the client library, so each gets half of a task's window."""

PART_BYTES = 4 * 1024 * 1024
"""Large objects are read in parts of this size (bytes)."""

AHEAD_BYTES = 8 * 1024 * 1024
"""Bytes of a stream that are received ahead of those in use."""

DELETE_AT_ONCE = 1000
"""Keys per bulk request, S3's maximum."""

DELETES = 4
"""Bulk requests in flight; listing the keys for one takes about a quarter of the time it takes."""


def put_same(store: ObjectStore, key: str, data: bytes | memoryview) -> None:
    """Create an object; an existing identical object is accepted.

    Raises:
        Conflict: the key holds different bytes. Nothing was changed.
    """
    try:
        store.put(key, data)
    except AlreadyExists:
        if not holds(store, key, data):
            raise different_object(store, key) from None


def different_object(store: ObjectStore, key: str) -> Conflict:
    """Build the error for a key that holds different bytes."""
    return Conflict(
        "a different object already exists",
        where=f"{store.uri}/{key}",
        todo="It was not written by this stream's export; archive to another root or remove it.",
    )


def holds(store: ObjectStore, key: str, data: bytes | memoryview) -> bool:
    """Return whether an object holds exactly these bytes; large ones are compared part by part.

    Raises:
        NoSuchObject: the object does not exist.
    """
    if len(data) <= PART_BYTES:
        try:
            return store.get(key, len(data)) == data
        except TooLarge:
            return False
    view = memoryview(data)
    return store.size(key) == len(view) and all(
        store.get_range(key, low, high) == view[low:high] for low, high in parts_of(len(view))
    )


def parts_of(size: int) -> Iterator[tuple[int, int]]:
    """Split an object's bytes into (start, end) parts to read."""
    return ((low, min(low + PART_BYTES, size)) for low in range(0, size, PART_BYTES))


def put_all(
    store: ObjectStore,
    items: Iterable[tuple[str, bytes | memoryview]],
    *,
    window_bytes: int = WINDOW_BYTES,
    done: Callable[[int], None] | None = None,
) -> None:
    """Put every item with `put_same`.

    Args:
        store: the target.
        items: (key, data), consumed as threads become free; data must stay valid until it is stored.
        window_bytes: maximum bytes in flight, except for a single larger object.
        done: called in a thread with the size of each object that is stored; None for nothing.

    Raises:
        Problem: the first one raised, once the transfers in flight have ended; no further item is taken.
    """
    transfers = Transfers(iter(items), lambda item: len(item[1]), MAX_IN_FLIGHT, window_bytes)

    def work() -> None:
        while handed := transfers.take():
            (key, data), size = handed
            put_same(store, key, data)
            if done:
                done(size)
            del handed, data  # otherwise every waiting thread would keep its last object
            transfers.give_back(size)

    transfers.start(work)
    try:
        transfers.join()
    finally:
        transfers.stop()  # an interrupt does not wait for transfers in flight
    transfers.raise_error()


def delete_all(store: ObjectStore, keys: Iterable[str]) -> int:
    """Delete full keys in bulk requests, consuming them lazily; return their number.

    Raises:
        Problem: the first one raised, once the requests in flight have ended; no further key is taken.
    """
    batches = _batches(keys)
    first = next(batches, [])
    if len(first) < DELETE_AT_ONCE:  # it is the only batch
        if first:
            store.delete(first)
        return len(first)

    def delete(batch: list[str]) -> int:
        store.delete(batch)
        return len(batch)

    return sum(in_order(chain([first], batches), delete, lambda _: 1, DELETES, DELETES))


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    left = iter(keys)
    while batch := list(islice(left, DELETE_AT_ONCE)):
        yield batch


def get_all(
    store: ObjectStore, items: Iterable[tuple[str, int]], *, window_bytes: int = WINDOW_BYTES
) -> Iterator[tuple[str, bytes]]:
    """Get every item, in the given order.

    At most `FIRST_IN_FLIGHT` objects and one for each that was used are fetched ahead. Closing the iterator early ends
    its threads.

    Args:
        store: the source.
        items: (key, size in bytes) as listed, consumed as threads become free.
        window_bytes: maximum bytes in flight and waiting, except for a single larger object.

    Raises:
        WrongSize: an object is smaller than listed.
        TooLarge: an object is larger than listed.
        Problem: the first one raised; items before it in order may be missing.
    """

    def get(item: tuple[str, int]) -> tuple[str, bytes]:
        key, size = item
        data = store.get(key, size)
        if len(data) != size:
            raise WrongSize(f"the object has {len(data)} bytes instead of {size}", where=f"{store.uri}/{key}")
        return key, data

    return in_order(items, get, lambda item: item[1], MAX_IN_FLIGHT, window_bytes, FIRST_IN_FLIGHT)


def get_parts(
    store: ObjectStore, key: str, parts: Iterable[tuple[int, int]], *, window_bytes: int
) -> Iterator[memoryview]:
    """Get parts of one object, in the given order, like `get_all`.

    Args:
        store: the source.
        key: the object's key.
        parts: (start, end) byte ranges, consumed as threads become free.
        window_bytes: maximum bytes in flight and waiting, as for `get_all`.

    Raises:
        WrongSize: a part reaches beyond the object's end.
        Problem: the first one raised; parts before it in order may be missing.
    """
    return in_order(
        parts, lambda part: store.get_range(key, *part), lambda part: part[1] - part[0], MAX_IN_FLIGHT, window_bytes
    )


def read_ahead(
    store: ObjectStore, key: str, start: int, end: int, *, window_bytes: int = WINDOW_BYTES
) -> Iterator[memoryview]:
    """Read the bytes ``[start, end)`` of one object by one request, while the caller uses the blocks before.

    Closing the iterator early ends its thread and the request.

    Args:
        store: the source.
        key: the object's key.
        start: the first byte.
        end: the byte after the last.
        window_bytes: maximum bytes received and not used yet; more than `AHEAD_BYTES` are never held.

    Raises:
        Problem: as `ObjectStore.stream`.
    """
    with closing(store.stream(key, start, end)) as blocks:
        yield from in_order(blocks, lambda block: block, len, 1, min(window_bytes, AHEAD_BYTES))


def list_records(store: ObjectStore, folder: str, after: str = "") -> Iterator[ObjectInfo]:
    """List a folder of records, of which all keys are kept in memory, see `ObjectStore.list`.

    Raises:
        Damaged: it has more than `MOST_RECORDS` objects.
    """
    for number, entry in enumerate(store.list(folder, after)):
        if number >= MOST_RECORDS:
            raise Damaged(f"a folder of records has more than {MOST_RECORDS} objects", where=f"{store.uri}/{folder}")
        yield entry
