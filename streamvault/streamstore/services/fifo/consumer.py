"""Processes a queue: one consumer at a time, batch by batch, each entry at least once."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tenacity import (
    RetryCallState,
    sleep_using_event,
    stop_after_attempt,
    stop_never,
    stop_when_event_set,
)

from streamvault.common.errors import Conflict
from streamvault.common.retries import attempts, pauses
from streamvault.streamstore.own import CONSUMER_LEASE, stream_beside
from streamvault.streamstore.services.fifo.backlog import Backlog, foreign_end
from streamvault.streamstore.services.fifo.entry import BadEntry, QueueEntry
from streamvault.streamstore.services.fifo.segment import QueueSegment
from streamvault.streamstore.services.lease import Lease, LeaseHeld

Handler = Callable[[Sequence[QueueEntry]], None]
"""Processes a batch. When it returns, the batch is done; when it raises, it is called again with the same batch."""

BATCH_ENTRIES = 500
BATCH_BYTES = 1024 * 1024
"""Maximum bytes per batch, as stored in the segment; a single entry may be larger."""

FIRST_LOOK = 0.02
LONGEST_LOOK = 0.5
LONGEST_PAUSE = 60.0
"""Maximum seconds between two attempts; pauses grow from 0.1 s."""

SETTLE_BYTES = 64 * 1024 * 1024
"""Bytes after which the stream's head is moved to the segment's start."""


class ConsumerBusy(LeaseHeld):
    """Another live consumer processes this queue, or took it over because this one seemed dead."""


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """A consumer at one moment.

    Attributes:
        outstanding_bytes: put in and not yet handled, with what an entry takes besides its content.
        entries: handled by this consumer.
        bytes: of these (as they lie in the segment).
        retries: how often its handler failed and was called again.
        latency_seconds: from the put to the end of the handling, on average over `entries`; by the clocks of producer
            and consumer. 0.0 if nothing was handled.
    """

    outstanding_bytes: int = 0
    entries: int = 0
    bytes: int = 0
    retries: int = 0
    latency_seconds: float = 0.0


class Consumer:
    """Processes a queue; a context manager that holds the queue's lease.

    After a killed consumer, the next one starts at the end of the last handled batch. Entries that were handled but not
    yet recorded are delivered again: a contiguous run of at most one batch.

    Args:
        queue: the queue.
        wait_seconds: how long to wait for another live consumer.
        batch_entries: maximum entries per batch.
        tries: attempts per batch before `run` raises the handler's error; None for no limit.
        failing: called with each error and the pause (seconds) that follows.

    Raises:
        ConsumerBusy: another live consumer processes the queue.
    """

    def __init__(
        self,
        queue: QueueSegment,
        *,
        wait_seconds: float = 0.0,
        batch_entries: int = BATCH_ENTRIES,
        tries: int | None = None,
        failing: Callable[[BaseException, float], None] | None = None,
    ) -> None:
        self._queue = queue
        self._batch_entries = batch_entries
        self._failing = failing
        self._stop = threading.Event()
        self._entries = self._bytes = self._retries = 0
        self._latency = 0.0
        after = stop_never if tries is None else stop_after_attempt(tries)
        self._attempts = attempts(
            _passes,
            after | stop_when_event_set(self._stop),
            first=0.2,
            least=0.1,
            longest=LONGEST_PAUSE,
            sleep=sleep_using_event(self._stop),
            before_sleep=self._tell,
        )
        where = f"{queue.store.uri}/{queue.name}"
        held = ConsumerBusy("another consumer is processing this queue", where=where, todo="Wait for it, or stop it.")
        beside = stream_beside(queue.name, CONSUMER_LEASE)
        self._lease = Lease.take(queue.store, beside, str(queue.name), held=held, wait_seconds=wait_seconds)
        try:
            start = queue.info().start_offset
        except BaseException:
            self._lease.release(remove=True)
            raise
        self._backlog = Backlog(queue, start)
        self._settled = self._processed = start

    def run(self, handler: Handler, *, idle_seconds: float | None = None, until: int | None = None) -> QueueMetrics:
        """Hand out batches in order until told to stop.

        Args:
            handler: see `Handler`.
            idle_seconds: return after this long without new entries; 0 processes what is there; None never returns.
            until: return before a batch that begins at or after this offset (bytes).

        Raises:
            ConsumerBusy: another consumer took over.
            BadEntry: an entry cannot be decoded; all entries before it were handled, it and later ones are kept.
            StreamStoreError: the store failed.
            Exception: the handler's error on its last attempt; the batch is kept.
        """
        quiet = self._quiet(idle_seconds)
        while not self._stop.is_set() and (until is None or self._backlog.offset < until):
            self._lease.check()
            batch = self._backlog.next_batch(self._batch_entries, BATCH_BYTES)
            if not batch:
                if next(quiet, None) is None:
                    break
                continue
            if not self._handled(handler, batch):
                break
            self._note(batch)
            quiet = self._quiet(idle_seconds)
        return self.metrics()

    def _quiet(self, seconds: float | None) -> Iterator[float]:
        """Return the pauses between looks at an empty queue; `stop` ends them."""
        limit = math.inf if seconds is None else seconds
        return pauses(limit, first=FIRST_LOOK, longest=LONGEST_LOOK, at_once=False, sleep=self._stop.wait)

    def skip(self, offset: int) -> int:
        """Remove foreign bytes at the queue's start; return how many, 0 if they are gone already.

        Args:
            offset: where they begin (bytes), as `BadEntry` names it.

        Raises:
            Conflict: an entry begins there, or entries are outstanding before it. Nothing is removed.
            ConsumerBusy: another consumer took over.
        """
        start = self._queue.info().start_offset
        if offset < start:
            return 0
        where = f"{self._queue.where} at offset {offset}"
        if offset > start:
            what = f"the queue begins at offset {start}; only what it begins with can be skipped"
            raise Conflict(what, where=where, todo="Process what is before it (`streamvault work QUEUE --once`).")
        self._lease.check()
        try:
            self._backlog.next_batch(1, 1)
        except BadEntry:
            end = foreign_end(self._queue, offset)
            self._queue.processed(end)
            self._processed = end
            return end - offset
        raise Conflict("no foreign bytes begin at this offset", where=where, todo="See `streamvault queue show QUEUE`.")

    def stop(self) -> None:
        """Make `run` return after the current batch, or at once if it fails. Thread-safe."""
        self._stop.set()

    def metrics(self) -> QueueMetrics:
        """Return current metrics; queries the store. Thread-safe."""
        return QueueMetrics(
            outstanding_bytes=self._queue.outstanding(),
            entries=self._entries,
            bytes=self._bytes,
            retries=self._retries,
            latency_seconds=self._latency / self._entries if self._entries else 0.0,
        )

    def close(self) -> None:
        """Release the queue's lease."""
        try:
            self._settle()
        finally:
            self._lease.release(remove=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._lease.release(remove=True)

    def _handled(self, handler: Handler, batch: Sequence[QueueEntry]) -> bool:
        """Process a batch; return False if it was abandoned because of `stop`."""
        try:
            self._attempts(self._try, handler, batch)
        except Exception:
            if self._stop.is_set():
                return False
            raise
        return True

    def _try(self, handler: Handler, batch: Sequence[QueueEntry]) -> None:
        """Hand a batch out, unless another consumer has taken over, which a process that was paused learns late.

        One that is paused in the handler does the batch a second time. It drops nothing that it has not handled itself:
        dropping is moving the start offset to where its own batch ends, and an offset that was passed changes nothing.
        """
        self._lease.check()
        start = self._queue.info().start_offset
        if start > batch[0].offset:
            raise ConsumerBusy(
                "another consumer has taken over this queue", where=self._queue.where, todo="Run it again."
            )
        handler(batch)

    def _note(self, batch: Sequence[QueueEntry]) -> None:
        """Record a batch as handled and truncate it."""
        now = time.time()
        self._queue.processed(batch[-1].end)
        self._processed = batch[-1].end
        self._entries += len(batch)
        self._bytes += batch[-1].end - batch[0].offset
        self._latency += sum(now - entry.put_time for entry in batch)
        if self._processed - self._settled >= SETTLE_BYTES:
            self._settle()

    def _settle(self) -> None:
        if self._processed > self._settled:
            self._queue.truncate(self._processed)
            self._settled = self._processed

    def _tell(self, state: RetryCallState) -> None:
        self._retries += 1
        error = state.outcome.exception() if state.outcome else None
        if self._failing is not None and error is not None:
            self._failing(error, state.upcoming_sleep)


def _passes(error: BaseException) -> bool:
    """Return whether to retry a batch after an error."""
    return isinstance(error, Exception) and not isinstance(error, ConsumerBusy)
