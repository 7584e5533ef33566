"""The segment store's frames: every command survives a round trip, and the bytes are those of the protocol.

What a segment store answers is what our client makes of the answer, and the controller's messages likewise.
"""

from __future__ import annotations

import struct
from dataclasses import fields
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.common.errors import Damaged, Problem
from streamvault.streamstore.errors import (
    NoSuchSegment,
    NoSuchStream,
    RequestFailed,
    SegmentSealed,
    SegmentTruncated,
    WireError,
)
from streamvault.streamstore.model import KeyRange, SegmentId, StreamName
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.controller import cut_from_map, cut_message, ranges_from, ranges_message
from streamvault.streamstore.pravega.segments import answer_to, refusal
from streamvault.streamstore.pravega.wire import _COMMANDS, _LAYOUTS, HEADER, WireCommand, decode, encode

VALUES = {
    "i": st.integers(-(2**31), 2**31 - 1),
    "q": st.integers(-(2**63), 2**63 - 1),
    "?": st.booleans(),
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    "data": st.binary(max_size=200),
    "rest": st.binary(max_size=200),
    "id": st.uuids(),
}
WRITER = UUID("00112233-4455-6677-8899-aabbccddeeff")


@st.composite
def commands(draw: st.DrawFn) -> WireCommand:
    code = draw(st.sampled_from(sorted(_COMMANDS)))
    return _COMMANDS[code](**{name: draw(VALUES[kind]) for name, kind in _LAYOUTS[code]})


@given(commands(), st.binary(max_size=20))
def test_commands_round_trip_with_fields_of_newer_servers(command: WireCommand, more: bytes) -> None:
    frame = encode(command)
    code, length = HEADER.unpack_from(frame)
    assert length == len(frame) - HEADER.size
    assert decode(code, frame[HEADER.size :]) == command
    if "rest" not in dict(_LAYOUTS[code]).values():  # such a field takes whatever follows
        assert decode(code, memoryview(frame + more)[HEADER.size :]) == command


@given(commands(), st.data())
def test_truncated_frame_is_an_error(command: WireCommand, data: st.DataObject) -> None:
    payload = encode(command)[HEADER.size :]
    if not payload or "rest" in dict(_LAYOUTS[command.code]).values():
        return
    short = payload[: data.draw(st.integers(0, len(payload) - 1))]
    with pytest.raises(WireError, match="truncated"):
        decode(command.code, short)


@given(st.uuids(), VALUES["q"], VALUES["q"], st.binary(max_size=300), VALUES["q"])
def test_block_encoded_without_copying_is_the_same_frame(
    writer: UUID, number: int, offset: int, data: bytes, request: int
) -> None:
    prefix, suffix = wire.encode_block(writer, number, offset, len(data), request)
    assert prefix + data + suffix == encode(wire.ConditionalBlockEnd(writer, number, offset, data, request))


def test_unknown_type_is_named() -> None:
    with pytest.raises(WireError, match="type 4711"):
        decode(4711, b"")


def test_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(WireError, match="too long"):
        encode(wire.GetStreamSegmentInfo(1, "a/b/0.#epoch.0", "t" * 65536))


@pytest.mark.parametrize(
    ("command", "frame"),
    [
        (wire.Hello(16, 5), "ffffff81 00000008 00000010 00000005"),
        (wire.KeepAlive(), "00000064 00000000"),
        (
            wire.SetupAppend(7, WRITER, "s", "t"),
            "00000001 0000001e 0000000000000007 00112233445566778899aabbccddeeff 0001 73 0001 74",
        ),
        (
            wire.ReadSegment("s", 256, 1024, "", 3),
            "00000009 00000019 0001 73 0000000000000100 00000400 0000 0000000000000003",
        ),
        (
            wire.SegmentRead("s", 256, True, False, b"\x01\x02", 3),
            "0000000a 0000001b 0001 73 0000000000000100 01 00 00000002 0102 0000000000000003",
        ),
        (
            wire.ConditionalBlockEnd(WRITER, 12, 10, b"\xff\xee", 9),
            """00000059 0000002e 00112233445566778899aabbccddeeff 000000000000000c 000000000000000a 00000002 ffee
            0000000000000009""",
        ),
        (
            wire.DataAppended(WRITER, 12, 10, 9, 12),
            """00000007 00000030 00112233445566778899aabbccddeeff 000000000000000c 000000000000000a 0000000000000009
            000000000000000c""",
        ),
        (wire.AuthTokenCheckFailed(5, "", 1), "0000003c 0000000e 0000000000000005 0000 00000001"),
    ],
)
def test_encoded_bytes_are_those_of_the_protocol(command: WireCommand, frame: str) -> None:
    assert encode(command) == bytes.fromhex(frame)


