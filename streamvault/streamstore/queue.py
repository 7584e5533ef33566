"""A durable FIFO queue on a stream of one segment, with one consumer and at-least-once delivery.

`QueueSegment` is the queue's segment, `Producer` adds entries, `Consumer` processes them. All use only the
`StreamStore` interface.

Modelled after the event processor of Pravega's segment containers (`ContainerEventProcessor` in its source): entries
are appended to a small segment; a processor reads them in batches, passes these to a function, and truncates the
segment up to where that function succeeded. The segment's start offset is thus the progress, survives a kill, and is
visible to producers in other processes; write offset minus start offset is outstanding.

An entry is an event whose payload is a small head and what was put in. The head, big-endian: uint8 version = 1, uint64
time of the put (microseconds since 1970, UTC), 16 bytes that name the entry (a random UUID), uint32 CRC-32 of these 25
bytes and of the content. See docs/reference/format-queue.md.
"""

from __future__ import annotations

import math
import struct
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tenacity import (
    RetryCallState,
    sleep_using_event,
    stop_after_attempt,
    stop_after_delay,
    stop_never,
    stop_when_event_set,
)

from streamvault.common.errors import Conflict, Damaged, Failed, Usage
from streamvault.common.waiting import attempts, pauses
from streamvault.streamstore.errors import OffsetConflict, SegmentTruncated, StoreBusy, StreamExists
from streamvault.streamstore.framing import frame
from streamvault.streamstore.lease import Lease, LeaseHeld
from streamvault.streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES, StreamConfiguration, StreamName
from streamvault.streamstore.own import CONSUMER_LEASE, OWN, OwnSegment, stream_beside
from streamvault.streamstore.store import StreamStore

MAX_ENTRY_BYTES = 1024 * 1024
"""The largest content that is put in. An entry is appended whole or not at all, so it fits into one block."""

NOTE_BYTES = 64 * 1024
"""Extra content allowed for an entry moved from another queue: room to note the reason."""

VERSION = 1

_EVENT = struct.Struct(">q")
_HEAD = struct.Struct(">BQ16s")
_CHECK = struct.Struct(">I")

OVERHEAD_BYTES = HEADER_BYTES + _HEAD.size + _CHECK.size
"""Bytes of an entry in the segment in addition to its content."""


class BadEntry(Damaged):
    """Bytes in a queue that are not an entry. They are kept."""


class EntryTooLarge(Usage):
    """The content exceeds the maximum entry size. Nothing was added."""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """An entry as it comes out of a queue.

    Attributes:
        content: what was put in.
        name: the entry's own: 16 bytes, the same each time it is handed out.
        put_time: when it was put (seconds since 1970, UTC, by the producer's clock).
        offset: where it begins in the segment (bytes). end: where the next one begins.
    """

    content: bytes
    name: uuid.UUID
    put_time: float
    offset: int
    end: int


def encode_entry(
    content: bytes, name: uuid.UUID | None = None, put_time: float | None = None, *, limit: int = MAX_ENTRY_BYTES
) -> bytes:
    """An entry as the bytes to append.

    Args:
        content: what to put in.
        name: a new one if not given.
        put_time: seconds since 1970; now if not given.
        limit: bytes that the content may have.

    Raises:
        EntryTooLarge: the content is larger than that.
    """
    if len(content) > limit:
        raise EntryTooLarge(f"a queue entry of {len(content)} bytes exceeds the maximum of {limit}")
    micros = round((time.time() if put_time is None else put_time) * 1e6)
    head = _HEAD.pack(VERSION, micros, (name or uuid.uuid4()).bytes)
    return frame(head + _CHECK.pack(zlib.crc32(content, zlib.crc32(head))) + content)


