"""The server's memory: blocks that all readers share, what is being fetched, what clients ask, and what they are sent.

All of it is one budget, from which bytes are taken before they are there.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from streamvault.serving.blocks import BLOCK_BYTES

FETCH_BYTES = 6 * BLOCK_BYTES
"""What the fetch of a block takes: the block, the parts that it is made of, and what the allocator keeps of both."""

ENTRY_BYTES = 1024
"""What the cache needs for whatever it keeps, besides that: keys and links; 708 bytes were measured."""

MOST_FETCHES = 32

LEAST_ANSWER, LARGEST_ANSWER = 16 * 1024, 1024 * 1024
"""Bytes that a connection may always be sending, and at most; Java's client asks for no more than the latter."""

LEAST_CACHE = 64 * 1024 * 1024


class Kept(Protocol):
    """What is kept: a block, or what is known of a range or of many."""

    @property
    def nbytes(self) -> int:
        """What it takes in memory (bytes)."""
        ...


Fetch = Callable[[], Any]
T = TypeVar("T")


async def shared(coming: Future[T]) -> T:
    """Wait for what many may wait for, so none of them may cancel it."""
    return await asyncio.shield(asyncio.wrap_future(coming))


class BlockCache:
    """Blocks and other things (`Kept`) by key; the least recently used are evicted, costly ones last. Thread-safe.

    Args:
        limit: the budget (bytes), at least `LEAST_CACHE`. An eighth is kept for the states of reader groups; of the
            rest, what clients ask, and what they are sent, take an eighth each at most, besides a few KiB for each
            connection. So there is always room for a range that is read whole, if there are at most 500 clients.

    Attributes:
        limit: the budget without that of the states (bytes).
        fetches: how many blocks are fetched at once.
        most_of_range: most bytes of blocks that are kept of a range when it is read whole.
        state_bytes: most bytes of the states of reader groups.
        hits: how often a block was found in memory.
        fetched: how many blocks were fetched.
        fetch_seconds: how long that took, with what failed.
    """

    def __init__(self, limit: int) -> None:
        self.state_bytes = self._most_sending = self._most_asked = limit // 8
        self.limit = limit - self.state_bytes
        self.most_of_range = limit // 4
        self.fetches = fetches = min(limit // 4 // FETCH_BYTES, MOST_FETCHES)
        self._held: OrderedDict[Hashable, Any] = OrderedDict()
        self._costly: OrderedDict[Hashable, Any] = OrderedDict()
        self._coming: dict[Hashable, Future[Any]] = {}
        self._bytes = self._costly_bytes = self._sending = self._asked = self.hits = self.fetched = 0
        self.fetch_seconds = 0.0
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._freed = threading.Condition(self._lock)
        self._pool = ThreadPoolExecutor(fetches, thread_name_prefix="fetch")

    @property
    def used(self) -> int:
        """How much of its limit is taken (bytes)."""
        return self._bytes

    def held(self, key: Hashable) -> Any:
        """Return a block if it is in memory, or None."""
        with self._lock:
            kept = self._costly if key in self._costly else self._held
            if (found := kept.get(key)) is not None:
                kept.move_to_end(key)
                self.hits += 1
            return found

    def begin(self, key: Hashable, fetch: Fetch) -> Future[Any]:
        """Begin to fetch a block, unless it is there or on its way; all who wait for it get what `fetch` raises."""
        with self._lock:
            if (found := self._held.get(key)) is not None:
                self._held.move_to_end(key)
                done: Future[Any] = Future()
                done.set_result(found)
                return done
            if (coming := self._coming.get(key)) is None:
                coming = self._coming[key] = self._pool.submit(self._fetch, key, fetch)
            return coming

    def begin_ahead(self, key: Hashable, fetch: Fetch) -> None:
        """Begin to fetch a block that nobody waits for, unless it is in memory or `fetches` others are on their way."""
        if not self.has(key) and len(self._coming) < self.fetches:
            self.begin(key, fetch)

    def has(self, key: Hashable) -> bool:
        """Return whether a block is in memory."""
        return key in self._held

    def take(self, size: int) -> bool:
        """Take memory for a block that is not yet compared; give up others for it. False if there is too little."""
        with self._lock:
            return self._take(size)

    @contextmanager
    def room(self, size: int) -> Iterator[None]:
        """Take memory for what is about to be fetched, until the block ends; wait for it in the order of coming."""
        with self._turn, self._lock:
            self._freed.wait_for(lambda: self._take(size))
        try:
            yield
        finally:
            self.give_back(size)

    def give_back(self, size: int) -> None:
        """Give memory back that was taken."""
        with self._lock:
            self._bytes -= size
            self._freed.notify()

    def put(self, key: Hashable, block: Kept, *, costly: bool = False) -> None:
        """Keep a block whose memory was taken; with ``costly``, something small for which a whole range was read.

        Costly ones take an eighth of the budget at most, and are evicted for others only if no block is left.
        """
        with self._lock:
            self._drop(key)
            (self._costly if costly else self._held)[key] = block
            self._bytes += ENTRY_BYTES
            self._costly_bytes += block.nbytes + ENTRY_BYTES if costly else 0
            while costly and self._costly_bytes > self.limit // 8:
                self._evict(self._costly, next(iter(self._costly)))
            self._take(0)

    def drop(self, key: Hashable) -> None:
        """Keep a block no longer."""
        with self._lock:
            self._drop(key)

    def answer_bytes(self, asked: int) -> int:
        """Take memory for what is sent next; return how many bytes: fewer and fewer as clients take none."""
        with self._lock:
            free = max(self._most_sending - self._sending, 0)
            size = min(max(asked, 1), LARGEST_ANSWER, max(free // 8, LEAST_ANSWER))
            self._sending += size
            self._bytes += size
            self._take(0)
            return size

    def answered(self, size: int) -> None:
        """Give it back."""
        with self._lock:
            self._sending -= size
        self.give_back(size)

    def take_request(self, size: int, *, always: bool = False) -> bool:
        """Take memory for what a client asks, ``always`` or if there is any; return whether it did."""
        with self._lock:
            fits = self._asked + size <= self._most_asked
            if fits or always:
                self._asked += size
                self._bytes += size
                self._take(0)
            return fits or always

    def give_back_request(self, size: int) -> None:
        """Give it back."""
        with self._lock:
            self._asked -= size
        self.give_back(size)

    def close(self) -> None:
        """Fetch nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _drop(self, key: Hashable) -> None:
        for kept in (self._held, self._costly):
            if key in kept:
                self._evict(kept, key)

    def _evict(self, kept: OrderedDict[Hashable, Any], key: Hashable) -> None:
        size = kept.pop(key).nbytes + ENTRY_BYTES
        self._bytes -= size
        self._costly_bytes -= size if kept is self._costly else 0

    def _take(self, size: int) -> bool:
        while self._bytes + size > self.limit and (kept := self._held or self._costly):
            self._evict(kept, next(iter(kept)))
        fits = self._bytes + size <= self.limit
        self._bytes += size if fits else 0
        return fits

    def _fetch(self, key: Hashable, fetch: Fetch) -> Any:
        began, fetched = time.monotonic(), 0
        try:
            block = fetch()
            fetched = isinstance(block, memoryview)  # a page of an index is no block
            if not self.has(key) and self.take(block.nbytes):
                self.put(key, block)
            return block
        finally:
            with self._lock:
                self._coming.pop(key, None)
                self.fetched += fetched
                self.fetch_seconds += time.monotonic() - began
