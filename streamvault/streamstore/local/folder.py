"""A stream's folder: its lock, its record, its segments, and the errors for when it is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from streamvault.streamstore.errors import (
    InvalidName,
    NoSuchScope,
    NoSuchSegment,
    NoSuchStream,
    SegmentTruncated,
    StreamChanged,
    StreamStoreError,
)
from streamvault.streamstore.local.commit import finish_commit
from streamvault.streamstore.local.files import locked, punch_hole, system_errors
from streamvault.streamstore.local.record import StreamRecord, load_record, read_revision
from streamvault.streamstore.local.segment_files import SegmentFiles
from streamvault.streamstore.local.state import read_state
from streamvault.streamstore.model import Epoch, SegmentId, SegmentInfo, StreamCut, StreamName

_Seen = TypeVar("_Seen")

_KEPT_RECORDS = 16

_records: dict[Path, StreamRecord] = {}
"""The records read last by this process: every task opens a store, and a record names all of its stream's segments."""


class StreamFolder:
    """The folder of a stream, which need not exist. The record is cached, and reread when it has changed."""

    def __init__(self, root: Path, stream: StreamName) -> None:
        self.root = root
        self.stream = stream
        self.path = root / stream.scope / stream.stream  # below the root: names have no slash and no leading dot

    def files(self, segment: SegmentId) -> SegmentFiles:
        """Return a segment's files, which need not exist."""
        return SegmentFiles.of_segment(self.path, segment)

    def data(self, segment: SegmentId) -> Path:
        """Return the path of a segment's data file."""
        return self.files(segment).data

    def state(self, segment: SegmentId) -> Path:
        """Return the path of a segment's state file."""
        return self.files(segment).state

    def exists(self) -> bool:
        """Return whether the stream exists."""
        try:
            self.revision()
        except (NoSuchScope, NoSuchStream):
            return False
        return True

    def revision(self) -> bytes:
        """Another value after each change of the record.

        Raises:
            NoSuchScope: the scope does not exist.
            NoSuchStream: the stream does not exist.
        """
        with self._errors():
            return read_revision(self.path)

    def record(self) -> StreamRecord:
        """The stream's record now; a commit that is decided is finished before.

        Raises:
            NoSuchScope: the scope does not exist.
            NoSuchStream: the stream does not exist.
        """
        record = self._recorded()
        if record.transactions.committing is None:
            return record
        with self.locked() as finished:
            return finished

    def _recorded(self) -> StreamRecord:
        last = _records.get(self.path)
        if last is not None and last.revision == self.revision():
            return last
        with self._errors():
            record = load_record(self.path, self.stream)
        if len(_records) >= _KEPT_RECORDS:
            _records.clear()
        _records[self.path] = record
        return record

    @contextlib.contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[StreamRecord]:
        """Hold the stream's lock: shared to acknowledge bytes, alone to change the record.

        Raises:
            NoSuchScope: the scope does not exist.
            NoSuchStream: the stream does not exist.
        """
        with contextlib.ExitStack() as stack:
            record = self._lock(stack, shared=shared)
            with self._file_errors():
                yield record

    def _lock(self, stack: contextlib.ExitStack, *, shared: bool) -> StreamRecord:
        """Take the lock until the stack is closed, at a moment when no commit is to be finished."""
        while True:
            with contextlib.ExitStack() as held:
                with self._errors():
                    held.enter_context(locked(self.path, shared=shared))
                record = self._recorded()
                if record.transactions.committing is None:
                    stack.push(held.pop_all())
                    return record
                if not shared:
                    with self._file_errors():
                        finish_commit(self.path, record)
            if shared:
                self.record()

    def settled(self, look: Callable[[StreamRecord], _Seen]) -> _Seen:
        """Look at the stream's files without its lock; again if the stream was changed or deleted in the meantime."""
        while True:
            record = self.record()
            seen = look(record)
            if self.revision() == record.revision:
                return seen

    def info(self, record: StreamRecord, segment: SegmentId) -> SegmentInfo:
        """Return a segment's current state.

        Raises:
            NoSuchSegment: it never was, or the head has passed it.
        """
        check_live(record, segment)
        state = read_state(self.state(segment))
        start = max(state.start, record.head.offsets.get(segment, 0))
        return SegmentInfo(segment, start, state.write, sealed=not record.is_open(segment))

    def tail(self, record: StreamRecord) -> StreamCut:
        """The ends of the current epoch's segments."""
        return StreamCut(self.stream, {s: read_state(self.state(s)).write for s in record.current.segments})

    def read(self, segment: SegmentId, start: int, end: int) -> Iterator[memoryview]:
        """The acknowledged bytes ``[start, end)``, in blocks that are valid until the next one is asked for.

        The stream is not locked. Truncation moves the segment's start before it takes bytes away, so what was read is
        good if it lies above the start afterwards.
        """
        for block in self.files(segment).read(start, end):
            readable = self.info(self.record(), segment).start_offset
            if start < readable:
                raise truncated(segment.in_stream(self.stream), readable)
            yield block
            start += len(block)

    def free_passed(self, record: StreamRecord) -> None:
        """Remove what the head has passed, and drafts that a kill left."""
        for path in self.path.iterdir():
            if path.name.startswith(".") or _is_passed(path, record):
                path.unlink()
        for segment, offset in record.head.offsets.items():
            self.free(segment, offset)

    def free(self, segment: SegmentId, length: int) -> None:
        """Give the room of a segment's first bytes back to the disk."""
        path = self.data(segment)
        if length > 0 and path.exists():
            with path.open("r+b", buffering=0) as file:
                punch_hole(file.fileno(), length)

    @contextlib.contextmanager
    def _file_errors(self) -> Iterator[None]:
        try:
            with system_errors(self.path):
                yield
        except FileNotFoundError as error:
            raise StreamStoreError("a file of the stream was removed", where=str(error.filename)) from None

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with system_errors(self.path):
                yield
        except FileNotFoundError:
            if not self.path.parent.is_dir():
                raise NoSuchScope("no such scope", where=f"local://{self.root}/{self.stream.scope}") from None
            raise NoSuchStream("no such stream", where=f"local://{self.root}/{self.stream}") from None


def check_first(record: StreamRecord, first: Epoch | None) -> None:
    """Reject a stream that was recreated since the caller read it.

    Raises:
        StreamChanged: its first epoch is another one than given.
    """
    if first is not None and first != record.epochs[0]:
        raise StreamChanged("the stream was deleted and recreated", where=str(record.stream))


def check_live(record: StreamRecord, segment: SegmentId) -> None:
    """Reject a segment that never existed or was truncated.

    Raises:
        NoSuchSegment: says which of the two.
    """
    where = segment.in_stream(record.stream)
    if segment not in record.ranges:
        raise NoSuchSegment("the stream never had this segment", where=where)
    if segment not in record.live:
        raise NoSuchSegment("the segment was truncated", where=where)


def truncated(where: str, start: int) -> SegmentTruncated:
    """Return the error for a read below a segment's start."""
    return SegmentTruncated(f"the segment was truncated to offset {start}", where=where, start_offset=start)


def _is_passed(path: Path, record: StreamRecord) -> bool:
    """Return whether a file belongs to a segment that the head has passed."""
    try:
        return path.suffix in {".data", ".state"} and SegmentId.parse(path.stem) not in record.live
    except InvalidName:
        return False
