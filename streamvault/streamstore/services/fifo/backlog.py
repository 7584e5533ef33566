"""Reads the outstanding entries in batches, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from streamvault.streamstore.errors import SegmentTruncated
from streamvault.streamstore.model import HEADER_BYTES
from streamvault.streamstore.services.fifo.entry import (
    MAX_ENTRY_BYTES,
    NOTE_BYTES,
    OVERHEAD_BYTES,
    BadEntry,
    QueueEntry,
    bad_entry,
    decode_entry,
)
from streamvault.streamstore.services.fifo.segment import QueueSegment

ENTRY_BEGINS = bytes(5)
"""The first bytes of an entry, whose length takes the last three of eight."""

READ_BYTES = MAX_ENTRY_BYTES + NOTE_BYTES + OVERHEAD_BYTES
"""Size of one read (bytes): an entry of any size fits."""


class Backlog:
    """The entries of a queue from an offset on.

    What was read and not yet handed out is kept: at most two reads.

    Attributes:
        offset: of the next entry (bytes).
    """

    def __init__(self, queue: QueueSegment, offset: int) -> None:
        self.offset = offset
        self._queue = queue
        self._buffer = bytearray()
        self._at = 0

    def next_batch(self, most_entries: int, most_bytes: int) -> list[QueueEntry]:
        """The next entries, as many as are there up to the bounds, but one at least if there is one.

        Raises:
            BadEntry: the next one cannot be decoded. Those before it were handed out.
        """
        batch: list[QueueEntry] = []
        size, looked = 0, False
        while len(batch) < most_entries:
            try:
                entry = decode_entry(self._buffer, self._at, self.offset, self._queue.where)
            except BadEntry:
                if batch:
                    return batch
                raise
            if entry is None:
                if batch or looked:
                    break
                looked = True
                if not self._read():
                    break
                continue
            size += entry.end - entry.offset
            if batch and size > most_bytes:
                break
            batch.append(entry)
            self._at += entry.end - entry.offset
            self.offset = entry.end
        if looked and not batch and len(self._buffer) > self._at:
            raise bad_entry("the segment ends inside an entry", self._queue.where, self.offset)
        return batch

    def _read(self) -> bool:
        """Read on where the buffer ends; whether there was anything, or a part of an entry is left."""
        del self._buffer[: self._at]
        self._at = 0
        start = self.offset + len(self._buffer)
        info = self._queue.info()
        if info.start_offset > self.offset:
            # a consumer considered dead has continued; the entries it dropped were handled
            self._buffer.clear()
            self.offset = start = info.start_offset
        end = min(info.write_offset, start + READ_BYTES)
        try:
            self._buffer += self._queue.read(start, end)
        except SegmentTruncated:
            self._buffer.clear()
            return False
        return bool(self._buffer)


@dataclass(frozen=True, slots=True)
class NotAnEntry:
    """Bytes in a queue that are not an entry.

    Attributes:
        offset: where they begin in the segment (bytes).
        end: where they end: no entry begins between the two.
        why: why they are not an entry.
    """

    offset: int
    end: int
    why: str


def outstanding(queue: QueueSegment) -> Iterator[QueueEntry | NotAnEntry]:
    """Iterate over what is outstanding now, in order, without removing it; ignores what is added meanwhile."""
    info = queue.info()
    backlog = Backlog(queue, info.start_offset)
    while backlog.offset < info.write_offset:
        try:
            batch = backlog.next_batch(1, READ_BYTES)
        except BadEntry as error:
            end = foreign_end(queue, backlog.offset)
            yield NotAnEntry(backlog.offset, end, error.what)
            backlog = Backlog(queue, end)
            continue
        if not batch or batch[0].offset >= info.write_offset:
            return
        yield batch[0]


def outstanding_entries(queue: QueueSegment) -> Iterator[QueueEntry]:
    """As `outstanding`, without foreign bytes."""
    return (one for one in outstanding(queue) if isinstance(one, QueueEntry))


def foreign_end(queue: QueueSegment, offset: int) -> int:
    """Return where foreign bytes end: where their event ends, if they are one, but before the next entry in any case.

    Args:
        queue: the queue.
        offset: where they begin (bytes).
    """
    end = queue.info().write_offset
    header = queue.read(offset, min(offset + HEADER_BYTES, end))
    length = int.from_bytes(header, "big", signed=True)
    if len(header) == HEADER_BYTES and 0 <= length <= end - offset - HEADER_BYTES:
        end = offset + HEADER_BYTES + length
    at = offset + 1
    while at < end:
        # an entry that begins in the first half of what is read is in it as a whole
        data = queue.read(at, min(at + 2 * READ_BYTES, queue.info().write_offset))
        found = _first_entry(data, min(READ_BYTES, end - at))
        if found is not None:
            return at + found
        at += READ_BYTES
    return end


def _first_entry(data: bytes, most: int) -> int | None:
    """Return where the first entry begins in some bytes, before a position; None if there is none."""
    at = data.find(ENTRY_BEGINS)
    while 0 <= at < most:
        with suppress(BadEntry):
            if decode_entry(data, at, at, "") is not None:
                return at
        at = data.find(ENTRY_BEGINS, at + 1)
    return None