def test_data_of_an_answer_begins_where_the_reader_looks() -> None:
    frame = encode(wire.SegmentRead("a/b/0.#epoch.0", 5, False, True, b"data", 9))
    at = HEADER.size + 2 + len("a/b/0.#epoch.0")
    assert wire.READ_PREFIX.unpack_from(frame, at) == (5, False, True, 4)
    assert frame[at + wire.READ_PREFIX.size :][:4] == b"data"
    assert struct.unpack(">q", frame[-8:]) == (9,)


def test_every_command_has_its_own_code_and_a_description() -> None:
    for code, kind in _COMMANDS.items():
        assert kind.code == code
        assert kind.__doc__
        assert [name for name, _ in _LAYOUTS[code]] == [one.name for one in fields(kind)]


@given(st.text("abc/.#0", max_size=20), VALUES["q"], st.binary(max_size=300), VALUES["q"], st.booleans())
def test_data_encoded_without_copying_is_the_same_frame(
    name: str, offset: int, data: bytes, request: int, end: bool
) -> None:
    head, tail = wire.encode_read(name, offset, len(data), request, end=end)
    assert head + data + tail == encode(wire.SegmentRead(name, offset, not data, end and not data, data, request))


@pytest.mark.parametrize(
    ("code", "payload", "answer"),
    [
        (70, (9).to_bytes(8, "big") + b"more", wire.OperationUnsupported(9, "command 70", "it is read only")),
        (38, (9).to_bytes(8, "big"), wire.OperationUnsupported(9, "TruncateSegment", "it is read only")),
        (70, b"short", wire.OperationUnsupported(0, "command 70", "it is read only")),
    ],
)
def test_a_command_that_is_not_served_has_an_answer(code: int, payload: bytes, answer: WireCommand) -> None:
    assert wire.unsupported(code, payload, "it is read only") == answer


NAME = StreamName("shop", "orders")
SEGMENT = "shop/orders/0.#epoch.0"


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (NoSuchSegment("gone"), NoSuchSegment, "no such segment"),
        (NoSuchStream("gone"), RequestFailed, "the segment store failed (gone)"),
        (SegmentSealed("sealed"), SegmentSealed, "sealed"),
        (
            Damaged("the bytes differ", todo="Run 'streamvault check' on the archive."),
            RequestFailed,
            "the segment store failed (the bytes differ. Run 'streamvault check' on the archive.)",
        ),
    ],
)
def test_an_error_arrives_at_the_client(error: Problem, kind: type[Problem], text: str) -> None:
    found = refusal(answer_to(error, 7, SEGMENT, 5), SEGMENT)
    assert type(found) is kind
    assert text in str(found)


def test_a_client_learns_where_a_truncated_segment_begins() -> None:
    found = refusal(answer_to(SegmentTruncated("truncated", start_offset=40), 7, SEGMENT, 5), SEGMENT)
    assert isinstance(found, SegmentTruncated)
    assert found.start_offset == 40


def test_a_client_says_what_is_not_supported_and_why() -> None:
    answer = wire.OperationUnsupported(7, "ConditionalBlockEnd", "the stream is read only\nat Server.java")
    what = "the segment store does not support ConditionalBlockEnd (the stream is read only): here"
    assert str(refusal(answer, "here")) == what
    assert str(refusal(wire.OperationUnsupported(7, "x", ""), "here")) == "the segment store does not support x: here"


def test_ranges_and_cuts_round_trip() -> None:
    ranges = {SegmentId(0, 0): KeyRange(0.0, 0.5), SegmentId(2, 3): KeyRange(0.5, 1.0)}
    info = pb.StreamInfo(scope="shop", stream="orders")
    message = ranges_message(info, ranges, "token")
    assert ranges_from(message.segmentRanges) == ranges
    assert message.delegationToken == "token"
    cut = cut_from_map(NAME, {SegmentId(2, 3).value: 17, 0: 4})
    assert cut.offsets == {SegmentId(0, 0): 4, SegmentId(2, 3): 17}
    assert cut_from_map(NAME, cut_message(cut).cut) == cut
    with pytest.raises(WireError, match="makes no sense"):
        cut_from_map(NAME, {-1: 0})
