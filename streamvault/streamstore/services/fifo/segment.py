"""The segment of a queue: the only one of a stream that a tag marks as a queue."""

from __future__ import annotations

from contextlib import suppress
from typing import Self

from streamvault.common.errors import Conflict
from streamvault.streamstore.errors import StreamExists
from streamvault.streamstore.model import StreamConfiguration, StreamName
from streamvault.streamstore.own import OWN
from streamvault.streamstore.services.segment import OwnSegment
from streamvault.streamstore.store import StreamStore

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
