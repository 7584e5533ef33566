"""The segment store commands used here, by code; `codec` encodes them."""

from __future__ import annotations

import struct
from uuid import UUID

from streamvault.streamstore.pravega.codec import HEADER, Bool, Data, Id, Int32, Int64, Text, WireCommand, command

WIRE_VERSION = 16
OLDEST_WIRE_VERSION = 5

READ_PREFIX = struct.Struct(">q??i")
"""Fields between the segment's name and the data in a `SegmentRead`: offset, at tail, end of segment, length."""

_BLOCK_PREFIX = struct.Struct(">ii16sqqi")
_INT64 = struct.Struct(">q")


@command(-127)
class Hello(WireCommand):
    """The first frame in each direction: the range of wire versions that the sender speaks."""

    high: Int32
    low: Int32


@command(100)
class KeepAlive(WireCommand):
    """Answered by the server with the same at once, whatever else it is busy with."""


@command(1)
class SetupAppend(WireCommand):
    """Opens a segment for a writer on this connection."""

    request_id: Int64
    writer_id: Id
    segment: Text
    token: Text


@command(2)
class AppendSetup(WireCommand):
    """The answer: the last event number this writer stored durably in the segment, or -2^63 if none."""

    request_id: Int64
    segment: Text
    writer_id: Id
    last_event_number: Int64


@command(89)
class ConditionalBlockEnd(WireCommand):
    """Appends bytes if the segment's write offset is the expected one."""

    writer_id: Id
    event_number: Int64
    expected_offset: Int64
    data: Data
    request_id: Int64


@command(7)
class DataAppended(WireCommand):
    """All of the writer's events up to the number are stored."""

    writer_id: Id
    event_number: Int64
    previous_event_number: Int64
    request_id: Int64
    write_offset: Int64


@command(8)
class ConditionalCheckFailed(WireCommand):
    """The expected offset was another than the write offset; nothing was written."""

    writer_id: Id
    event_number: Int64
    request_id: Int64


@command(9)
class ReadSegment(WireCommand):
    """Asks for bytes; at the tail of an open segment the server waits until there are some."""

    segment: Text
    offset: Int64
    length: Int32
    token: Text
    request_id: Int64


@command(10)
class SegmentRead(WireCommand):
    """Bytes from the offset asked for; may be fewer than asked, and at most 2 MiB."""

    segment: Text
    offset: Int64
    at_tail: Bool
    end_of_segment: Bool
    data: Data
    request_id: Int64


@command(11)
class GetStreamSegmentInfo(WireCommand):
    """Asks for a segment's offsets."""

    request_id: Int64
    segment: Text
    token: Text


@command(12)
class StreamSegmentInfo(WireCommand):
    """A segment's offsets; one that is not there is answered too, with `exists` false."""

    request_id: Int64
    segment: Text
    exists: Bool
    sealed: Bool
    deleted: Bool
    last_modified: Int64
    write_offset: Int64
    start_offset: Int64


@command(38)
class TruncateSegment(WireCommand):
    """Moves a segment's start offset."""

    request_id: Int64
    segment: Text
    offset: Int64
    token: Text


@command(39)
class SegmentTruncated(WireCommand):
    """The start offset was moved."""

    request_id: Int64
    segment: Text


@command(58)
class MergeSegments(WireCommand):
    """Moves all of one segment to the end of another, metadata only; the one moved is gone then.

    A repeat moves nothing and is answered as the first time, and so is a source that never was: look at the length.
    """

    request_id: Int64
    target: Text
    source: Text
    token: Text
    attribute_updates: Int32


@command(59)
class SegmentsMerged(WireCommand):
    """The answer, with the target's length now."""

    request_id: Int64
    target: Text
    source: Text
    new_length: Int64


@command(50)
class WrongHost(WireCommand):
    """Another segment store holds the segment now."""

    request_id: Int64
    segment: Text
    correct_host: Text
    trace: Text


@command(51)
class SegmentIsSealed(WireCommand):
    """An append to a sealed segment."""

    request_id: Int64
    segment: Text
    trace: Text
    offset: Int64


@command(52)
class SegmentAlreadyExists(WireCommand):
    """A segment that should be made is there."""

    request_id: Int64
    segment: Text
    trace: Text


@command(53)
class NoSuchSegment(WireCommand):
    """The segment is not there."""

    request_id: Int64
    segment: Text
    trace: Text
    offset: Int64


@command(55)
class InvalidEventNumber(WireCommand):
    """The writer's last stored event number is not the one this connection began from; the server hangs up."""

    writer_id: Id
    request_id: Int64
    trace: Text
    event_number: Int64


@command(56)
class SegmentIsTruncated(WireCommand):
    """The offset lies below the segment's start offset, which is said."""

    request_id: Int64
    segment: Text
    start_offset: Int64
    trace: Text
    offset: Int64


@command(57)
class OperationUnsupported(WireCommand):
    """The server does not do this."""

    request_id: Int64
    operation: Text
    trace: Text


@command(60)
class AuthTokenCheckFailed(WireCommand):
    """The delegation token was refused.

    The request id of a refused `ReadSegment` is that read's *offset*, so do not match it.
    """

    request_id: Int64
    trace: Text
    error_code: Int32


@command(61)
class ErrorMessage(WireCommand):
    """Any other failure of a request."""

    request_id: Int64
    segment: Text
    message: Text
    error_code: Int32


def encode_block(
    writer_id: UUID, event_number: int, expected_offset: int, length: int, request_id: int
) -> tuple[bytes, bytes]:
    """Encode the bytes before and after the data of a `ConditionalBlockEnd` frame, so that data is never copied."""
    size = _BLOCK_PREFIX.size - HEADER.size + length + _INT64.size
    prefix = _BLOCK_PREFIX.pack(ConditionalBlockEnd.code, size, writer_id.bytes, event_number, expected_offset, length)
    return prefix, _INT64.pack(request_id)
