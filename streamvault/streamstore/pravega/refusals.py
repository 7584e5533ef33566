"""Errors of the segment stores: those for users, and those that only cause a retry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streamvault.streamstore.errors import (
    NoSuchSegment,
    OffsetConflict,
    RequestFailed,
    SegmentSealed,
    SegmentTruncated,
    StreamStoreError,
    WireError,
)
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.codec import WireCommand


class Moved(Exception):
    """Another segment store holds the segment now."""


class InDoubt(Exception):
    """A block was rejected at its offset: it was written before a connection was lost, or there is another writer."""


class TokenRefused(Exception):
    """The delegation token was rejected or has expired."""


def refusal(answer: WireCommand, where: str) -> StreamStoreError:
    """The error that a segment store's unexpected answer stands for."""
    meaning = _MEANINGS.get(type(answer))
    if meaning is None:
        return WireError(f"the segment store sent an unexpected {type(answer).__name__}", where=where)
    return meaning(answer, where)


def _foreign(_: Any, where: str) -> StreamStoreError:
    return OffsetConflict("another writer appended to the segment", where=where)


def _truncated(answer: Any, where: str) -> StreamStoreError:
    return SegmentTruncated(
        f"the segment was truncated and begins at {answer.start_offset} now",
        where=where,
        start_offset=answer.start_offset,
    )


_MEANINGS: Mapping[type[WireCommand], Callable[[Any, str], StreamStoreError]] = {
    wire.NoSuchSegment: lambda _, where: NoSuchSegment("no such segment", where=where),
    wire.SegmentIsSealed: lambda _, where: SegmentSealed("the segment is sealed", where=where),
    wire.SegmentIsTruncated: _truncated,
    wire.ConditionalCheckFailed: _foreign,
    wire.InvalidEventNumber: _foreign,
    wire.SegmentAlreadyExists: lambda _, where: RequestFailed("the segment exists", where=where),
    wire.OperationUnsupported: lambda answer, where: RequestFailed(
        f"the segment store does not support {answer.operation}", where=where
    ),
    wire.ErrorMessage: lambda answer, where: RequestFailed(
        f"the segment store failed ({answer.message[:200]})", where=where
    ),
}
