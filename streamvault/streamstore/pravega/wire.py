"""The segment store commands that are sent or answered here, and how they are encoded as frames.

A command is a class whose annotations define its payload. A frame is an int32 code, an int32 payload length and the
payload, big-endian. Payloads may be longer than defined here (newer servers append fields), but not shorter.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_args, get_type_hints
from uuid import UUID

from streamvault.streamstore.errors import WireError

HEADER = struct.Struct(">ii")
"""Code and payload length (bytes), before every payload."""

MAX_PAYLOAD_BYTES = 0x00FFFFFF
"""The longest payload either side sends."""

Int32 = Annotated[int, "i"]
Int64 = Annotated[int, "q"]
Bool = Annotated[bool, "?"]
Text = Annotated[str, "text"]
"""uint16 length and UTF-8; names and tokens are ASCII, a server's stack trace may be anything."""
Id = Annotated[UUID, "id"]
Data = Annotated[bytes, "data"]
"""int32 length and bytes."""
Rest = Annotated[bytes, "rest"]
"""All bytes up to the payload's end; the last field."""


@dataclass(frozen=True)
class WireCommand:
    """Base of all commands; subclasses are frozen dataclasses registered by their code."""

    code: ClassVar[int]


_C = TypeVar("_C", bound=WireCommand)
_COMMANDS: dict[int, type[WireCommand]] = {}
_LAYOUTS: dict[int, tuple[tuple[str, str], ...]] = {}


@dataclass_transform(frozen_default=True, field_specifiers=())
def command(code: int) -> Callable[[type[_C]], type[_C]]:
    """Make a class the command of this code."""

    def register(kind: type[_C]) -> type[_C]:
        made = dataclass(frozen=True)(kind)
        made.code = code
        _COMMANDS[code] = made
        kinds = {name: get_args(hint)[1:] for name, hint in get_type_hints(made, include_extras=True).items()}
        _LAYOUTS[code] = tuple((field.name, kinds[field.name][0]) for field in fields(made))
        return made

    return register


def encode(one: WireCommand) -> bytes:
    """The frame of a command."""
    payload = b"".join([_WRITERS[kind](getattr(one, name)) for name, kind in _LAYOUTS[one.code]])
    return HEADER.pack(one.code, len(payload)) + payload


def decode(code: int, payload: bytes | bytearray | memoryview) -> WireCommand:
    """The command of a frame.

    Raises:
        WireError: the code is unknown, or the payload is too short.
    """
    kind = _COMMANDS.get(code)
    if kind is None:
        raise WireError(f"the other side sent an unknown command (type {code})")
    values: dict[str, Any] = {}
    position = 0
    try:
        for name, field_kind in _LAYOUTS[code]:
            values[name], position = _READERS[field_kind](payload, position)
    except struct.error:
        raise WireError(f"the other side sent a truncated {kind.__name__} ({len(payload)} bytes)") from None
    return kind(**values)


def is_command(code: int) -> bool:
    """Return whether a frame with this code is a command that is known here."""
    return code in _COMMANDS


def _packed(form: str) -> tuple[Callable[[Any], bytes], Callable[[Any, int], tuple[Any, int]]]:
    packer = struct.Struct(f">{form}")
    return packer.pack, lambda payload, at: (packer.unpack_from(payload, at)[0], at + packer.size)


def _take(payload: Any, at: int, length: int) -> bytes:
    if length < 0 or at + length > len(payload):
        raise struct.error("the payload is too short")
    return bytes(payload[at : at + length])


def _write_text(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > 0xFFFF:
        raise WireError(f"a text of {len(raw)} bytes is too long for a frame (at most 65,535)")
    return len(raw).to_bytes(2, "big") + raw


def _read_text(payload: Any, at: int) -> tuple[str, int]:
    end = at + 2 + int.from_bytes(_take(payload, at, 2), "big")
    return _take(payload, at + 2, end - at - 2).decode(errors="replace"), end


def _read_data(payload: Any, at: int) -> tuple[bytes, int]:
    end = at + 4 + int.from_bytes(_take(payload, at, 4), "big", signed=True)
    return _take(payload, at + 4, end - at - 4), end


_PACKED = {form: _packed(form) for form in ("i", "q", "?")}
_WRITERS: Mapping[str, Callable[[Any], bytes]] = {
    **{form: pair[0] for form, pair in _PACKED.items()},
    "text": _write_text,
    "data": lambda data: len(data).to_bytes(4, "big") + data,
    "rest": lambda value: value,
    "id": lambda value: value.bytes,
}
_READERS: Mapping[str, Callable[[Any, int], tuple[Any, int]]] = {
    **{form: pair[1] for form, pair in _PACKED.items()},
    "text": _read_text,
    "data": _read_data,
    "rest": lambda payload, at: (bytes(payload[at:]), len(payload)),
    "id": lambda payload, at: (UUID(bytes=_take(payload, at, 16)), at + 16),
}


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


@command(-1)
class Padding(WireCommand):
    """Fills up a block of appends; means nothing."""


@command(3)
class AppendBlock(WireCommand):
    """Java's writer: the events of a block, whose `AppendBlockEnd` says how many bytes are whole events.

    The last event may only begin here, as a frame with the code -2; the rest of it is in the `AppendBlockEnd`.
    """

    writer_id: Id
    data: Rest


@command(4)
class AppendBlockEnd(WireCommand):
    """Ends an `AppendBlock`, or is an append by itself."""

    writer_id: Id
    whole_bytes: Int32
    data: Data
    events: Int32
    event_number: Int64
    request_id: Int64


@command(5)
class ConditionalAppend(WireCommand):
    """Appends one event, of which this is the payload, if the segment's write offset is the expected one."""

    writer_id: Id
    event_number: Int64
    expected_offset: Int64
    type: Int32
    data: Data
    request_id: Int64


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


@command(34)
class GetSegmentAttribute(WireCommand):
    """Asks for a segment's attribute."""

    request_id: Int64
    segment: Text
    attribute: Id
    token: Text


@command(35)
class SegmentAttribute(WireCommand):
    """The answer; -2^63 if it was never set."""

    request_id: Int64
    value: Int64


@command(36)
class UpdateSegmentAttribute(WireCommand):
    """Sets a segment's attribute if it has the expected value."""

    request_id: Int64
    segment: Text
    attribute: Id
    value: Int64
    expected: Int64
    token: Text


@command(37)
class SegmentAttributeUpdated(WireCommand):
    """The answer; not a success if the attribute had another value."""

    request_id: Int64
    success: Bool


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


def encode_read(segment: str, offset: int, length: int, request_id: int, *, end: bool = False) -> tuple[bytes, bytes]:
    """Encode the bytes before and after the data of a `SegmentRead` frame; without data, it is at the tail.

    ``end`` is whether nothing will ever follow.
    """
    name = segment.encode()
    size = 2 + len(name) + READ_PREFIX.size + length + _INT64.size
    head = HEADER.pack(SegmentRead.code, size) + len(name).to_bytes(2, "big") + name
    return head + READ_PREFIX.pack(offset, not length, end and not length, length), _INT64.pack(request_id)


def unsupported(code: int, payload: bytes, why: str) -> OperationUnsupported:
    """Return the answer to a frame whose command is not served; nearly all begin with the request's id.

    Args:
        code: the frame's code.
        payload: the frame's payload.
        why: what the client's user should know.
    """
    request = _INT64.unpack_from(payload)[0] if len(payload) >= _INT64.size else 0
    kind = _COMMANDS.get(code)
    return OperationUnsupported(request, kind.__name__ if kind else f"command {code}", why)
