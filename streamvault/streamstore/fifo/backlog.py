"""Reads the outstanding entries in batches, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

from streamvault.streamstore.errors import SegmentTruncated
from streamvault.streamstore.fifo.entry import (
    MAX_ENTRY_BYTES,
    NOTE_BYTES,
    OVERHEAD_BYTES,
    BadEntry,
    Entry,
    bad_entry,
    decode_entry,
)
from streamvault.streamstore.fifo.place import QueueSegment

__all__ = ["READ_BYTES", "Backlog", "outstanding_entries"]

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

    def next_batch(self, most_entries: int, most_bytes: int) -> list[Entry]:
        """The next entries, as many as are there up to the bounds, but one at least if there is one.

        Raises:
            BadEntry: the next one cannot be decoded. Those before it were handed out.
        """
        batch: list[Entry] = []
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
            for block in self._queue.read(start, end):
                self._buffer += block
        except SegmentTruncated:
            self._buffer.clear()
            return False
        return bool(self._buffer)


def outstanding_entries(queue: QueueSegment) -> Iterator[Entry]:
    """Iterate over the entries outstanding now, in order, without removing them; ignores entries added meanwhile.

    Raises:
        BadEntry: the next one cannot be decoded.
    """
    info = queue.info()
    backlog = Backlog(queue, info.start_offset)
    while batch := backlog.next_batch(1, READ_BYTES):
        if batch[0].offset >= info.write_offset:
            return
        yield batch[0]
