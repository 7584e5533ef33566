"""What a segment store answers is what our client makes of the answer, and the controller's messages likewise."""

from __future__ import annotations

import pytest

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
