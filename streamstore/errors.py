"""What a stream store can refuse, by name.

The command line maps the base class to its exit code, so a new error belongs below the base that says how a user has
to see it (`common.errors`).
"""

from __future__ import annotations

from common.errors import Conflict, Failed, Problem, Usage

__all__ = [
    "AccessDenied",
    "InvalidCut",
    "InvalidName",
    "NoSuchScope",
    "NoSuchSegment",
    "NoSuchStream",
    "OffsetConflict",
    "RequestFailed",
    "ScaleRefused",
    "ScopeNotEmpty",
    "SegmentSealed",
    "SegmentTruncated",
    "StoreBusy",
    "StoreFull",
    "StreamChanged",
    "StreamExists",
    "StreamNotSealed",
    "StreamSealed",
    "StreamStoreError",
    "StreamStoreUnavailable",
    "TransactionEnded",
    "TransactionsNotOffered",
    "WireError",
]


class StreamStoreError(Failed):
    """Base of what goes wrong at a stream store."""


class StreamStoreUnavailable(StreamStoreError):
    """The store does not answer, or went away and did not come back within the retries."""


class AccessDenied(StreamStoreError):
    """The store refused the credentials, or they do not allow this."""


class StoreFull(StreamStoreError):
    """The store has no room left (an embedded store's disk is full). What was acknowledged is kept."""


class WireError(StreamStoreError):
    """An answer of the server that this client does not know, or that breaks the protocol."""


class RequestFailed(StreamStoreError):
    """The store took the request and could not do it (now), with no better name for the reason."""


class NoSuchScope(StreamStoreError):
    """The scope does not exist."""

    retriable = False


class NoSuchStream(StreamStoreError):
    """The stream does not exist."""

    retriable = False


class NoSuchSegment(StreamStoreError):
    """The segment does not exist, or was truncated away whole."""


class SegmentSealed(StreamStoreError):
    """An append to a segment that is sealed."""


class StreamSealed(StreamStoreError):
    """A change to a stream that is sealed for ever."""


class StreamNotSealed(StreamStoreError):
    """A stream that should be deleted and is not sealed yet."""


class ScaleRefused(StreamStoreError):
    """The scale's ranges do not replace what it seals, or a segment it seals is not open in the current epoch."""


class TransactionEnded(StreamStoreError):
    """A transaction that should be open was aborted (its lease is over), or is committed already."""


class TransactionsNotOffered(Usage):
    """The store has no transactions."""


class StreamExists(Conflict):
    """The stream that should be created exists."""


class StreamChanged(Conflict):
    """The stream is not the one that the caller saw, or somebody else has configured it since."""


class ScopeNotEmpty(Conflict):
    """The scope that should be deleted still has streams."""


class StoreBusy(Conflict):
    """Another process writes there (the embedded store allows one writer a segment)."""

    retriable = True


class InvalidName(Usage):
    """A name or URI that the store does not allow."""


class InvalidCut(Usage):
    """A stream cut that names a foreign segment, an impossible offset, or does not cover the key space once."""


class SegmentTruncated(StreamStoreError):
    """A read below the segment's start offset.

    Attributes:
        start_offset: the first offset (bytes) that can still be read.
    """

    def __init__(self, what: str, *, where: str = "", todo: str = "", start_offset: int = 0) -> None:
        super().__init__(what, where=where, todo=todo)
        self.start_offset = start_offset

    def __reduce__(self) -> tuple[object, ...]:
        return _truncated, (type(self), self.what, self.where, self.todo, self.start_offset)


def _truncated(kind: type[SegmentTruncated], what: str, where: str, todo: str, start_offset: int) -> Problem:
    return kind(what, where=where, todo=todo, start_offset=start_offset)


class OffsetConflict(StreamStoreError):
    """A conditional append whose expected offset is not the segment's write offset: somebody else wrote.

    Attributes:
        write_offset: the segment's write offset (bytes) now, as the store reports it.
    """

    def __init__(self, what: str, *, where: str = "", todo: str = "", write_offset: int = -1) -> None:
        super().__init__(what, where=where, todo=todo)
        self.write_offset = write_offset

    def __reduce__(self) -> tuple[object, ...]:
        return _conflict, (type(self), self.what, self.where, self.todo, self.write_offset)


def _conflict(kind: type[OffsetConflict], what: str, where: str, todo: str, write_offset: int) -> Problem:
    return kind(what, where=where, todo=todo, write_offset=write_offset)
