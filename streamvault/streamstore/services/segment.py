"""The segment of an internal stream, to which leases, ledgers and queues append their records.

Such a stream is created with the tag `OWN` and has one segment. Of two appends at the same offset one is rejected, so
the store decides between writers; and whoever opened the stream deletes it only if it was not created again.
"""

from __future__ import annotations

from contextlib import suppress

from streamvault.streamstore.appender import SegmentAppender
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream, StreamChanged
from streamvault.streamstore.model import SegmentInfo, StreamCut, StreamDescription
from streamvault.streamstore.store import StreamStore


class OwnSegment:
    """The only segment of an internal stream.

    Attributes:
        store: the stream's store.
        name: the stream.
        segment: its segment; after a deletion, the next stream of this name has another one.
    """

    def __init__(self, store: StreamStore, described: StreamDescription) -> None:
        self.store = store
        self.name = described.name
        self.segment = next(iter(described.tail.offsets))
        self._first = described.epochs[0]

    @property
    def where(self) -> str:
        """The segment's full name, for messages."""
        return f"{self.store.uri}/{self.segment.in_stream(self.name)}"

    def info(self) -> SegmentInfo:
        """Return the segment's current start and write offsets."""
        return self.store.segment_info(self.name, [self.segment])[0]

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes ``[start, end)``; errors as `StreamStore.read`."""
        return self.store.read_bytes(self.name, self.segment, start, end)

    def appender(self) -> SegmentAppender:
        """Open the segment for one record at a time; errors as `StreamStore.appender`."""
        return self.store.appender(self.name, self.segment, in_flight=1)

    def truncate(self, offset: int) -> None:
        """Move the stream's head up to an offset."""
        self.store.truncate(StreamCut(self.name, {self.segment: offset}))

    def delete(self) -> None:
        """Delete the stream that was opened; another one of its name stays."""
        with suppress(NoSuchStream, NoSuchScope, StreamChanged):
            self.store.delete(self.name, first=self._first)
