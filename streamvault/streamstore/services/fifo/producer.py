"""Adds entries to a queue."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from tenacity import stop_after_delay

from streamvault.common.errors import Failed, Usage
from streamvault.common.retries import attempts
from streamvault.streamstore.errors import OffsetConflict, SegmentTruncated, StoreBusy
from streamvault.streamstore.services.fifo.backlog import outstanding_entries
from streamvault.streamstore.services.fifo.entry import (
    MAX_ENTRY_BYTES,
    NOTE_BYTES,
    OVERHEAD_BYTES,
    QueueEntry,
    encode_entry,
)
from streamvault.streamstore.services.fifo.segment import QueueSegment

LIMIT_BYTES = 64 * 1024 * 1024
"""Default limit of outstanding bytes."""

WAIT_SECONDS = 60.0
LONGEST_PAUSE = 0.5


class QueueFull(Failed):
    """More is outstanding than the limit allows, and the consumer did not make room in time. Nothing was put in."""


class Producer:
    """Adds entries to a queue, concurrently with any number of other producers.

    It holds no lock between puts. Each put is a conditional append at a known offset, retried if another producer was
    faster.

    Args:
        queue: where to.
        limit: maximum outstanding bytes (write offset minus start offset).
        wait_seconds: how long a put waits for room, or for other producers.

    Raises:
        Usage: the limit is smaller than the largest entry.
    """

    def __init__(self, queue: QueueSegment, *, limit: int = LIMIT_BYTES, wait_seconds: float = WAIT_SECONDS) -> None:
        if limit < MAX_ENTRY_BYTES + OVERHEAD_BYTES:
            raise Usage(
                f"a queue must have room for at least one entry of {MAX_ENTRY_BYTES} bytes", where=f"limit {limit}"
            )
        self._queue = queue
        self._limit = limit
        self._start = 0
        self._attempts = attempts(
            lambda error: isinstance(error, QueueFull | OffsetConflict | StoreBusy),
            stop_after_delay(wait_seconds),
            first=0.01,
            longest=LONGEST_PAUSE,
        )

    def put(self, content: bytes, name: uuid.UUID | None = None) -> uuid.UUID:
        """Add one entry durably, under a new name if none is given. Waits while too much is outstanding.

        Returns:
            The entry's name.

        Raises:
            QueueFull: there was no room in time. OffsetConflict, StoreBusy: others were faster all the time. Nothing
                was put in.
            StreamStoreUnavailable: the store went away; the entry may have been put in.
            EntryTooLarge: the content is larger than `MAX_ENTRY_BYTES`.
        """
        name = name or uuid.uuid4()
        self._attempts(self._append, encode_entry(content, name))
        return name

    def move(self, content: bytes, name: uuid.UUID, unless: Callable[[QueueEntry], bool] | None = None) -> None:
        """Put an entry in that was taken out of a queue, with a note.

        Two that move the same entry, one of which was paused or killed in between, put it in once if `unless` knows
        it: what is outstanding is looked through up to the very offset at which the entry is then appended.

        Args:
            content: at most `MAX_ENTRY_BYTES` and `NOTE_BYTES` together.
            name: of the entry.
            unless: whether an outstanding entry is this very one, so that nothing is put in.

        Raises:
            QueueFull, OffsetConflict, StoreBusy, StreamStoreUnavailable, EntryTooLarge: as of `put`.
        """
        entry = encode_entry(content, name, limit=MAX_ENTRY_BYTES + NOTE_BYTES)
        self._attempts(self._append, entry, unless)

    def _append(self, block: bytes, unless: Callable[[QueueEntry], bool] | None = None) -> None:
        """Append a block at the queue's end, as it is now, unless a certain entry is outstanding below it."""
        appender = self._queue.appender()
        try:
            if unless is not None and self._holds(unless):
                return
            end = appender.offset + len(block)
            self._check_room(end)
            try:
                appender.append(block)
                appender.flush()
            except SegmentTruncated:
                return  # it was appended, the answer was lost, and the consumer has already handled it
            except OffsetConflict:
                if appender.acknowledged < end:
                    raise
                # our block was written, and another one after it, while the answer was lost
        finally:
            appender.close()

    def _holds(self, wanted: Callable[[QueueEntry], bool]) -> bool:
        """Return whether a matching entry is outstanding."""
        return any(map(wanted, outstanding_entries(self._queue)))

    def _check_room(self, end: int) -> None:
        """The start offset only grows, so it is asked for only when the last one known says that there is no room."""
        if end - self._start <= self._limit:
            return
        self._start = self._queue.info().start_offset
        if end - self._start > self._limit:
            raise QueueFull(
                f"the queue is full: {end - self._start} bytes would be outstanding, the limit is {self._limit}",
                where=self._queue.where,
                todo="Process it with a worker, or wait.",
            )
