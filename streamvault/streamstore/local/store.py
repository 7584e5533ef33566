"""The embedded store: the interface of `StreamStore` over one folder."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from weakref import WeakSet

from streamvault.streamstore.appender import SegmentAppender
from streamvault.streamstore.arithmetic.cuts import is_before, validate_cut
from streamvault.streamstore.arithmetic.numbering import check_replaces, predict_order
from streamvault.streamstore.errors import (
    InvalidCut,
    InvalidName,
    ScaleRefused,
    StreamChanged,
    StreamSealed,
    StreamStoreError,
)
from streamvault.streamstore.local import scopes
from streamvault.streamstore.local.appender import LocalAppender
from streamvault.streamstore.local.folder import StreamFolder, check_first, check_live, truncated
from streamvault.streamstore.local.record import StreamRecord, save_record
from streamvault.streamstore.local.state import write_state
from streamvault.streamstore.model import (
    Epoch,
    KeyRange,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.own import is_own
from streamvault.streamstore.store import StreamStore

_KEPT_RECORDS = 64


class LocalStore(StreamStore):
    """Streams in a folder of this machine, named by its absolute path; several processes may use it at once.

    Reading creates nothing: the folder is created with its first scope.

    Raises:
        InvalidName: the path is not absolute.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._root = Path(folder)
        if not self._root.is_absolute():
            raise InvalidName("the folder of a local store must be absolute", where=repr(os.fspath(folder)))
        self.uri = f"local://{self._root}"
        self._folders: dict[StreamName, StreamFolder] = {}
        self._appenders: WeakSet[LocalAppender] = WeakSet()
        self._mutex = threading.Lock()

    def list_scopes(self) -> Iterator[str]:
        """Every scope, sorted."""
        return scopes.scope_names(self._root)

    def list_streams(self, scope: str, *, own: bool = False) -> Iterator[StreamName]:
        """Every user's stream of a scope, sorted; with ``own`` also Streamvault's."""
        return (name for name in scopes.stream_names(self._root, scope) if own or not self._is_own(name))

    def describe(self, stream: StreamName) -> StreamDescription:
        """Configuration, epochs, head, tail and whether it is sealed."""
        folder = self._folder(stream)
        return folder.settled(lambda record: record.describe(folder.tail(record)))

    def exists(self, stream: StreamName) -> bool:
        """See `StreamStore.exists`."""
        return self._folder(stream).exists()

    def segment_info(self, stream: StreamName, segments: Sequence[SegmentId]) -> list[SegmentInfo]:
        """See `StreamStore.segment_info`."""
        folder = self._folder(stream)
        return folder.settled(lambda record: [folder.info(record, segment) for segment in segments])

    def read(self, stream: StreamName, segment: SegmentId, start: int, end: int) -> Iterator[memoryview]:
        """The bytes of a segment's range as blocks; see `StreamStore.read`."""
        folder = self._folder(stream)
        where = segment.in_stream(stream)
        info = folder.settled(lambda record: folder.info(record, segment))
        if not 0 <= start <= end <= info.write_offset:
            raise ValueError(f"[{start}, {end}) is not a range of {where}, which ends at {info.write_offset}")
        if start == end:
            return
        if start < info.start_offset:
            raise truncated(where, info.start_offset)
        try:
            yield from folder.read(segment, start, end)
        except FileNotFoundError:
            check_live(folder.record(), segment)  # raises if it was truncated or deleted in the meantime
            raise StreamStoreError("a segment's file was removed", where=str(folder.data(segment))) from None

    def create_scope(self, scope: str) -> bool:
        """Make a scope; False if it was there."""
        return scopes.create_scope(self._root, scope)

    def create_stream(self, stream: StreamName, configuration: StreamConfiguration) -> None:
        """Make a stream of segments of equal width."""
        scopes.create_stream(self._folder(stream), configuration)

    def update_stream(
        self, stream: StreamName, configuration: StreamConfiguration, *, was: StreamConfiguration | None = None
    ) -> None:
        """See `StreamStore.update_stream`."""
        folder = self._folder(stream)
        with folder.locked() as record:
            _check_not_sealed(record)
            if record.configuration == configuration:
                return
            if was is not None and was != record.configuration:
                raise StreamChanged(
                    "the stream's configuration was changed concurrently",
                    where=f"{self.uri}/{stream}",
                    todo="Run it again.",
                )
            save_record(folder.path, replace(record, configuration=configuration))

    def scale(self, stream: StreamName, seal: Sequence[SegmentId], ranges: Sequence[KeyRange]) -> Epoch:
        """See `StreamStore.scale`."""
        folder = self._folder(stream)
        with folder.locked() as record:
            _check_not_sealed(record)
            current = record.current
            check_replaces(seal, ranges, current.segments)
            _check_enough(record, len(current.segments) - len(seal) + len(ranges))
            number = max(segment.number for segment in current.segments) + 1
            segments = {segment: held for segment, held in current.segments.items() if segment not in seal}
            for place, index in enumerate(predict_order(ranges)):
                segments[SegmentId(current.number + 1, number + place)] = ranges[index]
            epoch = Epoch(current.number + 1, segments)
            save_record(folder.path, replace(record, epochs=(*record.epochs, epoch)))
            return epoch

    def appender(self, stream: StreamName, segment: SegmentId, *, in_flight: int = 4) -> SegmentAppender:
        """Open a segment for appending, exclusively until the appender is closed or its process ends."""
        appender = LocalAppender(self._folder(stream), segment, in_flight)
        with self._mutex:
            self._appenders.add(appender)
        return appender

    def truncate_segment(self, stream: StreamName, segment: SegmentId, offset: int) -> None:
        """See `StreamStore.truncate_segment`."""
        folder = self._folder(stream)
        with folder.locked() as record:
            info = folder.info(record, segment)
            _check_offset(info, offset, stream)
            if offset > info.start_offset:
                write_state(folder.state(segment), start=offset, write=info.write_offset)
                folder.free(segment, offset)

    def truncate(self, cut: StreamCut) -> None:
        """See `StreamStore.truncate`."""
        folder = self._folder(cut.stream)
        with folder.locked() as record:
            described = record.describe(folder.tail(record))
            if is_before(described, cut, described.head):
                return
            _check_not_sealed(record)
            validate_cut(described, cut)
            for segment, offset in cut.offsets.items():
                _check_offset(folder.info(record, segment), offset, cut.stream)
            shorter = replace(record, head=cut)
            save_record(folder.path, shorter)
            folder.free_passed(shorter)

    def seal(self, stream: StreamName, *, first: Epoch | None = None) -> None:
        """See `StreamStore.seal`."""
        folder = self._folder(stream)
        with folder.locked() as record:
            check_first(record, first)
            if not record.sealed:
                save_record(folder.path, replace(record, sealed=True))

    def delete(self, stream: StreamName, *, first: Epoch | None = None) -> None:
        """See `StreamStore.delete`."""
        scopes.delete_stream(self._folder(stream), first)

    def delete_scope(self, scope: str) -> None:
        """Delete an empty scope."""
        scopes.delete_scope(self._root, scope)

    def close(self) -> None:
        """Close the appenders that are still open."""
        with self._mutex:
            appenders = list(self._appenders)
        for appender in appenders:
            appender.close()

    def _is_own(self, stream: StreamName) -> bool:
        try:
            return is_own(self._folder(stream).record().configuration)
        except StreamStoreError:
            return False  # damaged or gone; using it raises the error

    def _folder(self, stream: StreamName) -> StreamFolder:
        with self._mutex:
            folder = self._folders.get(stream)
            if folder is None:
                if len(self._folders) >= _KEPT_RECORDS:
                    self._folders.clear()
                folder = self._folders[stream] = StreamFolder(self._root, stream)
            return folder


def _check_not_sealed(record: StreamRecord) -> None:
    if record.sealed:
        raise StreamSealed("the stream is sealed and cannot be changed", where=str(record.stream))


def _check_enough(record: StreamRecord, count: int) -> None:
    least = record.configuration.scaling.min_segments
    if count < least:
        raise ScaleRefused(
            f"the scale would leave {count} segments, but the stream's policy requires at least {least}",
            where=str(record.stream),
        )


def _check_offset(info: SegmentInfo, offset: int, stream: StreamName) -> None:
    if offset > info.write_offset:
        raise InvalidCut(
            f"offset {offset} lies beyond the segment, which ends at {info.write_offset}",
            where=info.segment.in_stream(stream),
        )
