"""Many objects at once: threads over the blocking interface, bounded in number and in bytes.

Each thread takes the next item when it has finished the last one, so nothing waits in a queue; the source of the items
is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from threading import Condition, Lock, Thread
from typing import Generic, TypeVar

from common.errors import Conflict
from objectstore.errors import AlreadyExists, TooLarge, WrongSize
from objectstore.store import ObjectStore

__all__ = [
    "HELD_TWICE",
    "WINDOW",
    "WINDOW_BYTES",
    "delete_all",
    "get_all",
    "get_parts",
    "holds",
    "in_order",
    "put_all",
    "put_same",
    "taken",
]

WINDOW = 32
"""Objects in flight. More threads are not faster: obstore's own work is the limit."""

WINDOW_BYTES = 32 * 1024 * 1024
"""Bytes in flight; a single larger object still goes, alone. obstore may hold each of them two or three times."""

HELD_TWICE = 2
"""What is on its way is held here and by the client library: of a task's window, half is for each."""

PART_BYTES = 4 * 1024 * 1024
"""A large object is compared with what should be there in parts of this size."""

DELETE_AT_ONCE = 1000
"""Keys of one bulk request; S3 takes no more."""

DELETES = 4
"""Bulk requests in flight; listing the keys for one takes about a quarter of its time."""

T = TypeVar("T")
R = TypeVar("R")


def put_same(store: ObjectStore, key: str, data: bytes | memoryview) -> None:
    """Create an object; one that is there already, byte for byte, is fine.

    Raises:
        Conflict: an object with other bytes has the key. Nothing was changed.
    """
    try:
        store.put(key, data)
    except AlreadyExists:
        if not holds(store, key, data):
            raise taken(store, key) from None


def taken(store: ObjectStore, key: str) -> Conflict:
    """That an object with other bytes has the key."""
    return Conflict(
        "another object is already there",
        where=f"{store.uri}/{key}",
        todo="It was not written by this stream's export; archive to another root or remove it.",
    )


def holds(store: ObjectStore, key: str, data: bytes | memoryview) -> bool:
    """Whether an object is these bytes; a large one is compared a part at a time.

    Raises:
        NoSuchObject: there is no such object.
    """
    if len(data) <= PART_BYTES:
        try:
            return store.get(key, len(data)) == data
        except TooLarge:
            return False
    view = memoryview(data)
    parts = ((low, min(low + PART_BYTES, len(view))) for low in range(0, len(view), PART_BYTES))
    return store.size(key) == len(view) and all(
        store.get_range(key, low, high) == view[low:high] for low, high in parts
    )


def put_all(
    store: ObjectStore,
    items: Iterable[tuple[str, bytes | memoryview]],
    *,
    window: int = WINDOW,
    window_bytes: int = WINDOW_BYTES,
) -> int:
    """Put every item as `put_same` does; returns how many there were.

    Args:
        store: where to.
        items: (key, data). Each thread in turn takes the next; data must stay valid until they are put.
        window: objects in flight at most.
        window_bytes: bytes in flight at most, a single larger object excepted.

    Raises:
        Problem: the first one met, after what was in flight has ended; no further item is taken.
    """
    flow = _Flow(iter(items), lambda item: len(item[1]), window_bytes)

    def work() -> None:
        while taken := flow.take():
            (key, data), size = taken
            threads.be_enough_for(size)
            put_same(store, key, data)
            del taken, data  # or every thread that waits would keep its last object
            flow.give_back(size)

    threads = _Threads(flow, work, window, window_bytes)
    threads.start()
    try:
        threads.join()
    finally:
        flow.stop()  # an interrupt does not wait for what is in flight
    flow.raise_error()
    return flow.taken


def delete_all(store: ObjectStore, keys: Iterable[str], *, window: int = DELETES) -> int:
    """Delete keys while they are listed, by bulk requests; returns how many there were.

    Args:
        store: where from.
        keys: full keys; taken as requests have room for them, so memory does not grow with their number.
        window: requests in flight at most.

    Raises:
        Problem: the first one met, after what was in flight has ended; no further key is taken.
    """
    batches = _batches(keys)
    first = next(batches, [])
    if len(first) < DELETE_AT_ONCE:  # nothing comes after it
        if first:
            store.delete(first)
        return len(first)

    def delete(batch: list[str]) -> int:
        store.delete(batch)
        return len(batch)

    return sum(in_order(chain([first], batches), delete, lambda _: 1, window, window))


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    left = iter(keys)
    while batch := list(islice(left, DELETE_AT_ONCE)):
        yield batch