def decode_entry(buffer: bytes | bytearray, at: int, offset: int, where: str) -> QueueEntry | None:
    """The entry at a position of a buffer, and at ``offset`` of its segment; None if the buffer ends before it does.

    Raises:
        BadEntry: the bytes are not an entry; names segment and offset.
    """
    if len(buffer) - at < HEADER_BYTES:
        return None
    (length,) = _EVENT.unpack_from(buffer, at)
    if not 0 <= length <= MAX_EVENT_BYTES:
        raise bad_entry("no event begins here", where, offset)
    if not _HEAD.size + _CHECK.size <= length <= _HEAD.size + _CHECK.size + MAX_ENTRY_BYTES + NOTE_BYTES:
        raise bad_entry(f"an event of {length} bytes is not a queue entry", where, offset)
    end = at + HEADER_BYTES + length
    if len(buffer) < end:
        return None
    head = bytes(buffer[at + HEADER_BYTES : at + HEADER_BYTES + _HEAD.size])
    version, micros, name = _HEAD.unpack(head)
    if version != VERSION:
        raise bad_entry(f"unknown entry version {version}", where, offset)
    (check,) = _CHECK.unpack_from(buffer, at + HEADER_BYTES + _HEAD.size)
    content = bytes(buffer[at + OVERHEAD_BYTES : end])
    if zlib.crc32(content, zlib.crc32(head)) != check:
        raise bad_entry("an entry's checksum is wrong", where, offset)
    return QueueEntry(content, uuid.UUID(bytes=name), micros / 1e6, offset, offset + HEADER_BYTES + length)


def bad_entry(what: str, where: str, offset: int) -> BadEntry:
    """Build the error for bytes at an offset of a segment."""
    return BadEntry(
        f"the queue cannot be read: {what}",
        where=f"{where} at offset {offset}",
        todo="Nothing was dropped. Find out what else writes here; `streamvault queue skip` removes these bytes.",
    )


MARK = "streamvault-queue"

ROLLOVER_BYTES = 16 * 1024 * 1024
"""Size at which stored chunks roll over: what is truncated is freed by the chunk."""


class NotAQueue(Conflict):
    """The stream exists but is not a queue, so it is neither written nor truncated."""


class QueueSegment(OwnSegment):
    """The segment of a queue; `open` or `create` it."""

    @classmethod
    def open(cls, store: StreamStore, name: StreamName) -> Self:
        """Open an existing queue.

        Raises:
            NoSuchScope, NoSuchStream: it does not exist.
            NotAQueue: the stream is something else.
        """
        described = store.describe(name)
        is_queue = {OWN, MARK}.issubset(described.configuration.tags)
        if not is_queue or len(described.epochs) > 1 or len(described.epochs[0].segments) > 1 or described.sealed:
            raise NotAQueue(
                "the stream is not a queue",
                where=f"{store.uri}/{name}",
                todo="Name a stream that does not exist yet, or a queue.",
            )
        return cls(store, described)

    @classmethod
    def create(cls, store: StreamStore, name: StreamName) -> Self:
        """Open a queue; create it and its scope if missing.

        Raises:
            NotAQueue: the stream is something else.
        """
        if not store.exists(name):
            configuration = StreamConfiguration(tags=(OWN, MARK), rollover_bytes=ROLLOVER_BYTES)
            with suppress(StreamExists):
                store.create_stream_and_scope(name, configuration)
        return cls.open(store, name)

    def outstanding(self) -> int:
        """Return the bytes not yet processed."""
        info = self.info()
        return info.write_offset - info.start_offset

    def processed(self, offset: int) -> None:
        """Truncate below an offset; other processes see the progress at once, and the stream's head follows later."""
        self.store.truncate_segment(self.name, self.segment, offset)


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
            if unless is not None and any(map(unless, outstanding_entries(self._queue))):
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


Handler = Callable[[Sequence[QueueEntry]], None]
"""Processes a batch. When it returns, the batch is done; when it raises, it is called again with the same batch."""

BATCH_ENTRIES = 500
BATCH_BYTES = 1024 * 1024
"""Maximum bytes per batch, as stored in the segment; a single entry may be larger."""

FIRST_LOOK = 0.02
LONGEST_LOOK = 0.5
LONGEST_RETRY_PAUSE = 60.0
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
            longest=LONGEST_RETRY_PAUSE,
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
            try:
                self._attempts(self._try, handler, batch)
            except Exception:
                if self._stop.is_set():
                    break
                raise
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
            what = f"the queue begins at offset {start}; only bytes at its beginning can be skipped"
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

    def _try(self, handler: Handler, batch: Sequence[QueueEntry]) -> None:
        """Hand a batch out, unless another consumer has taken over, which a process that was paused learns late.

        One that is paused in the handler does the batch a second time. It drops nothing that it has not handled itself:
        dropping is moving the start offset to where its own batch ends, and an offset that was passed changes nothing.
        """
        self._lease.check()
        start = self._queue.info().start_offset
        if start > batch[0].offset:
            raise ConsumerBusy(
                "another consumer has taken over this queue",
                where=self._queue.where,
                todo="Run the same command again.",
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
