"""The values of a stream: text forms and their round trip, order, and invalid ones."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.common.errors import Problem
from streamvault.streamstore import errors
from streamvault.streamstore.cuts import load_cut
from streamvault.streamstore.errors import InvalidCut, InvalidName, OffsetConflict, SegmentTruncated
from streamvault.streamstore.model import (
    SEGMENT_END,
    Epoch,
    Epochs,
    EventPointer,
    KeyRange,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
PARTS = st.builds(str.__add__, st.sampled_from(LETTERS), st.text(LETTERS + ".-", max_size=254))
NAMES = st.builds(StreamName, PARTS, PARTS)
INT31 = st.integers(0, 2**31 - 1)
SEGMENTS = st.builds(SegmentId, INT31, INT31)
POINTERS = st.builds(EventPointer, NAMES, SEGMENTS, st.integers(0, 2**63 - 1), st.integers(8, 2**31 - 1))
JAVA_CUT = "H4sIAAAAAAAA/zOwKs7IL9DPL0pJLSq2MtIx0DG0MgaSBla6hjqGRsYmOpYIAAAdNCA4LQAAAA=="
"""What the Java client 0.13.0 has printed."""


def java_cut(plain: str) -> str:
    return base64.b64encode(gzip.compress(plain.encode(), mtime=0)).decode()


@given(NAMES)
def test_stream_name_round_trips(name: StreamName) -> None:
    assert StreamName.parse(str(name)) == name


@pytest.mark.parametrize("part", ["", ".", "..", ".a", "-a", "_a", "a_b", "a/b", "a b", "ä", "a\n", "a\0", "a" * 256])
def test_invalid_part_of_a_name_is_refused(part: str) -> None:
    for scope, stream in ((part, "stream"), ("scope", part)):
        with pytest.raises(InvalidName):
            StreamName(scope, stream)


@pytest.mark.parametrize("text", ["", "scope", "scope/", "/stream", "a/b/c"])
def test_invalid_stream_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        StreamName.parse(text)


@given(SEGMENTS)
def test_segment_round_trips(segment: SegmentId) -> None:
    assert SegmentId.parse(str(segment)) == segment
    assert SegmentId.of(segment.value) == segment


@given(SEGMENTS, SEGMENTS)
def test_segments_are_ordered_by_epoch_and_then_number(a: SegmentId, b: SegmentId) -> None:
    assert (a < b) == (a.value < b.value) == ((a.epoch, a.number) < (b.epoch, b.number))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.#epoch.",
        ".#epoch.1",
        "01.#epoch.1",
        "1.#epoch.01",
        "-1.#epoch.0",
        "2147483648.#epoch.0",
        "1.#epoch.1\n",
        "1.epoch.1",
        "\u0661.#epoch.1",
    ],
)
def test_invalid_segment_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        SegmentId.parse(text)


@given(POINTERS)
def test_pointer_round_trips(pointer: EventPointer) -> None:
    assert EventPointer.parse(str(pointer)) == pointer


def test_pointer_is_written_as_by_the_java_client() -> None:
    pointer = EventPointer(StreamName("scope", "stream"), SegmentId(2, 5), offset=1234, length=108)
    assert str(pointer) == "scope/stream/5.#epoch.2:1234-108"


@given(POINTERS, POINTERS)
def test_pointers_of_a_stream_are_in_the_streams_order(a: EventPointer, b: EventPointer) -> None:
    b = EventPointer(a.stream, b.segment, b.offset, b.length)
    assert (a < b) == ((a.segment, a.offset, a.length) < (b.segment, b.offset, b.length))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "scope/stream/0.#epoch.0",
        "scope/stream/0.#epoch.0:1",
        "scope/stream/0.#epoch.0:1-7",
        "scope/stream/0.#epoch.0:-1-8",
        "scope/stream/0.#epoch.0:01-8",
        "scope/stream/0.#epoch.0:1-08",
        "scope/stream/0.#epoch.0:1-8 ",
        "scope/stream/0.#epoch.0:9223372036854775808-8",
        "scope/stream/0.#epoch.0:0-2147483648",
        "stream/0.#epoch.0:1-8",
        "a/b/c/0.#epoch.0:1-8",
    ],
)
def test_invalid_pointer_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        EventPointer.parse(text)


@given(NAMES, st.dictionaries(SEGMENTS, st.integers(0, 2**63 - 1), min_size=1, max_size=5))
def test_cut_round_trips(name: StreamName, offsets: dict[SegmentId, int]) -> None:
    cut = StreamCut(name, offsets)
    assert StreamCut.from_json(cut.to_json()) == StreamCut.from_json(json.dumps(cut.to_json()), name) == cut
    assert StreamCut.from_json(MappingProxyType(cut.to_json())) == cut
    assert list(cut.offsets) == sorted(offsets)
    assert hash(cut) == hash(StreamCut(name, dict(reversed(offsets.items()))))
    assert pickle.loads(pickle.dumps(cut)) == cut


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "at least one entry"),
        ("{}", "at least one entry"),
        ("null", "at least one entry"),
        ('{"0.#epoch.0": 1}', "is not a segment name"),
        ('{"a/b/0.#epoch.x": 1}', "is not a segment name"),
        ('{"a/b/0.#epoch.0": -1}', "not a non-negative integer"),
        ('{"a/b/0.#epoch.0": 1.5}', "not a non-negative integer"),
        ('{"a/b/0.#epoch.0": true}', "not a non-negative integer"),
        ('{"a/b/0.#epoch.0": "1"}', "not a non-negative integer"),
        ('{"a/b/0.#epoch.0": 9223372036854775808}', "not a non-negative integer"),
        ('{"a/b/0.#epoch.0": 0, "a/c/1.#epoch.0": 0}', "segment of another stream"),
        (JAVA_CUT[:-8], "not a whole stream cut of the Java client"),
        (JAVA_CUT[:-8] + "????????", "not a whole stream cut of the Java client"),
        (java_cut("1:a/b:0:0:0"), "not a whole stream cut of the Java client"),
        (java_cut("0:a/b:0:0"), "not a whole stream cut of the Java client"),
        (java_cut("0:a/b:0,1:0,0:1"), "not a whole stream cut of the Java client"),
        (java_cut("0:a/b:-1:0:0"), "not a whole stream cut of the Java client"),
        (java_cut("0:a/b:" + "0" * 2**25), "not a whole stream cut of the Java client"),
        (java_cut("0:a:0:0:0"), "is not a segment name"),
        (java_cut("0:a/b:0:0:-1"), "not a non-negative integer"),
    ],
)
def test_invalid_cut_is_refused(value: str, message: str) -> None:
    with pytest.raises(InvalidCut, match=message) as caught:
        StreamCut.from_json(value)
    assert caught.value.exit_code == 2
    with pytest.raises(InvalidCut):
        StreamCut.from_json(value, StreamName("other", "stream"))


def test_cut_of_the_java_client_is_read() -> None:
    cut = {"shop/orders/0.#epoch.0": 1234, "shop/orders/1.#epoch.0": 99999999999, "shop/orders/2.#epoch.3": -1}
    assert StreamCut.from_json(f"{JAVA_CUT}\n", ends=True).to_json() == cut
    assert load_cut(JAVA_CUT, "--from") == cut
    with pytest.raises(InvalidCut, match="segment of another stream"):
        StreamCut.from_json(JAVA_CUT, StreamName("shop", "other"), ends=True)


def test_end_of_a_segment_is_an_offset_only_where_it_is_asked_for() -> None:
    cut = {"a/b/0.#epoch.0": SEGMENT_END}
    assert StreamCut.from_json(cut, ends=True).to_json() == cut
    with pytest.raises(InvalidCut, match="not a non-negative integer"):
        StreamCut.from_json({"a/b/0.#epoch.0": SEGMENT_END - 1}, ends=True)


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.5), (0.6, 0.5), (-0.1, 0.5), (0.5, 1.1), (float("nan"), 1.0)])
def test_invalid_key_range_is_refused(low: float, high: float) -> None:
    with pytest.raises(InvalidName):
        KeyRange(low, high)


def test_ranges_overlap_where_a_key_falls_into_both() -> None:
    assert KeyRange(0.0, 0.5).overlaps(KeyRange(0.4, 0.6))
    assert not KeyRange(0.0, 0.5).overlaps(KeyRange(0.5, 0.6))


def test_description_knows_the_epoch_of_a_segment() -> None:
    a, b, c = SegmentId(0, 0), SegmentId(0, 1), SegmentId(1, 2)
    left, right = KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)
    name = StreamName("scope", "stream")
    epochs = Epochs([Epoch(0, {b: right, a: left}), Epoch(1, {b: right, c: left})])
    assert list(epochs[1].segments) == [c, b]  # in order of the key ranges
    cut = StreamCut(name, {a: 0, b: 0})
    described = StreamDescription(name, StreamConfiguration(), epochs, cut, cut, sealed=False)
    assert described.ranges() == {a: left, b: right, c: left}
    assert list(described.ranges()) == [a, b, c]
    assert described.epochs.lives == ((a, left, 0, 0), (b, right, 0, 1), (c, left, 1, 1))


def test_tags_are_a_set() -> None:
    assert StreamConfiguration(tags=("b", "a", "b")) == StreamConfiguration(tags=("a", "b"))


@pytest.mark.parametrize("kind", [one for one in vars(errors).values() if isinstance(one, type)])
def test_errors_can_be_pickled(kind: type[Problem]) -> None:
    error = pickle.loads(pickle.dumps(kind("what", where="where", todo="What to do.")))
    assert type(error) is kind
    assert str(error) == "what: where. What to do."


def test_pickled_errors_keep_their_fields() -> None:
    assert pickle.loads(pickle.dumps(SegmentTruncated("x", start_offset=7))).start_offset == 7
    assert pickle.loads(pickle.dumps(OffsetConflict("x", write_offset=9))).write_offset == 9
