"""A stream's folder: its lock, its record, and the errors for when it is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream, StreamChanged, StreamStoreError
from streamvault.streamstore.local.files import locked, system_errors
from streamvault.streamstore.local.record import StreamRecord, load_record, read_revision
from streamvault.streamstore.model import Epoch, SegmentId, StreamName

_KEPT_RECORDS = 16

_records: dict[Path, StreamRecord] = {}
"""The records read last by this process: every task opens a store, and a record names all of its stream's segments."""


@contextlib.contextmanager
def scope_errors(root: Path, scope: str) -> Iterator[None]:
    """System errors as the store's; what is missing is the scope.

    Raises:
        NoSuchScope: something is not there.
    """
    try:
        with system_errors(root / scope):
            yield
    except FileNotFoundError:
        raise NoSuchScope("no such scope", where=f"local://{root}/{scope}") from None


class StreamFolder:
    """The folder of a stream, which need not exist. The record is cached, and reread when it has changed."""

    def __init__(self, root: Path, stream: StreamName) -> None:
        self.root = root
        self.stream = stream
        self.path = root / stream.scope / stream.stream  # below the root: names have no slash and no leading dot

    def data(self, segment: SegmentId) -> Path:
        """Return the path of a segment's data file."""
        return self.path / f"{segment}.data"

    def state(self, segment: SegmentId) -> Path:
        """Return the path of a segment's state file."""
        return self.path / f"{segment}.state"

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
        """The stream's record now.

        Raises:
            NoSuchScope: the scope does not exist.
            NoSuchStream: the stream does not exist.
        """
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
            with self._errors():
                stack.enter_context(locked(self.path, shared=shared))
            record = self.record()
            try:
                with system_errors(self.path):
                    yield record
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
