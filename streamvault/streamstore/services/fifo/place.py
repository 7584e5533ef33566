"""The segment of a queue: the only one of a stream that a tag marks as a queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from streamvault.common.errors import Conflict
from streamvault.streamstore.errors import StreamExists
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.own import OWN
from streamvault.streamstore.store import StreamStore

MARK = "streamvault-queue"

ROLLOVER_BYTES = 16 * 1024 * 1024
"""Size at which stored chunks roll over: what is truncated is freed by the chunk."""


class NotAQueue(Conflict):
    """The stream exists but is not a queue, so it is neither written nor truncated."""


class QueueSegment:
    """The segment of a queue, the only one of its stream; `open` it or `make` it."""

    def __init__(self, store: StreamStore, name: StreamName, segment: SegmentId) -> None:
        self.store = store
        self.name = name
        self.segment = segment

    @classmethod
    def open(cls, store: StreamStore, name: StreamName) -> QueueSegment:
        """Open an existing queue.

        Raises:
            NoSuchScope, NoSuchStream: it does not.
            NotAQueue: the stream is something else.
        """
        described = store.describe(name)
        (segment, *more) = described.epochs[-1].segments
        is_queue = {OWN, MARK}.issubset(described.configuration.tags)
        if not is_queue or more or len(described.epochs) > 1 or described.sealed:
            raise NotAQueue(
                "the stream is not a queue",
                where=f"{store.uri}/{name}",
                todo="Name a stream that does not exist yet, or a queue.",
            )
        return cls(store, name, segment)

    @classmethod
    def create(cls, store: StreamStore, name: StreamName) -> QueueSegment:
        """Open a queue; create it and its scope if missing.

        Raises:
            NotAQueue: the stream is something else.
        """
        if not store.exists(name):
            configuration = StreamConfiguration(tags=(OWN, MARK), rollover_bytes=ROLLOVER_BYTES)
            with suppress(StreamExists):
                store.create_stream_and_scope(name, configuration)
        return cls.open(store, name)

    @property
    def where(self) -> str:
        """The segment's full name, for messages."""
        return f"{self.store.uri}/{self.segment.in_stream(self.name)}"

    def info(self) -> SegmentInfo:
        """Return the segment's current start and write offsets."""
        return self.store.segment_info(self.name, [self.segment])[0]

    def outstanding(self) -> int:
        """Return the bytes not yet processed."""
        info = self.info()
        return info.write_offset - info.start_offset

    def read(self, start: int, end: int) -> Iterator[memoryview]:
        """The bytes of a range; see `StreamStore.read`."""
        return self.store.read(self.name, self.segment, start, end)

    def processed(self, offset: int) -> None:
        """Truncate below an offset; other processes see the progress at once."""
        self.store.truncate_segment(self.name, self.segment, offset)

    def settle(self, offset: int) -> None:
        """Move the stream's head up to an offset passed to `processed`."""
        self.store.truncate(StreamCut(self.name, {self.segment: offset}))
