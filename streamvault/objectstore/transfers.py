"""Threads that do the same for each item of a source, bounded in number and in bytes.

Each thread takes the next item when it has finished the previous one, so nothing is queued; one thread at a time reads
from the source of items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import Condition, Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(
    items: Iterable[T],
    get: Callable[[T], R],
    size_of: Callable[[T], int],
    window: int,
    window_bytes: int,
    first: int | None = None,
) -> Iterator[R]:
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


class Transfers(Generic[T]):
    """Hands out the items of one source, while they fit the window, to up to ``most`` threads that run the same work.

    Never more threads than can be busy with objects of the sizes seen so far: each keeps its own buffers, and 32
    threads taking turns at 8 MiB objects would hold far more than the window.

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
        self._bytes = 0
        self._held = 0
        self._handed_out = 0
        self._ended = False
        self._error: BaseException | None = None
        self.count = -1

    def start(self, work: Callable[[], None]) -> None:
        """Start the first threads."""
        self._work = work
        self._be_enough_for(self._window_bytes)

    def _be_enough_for(self, size: int) -> None:
        """Start as many threads as can be busy with objects of this size, plus one that waits for room."""
        if len(self._threads) >= self._most:
            return
        enough = min(self._most, self._window_bytes // max(size, 1) + 1)
        with self._lock:
            while len(self._threads) < enough:
                thread = Thread(target=self._run, name=f"objects-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  (raised again in the consumer)
            self.stop(error)

    def join(self) -> None:
        """Wait for all threads to end."""
        for thread in self._threads:
            thread.join()

    def take(self) -> tuple[T, int] | None:
        """Return the next item and its size once it fits; None at the end or if the transfers were stopped."""
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