def get_all(
    store: ObjectStore,
    items: Iterable[tuple[str, int]],
    *,
    window: int = WINDOW,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[tuple[str, bytes]]:
    """Get every item, in the order given.

    Closing the iterator early ends its threads.

    Args:
        store: where from.
        items: (key, size in bytes), as listed. Each thread in turn takes the next.
        window: objects in flight at most. As many again, three times, may wait for their turn.
        window_bytes: bytes in flight and waiting at most, a single larger object excepted.

    Raises:
        WrongSize, TooLarge: an object has another size now.
        Problem: the first one met; what comes before it in order may be missing.
    """

    def get(item: tuple[str, int]) -> tuple[str, bytes]:
        key, size = item
        data = store.get(key, size)
        if len(data) != size:
            raise WrongSize(f"the object has {len(data)} bytes instead of {size}", where=f"{store.uri}/{key}")
        return key, data

    return in_order(items, get, lambda item: item[1], window, window_bytes)


def get_parts(
    store: ObjectStore,
    key: str,
    parts: Iterable[tuple[int, int]],
    *,
    window: int = WINDOW,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[memoryview]:
    """Get parts of one object, in the order given; else as `get_all`.

    Args:
        store: where from.
        key: the object.
        parts: (first byte, the one after the last). Each thread in turn takes the next.
        window: requests in flight at most, as for `get_all`.
        window_bytes: bytes in flight and waiting at most, as for `get_all`.

    Raises:
        WrongSize: the object does not reach so far.
        Problem: the first one met; what comes before it in order may be missing.
    """

    def get(part: tuple[int, int]) -> memoryview:
        return store.get_range(key, *part)

    return in_order(parts, get, lambda part: part[1] - part[0], window, window_bytes)


def in_order(
    items: Iterable[T], get: Callable[[T], R], size_of: Callable[[T], int], window: int, window_bytes: int
) -> Iterator[R]:
    """What `get` makes of every item, in the order of the items, got by many threads.

    Args:
        items: one thread at a time takes the next.
        get: what is done with each, by its thread.
        size_of: what an item counts (bytes), from when it is taken until what came of it is used up.
        window: as for `get_all`.
        window_bytes: as for `get_all`.

    Raises:
        BaseException: the first one that `get` or the items raised.
    """
    flow = _Flow(enumerate(items), lambda item: size_of(item[1]), window_bytes, limit=4 * window)
    arrived: dict[int, tuple[R, int]] = {}
    awaited = -1

    def work() -> None:
        while taken := flow.take():
            (index, item), size = taken
            threads.be_enough_for(size)
            arrived[index] = get(item), size
            if index == awaited:
                flow.tell()

    def here() -> bool:
        return awaited in arrived or awaited == flow.count

    threads = _Threads(flow, work, window, window_bytes)
    threads.start()
    try:
        while True:
            awaited += 1
            # A thread puts its object down first and looks at `awaited` then.
            if not (here() or flow.wait_until(here)) or awaited == flow.count:
                break
            got, size = arrived.pop(awaited)
            yield got
            del got
            flow.give_back(size)
    finally:
        flow.stop()
        threads.join()
    flow.raise_error()


class _Flow(Generic[T]):
    """Hands out the items of one source to many threads, as long as they fit the window.

    Attributes:
        taken: how many items were handed out.
        count: how many there are, once the source has said so; else -1.
    """

    def __init__(
        self, items: Iterator[T], size_of: Callable[[T], int], window_bytes: int, limit: int = 1 << 30
    ) -> None:
        self._items = items
        self._size_of = size_of
        self._window_bytes = window_bytes
        self._limit = limit
        self._turn = Lock()
        self._lock = Lock()
        self._room = Condition(self._lock)
        self._progress = Condition(self._lock)
        self._waits_for_room = False
        self._bytes = 0
        self._held = 0
        self._ended = False
        self._error: BaseException | None = None
        self.taken = 0
        self.count = -1

    def take(self) -> tuple[T, int] | None:
        """The next item and its size, when there is room for it; None if there is none, or the flow was stopped."""
        with self._turn:
            if self._ended:
                return None
            try:
                item = next(self._items)
            except StopIteration:
                self.count = self.taken
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
                self._bytes += size
                self._held += 1
                self.taken += 1
            return item, size

    def _has_room(self, size: int) -> bool:
        return self._bytes + size <= self._window_bytes and self._held < self._limit

    def give_back(self, size: int) -> None:
        """An item is done with."""
        with self._lock:
            self._bytes -= size
            self._held -= 1
            if self._waits_for_room:
                self._room.notify()

    def stop(self, error: BaseException | None = None) -> None:
        """Hand out nothing more."""
        with self._lock:
            self._ended = True
            if self._error is None:
                self._error = error
            self._room.notify_all()
            self._progress.notify_all()

    def tell(self) -> None:
        """Wake who waits in `wait_until`."""
        with self._lock:
            self._progress.notify_all()

    def wait_until(self, ready: Callable[[], bool]) -> bool:
        """Wait; False if an error stopped the flow first."""
        with self._lock:
            while not ready():
                if self._error is not None:
                    return False
                self._progress.wait()
        return True

    def raise_error(self) -> None:
        """Raise what stopped the flow, if something did."""
        if self._error is not None:
            raise self._error


class _Threads:
    """Up to ``most`` threads doing the same work until the flow ends.

    Not more than can be busy with objects of the sizes met so far: each keeps memory of its own for what it moves, and
    32 of them taking turns at 8 MiB objects would keep far more than the window.
    """

    def __init__(self, flow: _Flow[T], work: Callable[[], None], most: int, window_bytes: int) -> None:
        self._flow = flow
        self._work = work
        self._most = most
        self._window_bytes = window_bytes
        self._lock = Lock()
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Start the first ones."""
        self.be_enough_for(self._window_bytes)

    def be_enough_for(self, size: int) -> None:
        """Start as many as can be busy with objects of this size, and one that waits for room."""
        if len(self._threads) >= self._most:
            return
        wanted = min(self._most, self._window_bytes // max(size, 1) + 1)
        with self._lock:
            while len(self._threads) < wanted:
                thread = Thread(target=self._run, name=f"objects-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  (whatever it is, it is raised where the items were wanted)
            self._flow.stop(error)

    def join(self) -> None:
        """Wait until all have ended."""
        for thread in self._threads:
            thread.join()
