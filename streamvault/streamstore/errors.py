"""Errors of the stream stores.

The base class in `common.errors` determines the exit code; derive new errors from the one that fits the user's view.
"""

from __future__ import annotations

from streamvault.common.errors import Absent, Conflict, Failed, Usage


class StreamStoreError(Failed):
    """Base class of stream store errors."""


class StreamStoreUnavailable(StreamStoreError):
    """The store could not be reached within the retries."""

    transient = True


class AccessDenied(StreamStoreError):
    """The credentials were rejected or lack permission."""


class StoreFull(StreamStoreError):
    """The store is full (an embedded store's disk). Acknowledged data is kept."""


class WireError(StreamStoreError):
    """The server sent an unknown reply or violated the protocol."""


class RequestFailed(StreamStoreError):
    """The store could not complete the request, for a reason without an error of its own."""


class NoSuchScope(Absent, StreamStoreError):
    """The scope does not exist."""


class NoSuchStream(Absent, StreamStoreError):
    """The stream does not exist."""


class GoneBefore(NoSuchStream):
    """A stream that a verb was to delete was gone before the verb had begun."""


class NoSuchSegment(StreamStoreError):
    """The segment does not exist, or was truncated entirely."""


class SegmentSealed(StreamStoreError):
    """The segment is sealed and takes no appends."""


class StreamSealed(StreamStoreError):
    """The stream is sealed and cannot be changed."""


class StreamNotSealed(StreamStoreError):
    """The stream must be sealed before it is deleted."""


class ScaleRefused(StreamStoreError):
    """The scale's ranges do not match those of the sealed segments, or a segment to seal is not open."""


class TransactionEnded(StreamStoreError):
    """The transaction is no longer open: aborted (its lease expired) or already committed."""


class ReaderGroupsNotOffered(Usage):
    """The store does not support reader groups."""


class UnreadableReaderGroup(StreamStoreError):
    """A reader group's state was written by a client that is not known here, or is damaged."""

    retriable = False


class StreamExists(Conflict):
    """The stream already exists."""


class StreamChanged(Conflict):
    """The stream was replaced or reconfigured since the caller read it."""

    @classmethod
    def configured(cls, where: str) -> StreamChanged:
        """Return the error for a stream that has another configuration than the caller read."""
        return cls(
            "the stream's configuration was changed concurrently", where=where, todo="Run the same command again."
        )


class ScopeNotEmpty(Conflict):
    """The scope still has streams and cannot be deleted."""


class StoreBusy(Conflict):
    """Another process is writing (the embedded store allows one writer per segment)."""

    retriable = transient = True


class InvalidName(Usage):
    """A name or URI that the store does not allow."""


class InvalidCut(Usage):
    """A stream cut that names another stream's segment or an invalid offset, or does not cover the key space once."""


class SegmentTruncated(StreamStoreError):
    """A read below the segment's start offset.

    Attributes:
        start_offset: the first readable offset (bytes).
    """

    def __init__(self, what: str, *, where: str = "", todo: str = "", start_offset: int = 0) -> None:
        super().__init__(what, where=where, todo=todo)
        self.start_offset = start_offset


class SegmentTooShort(Conflict, StreamStoreError):
    """A read beyond the segment's write offset: as segments only grow, the stream was replaced by another one."""

    retriable = False


class OffsetConflict(StreamStoreError):
    """A conditional append whose expected offset is not the segment's write offset: there is another writer.

    Attributes:
        write_offset: the segment's current write offset (bytes), as reported by the store.
    """

    def __init__(self, what: str, *, where: str = "", todo: str = "", write_offset: int = -1) -> None:
        super().__init__(what, where=where, todo=todo)
        self.write_offset = write_offset
