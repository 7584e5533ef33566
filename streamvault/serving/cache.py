"""The server's memory: blocks that all readers share, what is being fetched, and answers that clients have yet to take.

All of it is one budget, parted once, so that no reader can take what others need.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor

from streamvault.serving.blocks import BLOCK_BYTES

FETCH_BYTES = 4 * BLOCK_BYTES
"""What a fetch takes: what is read ahead, a block, and the parts that it is made of."""

LEAST_ANSWER, LARGEST_ANSWER = 16 * 1024, 1024 * 1024
"""Bytes of one answer, at least if there are as many; Java's client asks for no more than the latter."""

LEAST_CACHE = 64 * 1024 * 1024

Fetch = Callable[[], memoryview]


class BlockCache:
    """Blocks by key; the least recently used are given up. Thread-safe.

    Args:
        limit: the budget (bytes), at least `LEAST_CACHE`: three eighths for fetches, an eighth for answers, an eighth
            for the states of reader groups, the rest for blocks.

    Attributes:
        fetches: how many blocks are fetched at once.
        state_bytes: most bytes of the states of reader groups.
        hits: how often a block was found in memory.
        fetched: how many blocks were fetched.
        fetch_seconds: how long that took, with what failed.
    """

    def __init__(self, limit: int) -> None:
        self.fetches = fetches = max(1, limit * 3 // 8 // FETCH_BYTES)
        self._answers = self.state_bytes = limit // 8
        self._limit = limit - fetches * FETCH_BYTES - self._answers - self.state_bytes
        self._held: OrderedDict[Hashable, memoryview] = OrderedDict()
        self._coming: dict[Hashable, Future[memoryview]] = {}
        self._most_coming = 8 * fetches
        self._bytes = self._sending = self.hits = self.fetched = 0
        self.fetch_seconds = 0.0
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(fetches, thread_name_prefix="fetch")

    def held(self, key: Hashable) -> memoryview | None:
        """Return a block if it is in memory."""
        with self._lock:
            if (found := self._held.get(key)) is not None:
                self._held.move_to_end(key)
                self.hits += 1
            return found

    def begin(self, key: Hashable, fetch: Fetch) -> Future[memoryview]:
        """Begin to fetch a block, unless it is there or on its way; all who wait for it get what `fetch` raises."""
        with self._lock:
            if (found := self._held.get(key)) is not None:
                self._held.move_to_end(key)
                done: Future[memoryview] = Future()
                done.set_result(found)
                return done
            if (coming := self._coming.get(key)) is None:
                coming = self._coming[key] = self._pool.submit(self._fetch, key, fetch)
            return coming

    def begin_ahead(self, key: Hashable, fetch: Fetch) -> None:
        """Begin to fetch a block that nobody waits for yet, unless many others are on their way."""
        if len(self._coming) < self._most_coming:
            self.begin(key, fetch)

    def has(self, key: Hashable) -> bool:
        """Return whether a block is in memory."""
        return key in self._held

    def take(self, size: int) -> bool:
        """Take memory for a block that is not yet compared; give up others for it. False if there is too little."""
        with self._lock:
            while self._bytes + size > self._limit and self._held:
                self._bytes -= len(self._held.popitem(last=False)[1])
            if self._bytes + size > self._limit:
                return False
            self._bytes += size
            return True

    def give_back(self, size: int) -> None:
        """Give memory back that was taken."""
        with self._lock:
            self._bytes -= size

    def put(self, key: Hashable, block: memoryview) -> None:
        """Keep a block whose memory was taken."""
        with self._lock:
            if key in self._held:
                self._bytes -= len(self._held.pop(key))
            self._held[key] = block

    def answer_bytes(self, asked: int) -> int:
        """Take memory for an answer; return how many bytes it may have, fewer and fewer as clients take none."""
        with self._lock:
            free = max(self._answers - self._sending, 0)
            size = min(max(asked, 1), LARGEST_ANSWER, max(free // 8, LEAST_ANSWER))
            self._sending += size
            return size

    def answered(self, size: int) -> None:
        """Give the memory of an answer back."""
        with self._lock:
            self._sending -= size

    def close(self) -> None:
        """Fetch nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _fetch(self, key: Hashable, fetch: Fetch) -> memoryview:
        began, fetched = time.monotonic(), 0
        try:
            block = fetch()
            fetched = 1
            if not self.has(key) and self.take(len(block)):
                self.put(key, block)
            return block
        finally:
            with self._lock:
                self._coming.pop(key, None)
                self.fetched += fetched
                self.fetch_seconds += time.monotonic() - began
