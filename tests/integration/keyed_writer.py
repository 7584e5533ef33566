"""A writer that appends numbered events of many keys to a stream, follows its scales, and can go on in another one."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from typing import Self

from streamvault.streamstore.errors import OffsetConflict, SegmentSealed
from streamvault.streamstore.framing import frame
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.routing import SegmentRouter
from streamvault.streamstore.store import StreamStore
from testkit.streams import events_of

BATCH = 20


class KeyedWriter:
    """Appends ``KEY NUMBER filling`` in a thread; numbers of a key are consecutive. A context manager.

    Attributes:
        written: key → the number of its next event; what is below was acknowledged.
        error: what ended the thread; None while all is well.
    """

    def __init__(
        self,
        store: StreamStore,
        name: StreamName,
        *,
        keys: int = 40,
        rate: float = 400,
        size: int = 200,
        prefix: str = "key",
    ) -> None:
        self._store, self._name = store, name
        self._rate, self._size = rate, size
        self._random = random.Random(7)
        self.written = {f"{prefix}-{number}": 0 for number in range(keys)}
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keyed writer")

    def move_to(self, store: StreamStore, name: StreamName) -> None:
        """Go on in another stream; the thread has ended."""
        self._store, self._name = store, name

    def write(self, count: int) -> None:
        """Append some events in this thread."""
        while count > 0:
            count -= self._write_batch()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def ended_by_seal(self, limit: float = 60.0) -> bool:
        """Wait for the thread to end (seconds); return whether it has, because the stream is sealed."""
        self._thread.join(limit)
        return not self._thread.is_alive() and not self._stop.is_set() and self.error is None

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                count = self._write_batch()
                if not count:
                    return
                time.sleep(max(0.0, count / self._rate - (time.monotonic() - began)))
        except BaseException as error:  # noqa: BLE001  (the test looks at it)
            self.error = error

    def _write_batch(self) -> int:
        """Append a batch of one segment; return its size, 0 if the stream is sealed."""
        while True:
            described = self._store.describe(self._name)
            if described.sealed:
                return 0
            segments = described.epochs[-1].segments
            router = SegmentRouter(segments)
            first = self._random.choice(list(self.written))
            segment = router.segments[router.index_of(first)]
            mine = [key for key in self.written if router.segments[router.index_of(key)] == segment]
            chosen = [self._random.choice(mine) for _ in range(BATCH)]
            if self._append(segment, chosen):
                return BATCH

    def _append(self, segment: SegmentId, keys: list[str]) -> bool:
        numbers = dict(self.written)
        block = bytearray()
        for key in keys:
            block += frame(f"{key} {numbers[key]} ".encode().ljust(self._size, b"."))
            numbers[key] += 1
        before = self._store.segment_info(self._name, [segment])[0].write_offset
        with contextlib.suppress(SegmentSealed, OffsetConflict):
            with self._store.appender(self._name, segment, in_flight=1) as appender:
                appender.append(bytes(block))
            self.written = numbers
            return True
        # a block is appended whole or not at all; an append of streams may have merged other events in the meantime
        after = self._store.segment_info(self._name, [segment])[0].write_offset
        if after - before != len(block) and block not in self._store.read_bytes(self._name, segment, before, after):
            return False
        self.written = numbers
        return True


def numbers_by_key(store: StreamStore, name: StreamName) -> dict[str, list[int]]:
    """Return key → the numbers of its events that can be read, in the stream's order."""
    found: dict[str, list[int]] = {}
    for _, payload in events_of(store, name):
        key, number, _ = payload.split(b" ", 2)
        found.setdefault(key.decode(), []).append(int(number))
    return found
