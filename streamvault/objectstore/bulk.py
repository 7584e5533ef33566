"""What is done to many objects at once or to large ones, by threads that are bounded in number and in bytes.

Each thread takes the next item when it has finished the previous one, so nothing is queued; one thread at a time reads
from the source of items.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import lru_cache
from itertools import chain, islice
from threading import Condition, Lock, Thread
from typing import Any, Generic, TypeVar

from streamvault.common.errors import Conflict, Damaged, Failed
from streamvault.objectstore.probe import creates_only_in_parts
from streamvault.objectstore.store import (
    MOST_RECORDS,
    AlreadyExists,
    NoSuchObject,
    ObjectInfo,
    ObjectStore,
    TooLarge,
    WrongSize,
)

T = TypeVar("T")
R = TypeVar("R")


def in_order(
    items: Iterable[T],
    get: Callable[[T], R],
    size_of: Callable[[T], int],
    window: int,
    window_bytes: int,
    first: int | None = None,
) -> Generator[R, None, None]:
    """Call ``get`` for every item in concurrent threads; yield the results in the items' order.

    Args:
        items: read by one thread at a time.
        get: called in a thread for each item.
        size_of: an item's size (bytes), counted from when it is taken until its result is consumed.
        window: maximum items in flight; three times as many may be waiting to be yielded.
        window_bytes: maximum bytes in flight and waiting, except for a single larger item.
        first: maximum items in flight and waiting before the first result is consumed; each consumed one adds one. None
            for as many as ``window`` permits.

    Raises:
        BaseException: the first exception raised by ``get`` or ``items``.
    """
    limit = 4 * window
    transfers = Transfers(
        enumerate(items), lambda item: size_of(item[1]), window, window_bytes, limit=limit, first=first or limit
    )
    arrived: dict[int, tuple[R, int]] = {}
    awaited = -1

    def work() -> None:
        while handed := transfers.take():
            (index, item), size = handed
            arrived[index] = get(item), size
            if index == awaited:
                transfers.wake()

    def here() -> bool:
        return awaited in arrived or awaited == transfers.count

    transfers.start(work)
    try:
        while True:
            awaited += 1
            # A thread stores its result before it checks `awaited`.
            if not (here() or transfers.wait_until(here)) or awaited == transfers.count:
                break
            got, size = arrived.pop(awaited)
            yield got
            del got
            transfers.give_back(size)
    finally:
        transfers.stop()
        transfers.join()
    transfers.raise_error()


def in_blocks(parts: Iterable[bytes | bytearray | memoryview], size: int) -> Iterator[bytearray]:
    """Yield the same bytes in blocks of this size, and the rest."""
    held = bytearray()
    for part in parts:
        left = memoryview(part)
        while left:
            taken = left[: size - len(held)]
            held += taken
            left = left[len(taken) :]
            if len(held) == size:
                yield held
                held = bytearray()
    if held:
        yield held


def as_block(parts: Iterable[bytes | bytearray | memoryview]) -> memoryview:
    """Return the bytes of all parts as one block; a single part is not copied."""
    found = list(parts)
    return memoryview(found[0] if len(found) == 1 else b"".join(found))


class Transfers(Generic[T]):
    """Hands out the items of one source, while they fit the window, to up to ``most`` threads that run the same work.

    A thread starts with an item that finds no other waiting for its turn, and never more than can be busy with objects
    of the sizes seen so far: each keeps its own buffers, and 32 threads taking turns at 8 MiB objects would hold far
    more than the window.

    At most ``limit`` items are handed out and not given back, and at first no more than ``first``: each that is given
    back adds one.

    Attributes:
        count: total number of items once the source is exhausted; -1 before.
    """

    def __init__(
        self,
        items: Iterator[T],
        size_of: Callable[[T], int],
        most: int,
        window_bytes: int,
        *,
        limit: int = 1 << 30,
        first: int = 1 << 30,
    ) -> None:
        self._items = items
        self._size_of = size_of
        self._most = most
        self._window_bytes = window_bytes
        self._limit = limit
        self._ahead = first
        self._threads: list[Thread] = []
        self._turn = Lock()
        self._lock = Lock()
        self._room = Condition(self._lock)
        self._progress = Condition(self._lock)
        self._waits_for_room = False
        self._waiting = 0
        self._bytes = 0
        self._held = 0
        self._handed_out = 0
        self._ended = False
        self._error: BaseException | None = None
        self.count = -1

    def start(self, work: Callable[[], None]) -> None:
        """Start the first thread."""
        self._work = work
        self._be_enough_for(self._window_bytes)

    def _be_enough_for(self, size: int) -> None:
        """Start another thread unless one waits, or there is one more than can be busy with objects of this size."""
        enough = min(self._most, self._window_bytes // max(size, 1) + 1)
        with self._lock:
            if not self._waiting and len(self._threads) < enough:
                thread = Thread(target=self._run, name=f"objects-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                self._waiting += 1
                thread.start()

    def _run(self) -> None:
        with self._lock:
            self._waiting -= 1
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  (raised again in the consumer)
            self.stop(error)

    def join(self) -> None:
        """Wait for all threads to end."""
        for thread in self._threads:
            thread.join()
        # it and the work refer to each other, and an iterator may hold its last item, a large block, until a collection
        self._items = iter(())

    def take(self) -> tuple[T, int] | None:
        """Return the next item and its size once it fits; None at the end or if the transfers were stopped."""
        with self._lock:
            self._waiting += 1
        with self._turn:
            if self._ended:
                return None
            try:
                item = next(self._items)
            except StopIteration:
                self.count = self._handed_out
                self.stop()
                return None
            size = self._size_of(item)
            with self._lock:
                while self._held and not self._ended and not self._has_room(size):
                    self._waits_for_room = True
                    self._room.wait()
                self._waits_for_room = False
                if self._ended:
                    return None
                self._waiting -= 1
                self._bytes += size
                self._held += 1
                self._handed_out += 1
        self._be_enough_for(size)
        return item, size

    def _has_room(self, size: int) -> bool:
        return self._bytes + size <= self._window_bytes and self._held < min(self._limit, self._ahead)

    def give_back(self, size: int) -> None:
        """Release an item's share of the window."""
        with self._lock:
            self._bytes -= size
            self._held -= 1
            self._ahead += 1
            if self._waits_for_room:
                self._room.notify()

    def stop(self, error: BaseException | None = None) -> None:
        """Hand out no more items."""
        with self._lock:
            self._ended = True
            if self._error is None:
                self._error = error
            self._room.notify_all()
            self._progress.notify_all()

    def wake(self) -> None:
        """Wake the thread in `wait_until`."""
        with self._lock:
            self._progress.notify_all()

    def wait_until(self, ready: Callable[[], bool]) -> bool:
        """Wait until ready; return False if an error ended the transfers first."""
        with self._lock:
            while not ready():
                if self._error is not None:
                    return False
                self._progress.wait()
        return True

    def raise_error(self) -> None:
        """Raise the error that ended the transfers, if any."""
        if self._error is not None:
            raise self._error


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
    left = iter(keys)
    batches = iter(lambda: list(islice(left, DELETE_AT_ONCE)), [])

    def delete(batch: list[str]) -> int:
        store.delete(batch)
        return len(batch)

    first = next(batches, [])
    if len(first) < DELETE_AT_ONCE:  # it is the only batch
        return delete(first) if first else 0
    return sum(in_order(chain([first], batches), delete, lambda _: 1, DELETES, DELETES))


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
