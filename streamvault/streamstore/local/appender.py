"""Appends to one segment: first the data, then the state."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO

from streamvault.common.errors import Problem
from streamvault.common.processes import open_file
from streamvault.streamstore.errors import OffsetConflict, StoreBusy, StreamStoreError
from streamvault.streamstore.local.files import (
    SegmentFiles,
    SegmentState,
    read_state,
    system_errors,
    write_all,
    write_state,
)
from streamvault.streamstore.local.folder import StreamFolder, StreamRecord
from streamvault.streamstore.store import SegmentAppender


@dataclass(frozen=True, slots=True)
class AppendTarget:
    """A segment, or a transaction's part of one.

    Attributes:
        where: its name, for messages.
        files: its files.
        check: raises if the stream's record says that it takes no appends.
    """

    where: str
    files: SegmentFiles
    check: Callable[[StreamRecord], None]


class LocalAppender(SegmentAppender):
    """Holds the segment's lock from opening to `close`.

    Blocks go to the file as they come. They are acknowledged together, after ``in_flight`` blocks or at `flush`: the
    file is synced, then the segment's state says that it goes further, under a lock that keeps the stream from being
    scaled, sealed or deleted meanwhile. What lies in the file beyond that was never acknowledged; the next appender
    cuts it off. A commit may move the segment's end meanwhile: each append checks the end, under the lock that a commit
    holds while it writes.
    """

    def __init__(self, folder: StreamFolder, target: AppendTarget, in_flight: int) -> None:
        self._folder = folder
        self._target = target
        self._path = target.files.data
        self._in_flight = max(in_flight, 1)
        self._unsynced = 0
        self._broken: Problem | None = None
        # without it, `close` in another thread would let the next appender cut off what is just being acknowledged
        self._acknowledging = threading.RLock()
        with folder.locked(shared=True) as record:
            target.check(record)
            self._file = self._open()
            try:
                self.acknowledged = self.offset = self._cut_torn_tail()
            except BaseException:
                self._file.close()
                raise

    def append(self, block: bytes | bytearray | memoryview) -> None:
        """See `SegmentAppender.append`. After `StoreFull`, the blocks before this one can still be flushed."""
        block = self.checked(block)
        self._check_usable()
        if self._unsynced >= self._in_flight:
            self._acknowledge()
        try:
            with system_errors(self._path), self._target.files.writing() as state:
                self._check_end(state)
                self._write(block)
        except FileNotFoundError:
            with self._folder.locked(shared=True) as record:
                self._target.check(record)  # raises if it was truncated, deleted or ended in the meantime
            raise StreamStoreError("a segment's file was removed", where=str(self._target.files.state)) from None
        self.offset += len(block)
        self._unsynced += 1

    def flush(self) -> int:
        """Wait until all is on disk."""
        self._check_usable()
        if self._unsynced:
            self._acknowledge()
        return self.acknowledged

    def close(self) -> None:
        """Free the lock.

        The next appender cuts off what was not acknowledged: here, an interrupt may have come after the segment's state
        was written and before this appender took note of it.
        """
        with self._acknowledging:
            if self._file.closed:
                return
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)  # also for copies of the file in processes forked off
            with contextlib.suppress(OSError):
                self._file.close()

    def _write(self, block: memoryview) -> None:
        try:
            with system_errors(self._path):
                write_all(self._file.fileno(), block, self.offset)
        except StreamStoreError:
            with contextlib.suppress(OSError):
                self._file.truncate(self.offset)
            raise

    def _open(self) -> FileIO:
        """Open the segment's file exclusively, creating it for the first append."""
        file = FileIO(open_file(self._path), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise StoreBusy(
                "another process appends to the segment",
                where=self._target.where,
                todo="Wait for it to end, or stop it.",
            ) from None
        return file

    def _cut_torn_tail(self) -> int:
        """Drop what was written and never acknowledged; returns how far the segment goes."""
        self._target.files.prepare()
        write = self._target.files.end()
        size = os.fstat(self._file.fileno()).st_size
        if size < write:
            raise StreamStoreError(f"the segment's file ends at {size} instead of {write}", where=str(self._path))
        self._file.truncate(write)
        return write

    def _acknowledge(self) -> None:
        """Sync the bytes, then say how far they go."""
        with self._acknowledging:
            self._check_usable()
            self._sync()

    def _sync(self) -> None:
        try:
            with system_errors(self._path):
                os.fdatasync(self._file.fileno())
            with self._folder.locked(shared=True) as record:
                self._target.check(record)
                path = self._target.files.state
                state = read_state(path)
                self._check_end(state)
                write_state(path, start=state.start, write=self.offset)
        except Problem as problem:
            self._broken = problem
            raise
        self.acknowledged = self.offset
        self._unsynced = 0

    def _check_end(self, state: SegmentState) -> None:
        if state.write != self.acknowledged:
            self._broken = OffsetConflict(
                f"another writer appended to the segment: it ends at {state.write}, not {self.acknowledged}",
                where=self._target.where,
                write_offset=state.write,
            )
            raise self._broken

    def _check_usable(self) -> None:
        if self._file.closed:
            raise ValueError("the appender is closed")
        if self._broken is not None:
            raise self._broken
