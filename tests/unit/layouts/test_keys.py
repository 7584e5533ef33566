"""Keys: exact names, order, round trips, rejected input."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.layouts import keys
from streamvault.layouts.keys import GenerationSpan
from streamvault.objectstore.store import InvalidKey
from streamvault.streamstore.model import SegmentId

INT31 = 2**31 - 1
INT63 = 2**63 - 1
ONE = GenerationSpan.of(7)


def int31(low: int = 0) -> st.SearchStrategy[int]:
    # numbers of every width, and the limits; otherwise nearly all would have ten digits
    widths = [st.integers(low, min(10**w, INT31)) for w in range(1, 11) if 10**w > low]
    return st.one_of(st.sampled_from([low, INT31, INT31 - 1]), *widths)


offsets = st.one_of(
    st.sampled_from([0, 9, 10, INT63 - INT31]), *[st.integers(0, min(10**w, INT63 - INT31)) for w in range(1, 20)]
)
segments = st.builds(SegmentId, int31(), int31())
events = st.tuples(segments, offsets, int31(8))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (keys.EVENT_KEYS.folder(SegmentId(1, 2)), "events/0000000001.0000000002/"),
        (keys.event_key(SegmentId(1, 2), 3, 12), "events/0000000001.0000000002/0000000000000000003-0000000012"),
        (
            keys.event_key(SegmentId(INT31, INT31), INT63 - 8, 8),
            "events/2147483647.2147483647/9223372036854775799-0000000008",
        ),
        (keys.chunk_key(SegmentId(1, 2), 3, 4), "chunks/0000000001.0000000002/0000000000000000003-0000000000000000004"),
        (keys.manifest_key(ONE), "_manifest/0000000007.json"),
        (keys.ranges_key(ONE), "_manifest/0000000007.ranges.parquet"),
        (keys.checked_key(ONE), "_manifest/0000000007.checked.json"),
        (keys.blocks_key(ONE), "_manifest/0000000007.blocks.json"),
        (keys.decision_key(7), "_manifest/decisions/0000000007.json"),
        (keys.truncation_key(7), "_manifest/truncations/0000000007.json"),
        (keys.plan_key(ONE), "_work/0000000007/plan.json"),
        (keys.row_key(ONE, SegmentId(1, 2), 3), "_work/0000000007/0000000001.0000000002/0000000000000000003.json"),
    ],
)
def test_names_are_exactly_those_of_the_format(made: str, expected: str) -> None:
    assert made == expected


@given(events, events)
def test_byte_order_of_event_keys_is_the_streams_order(
    a: tuple[SegmentId, int, int], b: tuple[SegmentId, int, int]
) -> None:
    key_a, key_b = keys.event_key(*a).encode(), keys.event_key(*b).encode()
    if a[:2] != b[:2]:
        assert (key_a < key_b) == (a[:2] < b[:2])
    assert (key_a == key_b) == (a == b)


@given(events)
def test_event_keys_round_trip(event: tuple[SegmentId, int, int]) -> None:
    key = keys.event_key(*event)
    parsed = keys.EVENT_KEYS.parse(key)
    assert parsed == event
    assert parsed.end == event[1] + event[2]
    assert key.startswith(keys.EVENT_KEYS.folder(event[0]))
    assert keys.parse_segment(keys.segment_name(event[0])) == event[0]


@given(segments, offsets, st.integers(1, INT31 + 10))
def test_chunk_keys_round_trip(segment: SegmentId, offset: int, length: int) -> None:
    offset = min(offset, 2**63 - 1 - length)
    assert keys.CHUNK_KEYS.parse(keys.chunk_key(segment, offset, length)) == (segment, offset, length)


@given(int31(), segments, offsets)
def test_work_and_manifest_keys_round_trip(generation: int, segment: SegmentId, offset: int) -> None:
    span = GenerationSpan.of(generation)
    assert keys.parse_row(keys.row_key(span, segment, offset)) == (span, segment, offset, 1)
    again = keys.row_key(span, segment, offset, attempt=2)
    assert keys.parse_row(again) == (span, segment, offset, 2)
    assert again.startswith(keys.work_folder(span))
    assert keys.parse_row(again.replace("/0002/", "/0001/")) is None
    assert keys.parse_row(keys.plan_key(span, attempt=2)) is keys.parse_row(keys.ended_key(span, 2)) is None
    assert keys.parse_record(keys.manifest_key(span)) == (span, "manifest")
    assert keys.parse_record(keys.ranges_key(span)) == (span, "ranges")
    assert keys.parse_row(keys.plan_key(span)) is None


@given(st.integers(1, keys.MAX_INT31 - 1), segments, offsets)
def test_keys_of_merged_generations_round_trip(first: int, segment: SegmentId, offset: int) -> None:
    for last in {first + 1, (first + keys.MAX_INT31 + 1) // 2, keys.MAX_INT31}:
        merged, plain = GenerationSpan(first, last), GenerationSpan.of(last)
        made = {"manifest": keys.manifest_key, "ranges": keys.ranges_key, "checked": keys.checked_key}
        for kind, key in (made | {"blocks": keys.blocks_key}).items():
            assert keys.parse_record(key(merged)) == (merged, kind)
            assert keys.parse_record(key(plain)) == (plain, kind)
        assert keys.parse_row(keys.row_key(merged, segment, offset)) == (merged, segment, offset, 1)
        assert keys.parse_work(keys.work_folder(merged).split("/")[1]) == merged
        assert keys.parse_work(keys.work_folder(plain).split("/")[1]) == plain
        assert keys.parse_row(keys.plan_key(merged)) is None
        with pytest.raises(InvalidKey):
            keys.manifest_key(GenerationSpan(last, first))


@pytest.mark.parametrize(
    "key",
    [
        "_manifest/0000000002-0000000002.json",
        "_manifest/0000000001-0000000002.json",
        "_manifest/0000000002-0000000000.json",
        "_manifest/2147483648-0000000001.json",
        "_manifest/0000000002-1.json",
        "_manifest/2147483648.json",
        "_manifest/000000001.json",
        "_manifest/0000000001.json~",
        "_manifest/0000000002-0000000001.dropped.json",
        "_manifest/decisions/0000000002.json",
    ],
)
def test_inexact_key_of_a_generation_is_foreign(key: str) -> None:
    assert keys.parse_record(key) is None


@given(int31())
def test_each_record_is_parsed_by_its_own_parser_only(generation: int) -> None:
    decision = keys.decision_key(generation)
    assert keys.parse_decision(decision) == generation
    assert keys.parse_record(decision) is None
    for make in (keys.manifest_key, keys.ranges_key, keys.checked_key, keys.blocks_key):
        assert keys.parse_decision(make(GenerationSpan.of(generation))) is None
        assert parse_nothing_else(make(GenerationSpan.of(generation)))
    assert parse_nothing_else(decision)


def parse_nothing_else(key: str) -> bool:
    return not any(parse(key) for parse in (keys.EVENT_KEYS.parse, keys.CHUNK_KEYS.parse, keys.parse_row))


@given(segments, offsets, int31(8))
def test_listing_bound_sorts_between_its_neighbours(segment: SegmentId, offset: int, length: int) -> None:
    bound = keys.EVENT_KEYS.after(segment, offset)
    assert bound < keys.event_key(segment, offset, 8)
    assert bound < keys.event_key(segment, offset, length)
    if offset:
        assert bound > keys.event_key(segment, offset - 1, INT31)
    assert keys.CHUNK_KEYS.after(segment, offset) < keys.chunk_key(segment, offset, 1)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "events/0000000001.0000000002/0000000000000000003-0000000012\n",
        "events/0000000001.0000000002/0000000000000000003-0000000012/",
        "/events/0000000001.0000000002/0000000000000000003-0000000012",
        "xevents/0000000001.0000000002/0000000000000000003-0000000012",
        "events/0000000001.0000000002/000000000000000003-0000000012",  # 18 digits
        "events/0000000001.0000000002/0000000000000000003-00000000012",  # 11 digits
        "events/0000000001.0000000002/0000000000000000003-0000000007",  # shorter than a header
        "events/0000000001.0000000002/0000000000000000003-2147483648",  # longer than an int32
        "events/0000000001.0000000002/9223372036854775807-0000000008",  # ends beyond an int64
        "events/0000000001.0000000002/9999999999999999999-0000000008",
        "events/2147483648.0000000002/0000000000000000003-0000000012",
        "events/0000000001.2147483648/0000000000000000003-0000000012",
        "events/0000000001.000000000२/0000000000000000003-0000000012",  # a digit, but not ASCII
        "events/0000000001.0000000002/+000000000000000003-0000000012",
        "events/0000000001.0000000002/0000000000000000003-0000000012#1",
        "events/0000000001-0000000002/0000000000000000003-0000000012",
        "chunks/0000000001.0000000002/0000000000000000003-0000000012",
    ],
)
def test_inexact_event_key_is_foreign(key: str) -> None:
    assert keys.EVENT_KEYS.parse(key) is None


@pytest.mark.parametrize(
    ("parse", "key"),
    [
        (keys.parse_row, "_work/0000000007/plan.json"),
        (keys.parse_row, "_work/2147483648/0000000001.0000000002/0000000000000000003.json"),
        (keys.parse_row, "_work/0000000007/2147483648.0000000002/0000000000000000003.json"),
        (keys.parse_row, "_work/0000000007/0000000001.0000000002/9999999999999999999.json"),
        *((keys.parse_segment, name) for name in ("", "0000000001", "0000000001.000000002", "9999999999.0000000000")),
        (keys.parse_table_file, "generation=01/x"),
        (keys.parse_table_file, "generation=0/0000000000.0000000000-0000000000000000000.parquet"),
        (keys.parse_table_file, "generation=1/0000000000.0000000000-0000000000000000000.parquet.crc"),
        (keys.parse_table_file, "generation=1/9999999999.0000000000-0000000000000000000.parquet"),
        (keys.parse_table_file, "generation=1/0000000000.0000000000-0000000000000000000-.parquet"),
        (keys.parse_table_file, f"generation=1/0000000000.0000000000-0000000000000000000-{'A' * 32}.parquet"),
        (keys.parse_table_file, f"generation=1/0000000000.0000000000-0000000000000000000-{'a' * 33}.parquet"),
    ],
)
def test_foreign_key_is_not_parsed(parse: Callable[[str], object], key: str) -> None:
    assert parse(key) is None


@pytest.mark.parametrize("numbers", [(-1, 8), (0, 7), (0, INT31 + 1), (INT63 - 7, 8)])
def test_invalid_numbers_are_rejected(numbers: tuple[int, int]) -> None:
    with pytest.raises(InvalidKey):
        keys.event_key(SegmentId(0, 0), *numbers)


def test_invalid_generations_and_offsets_are_rejected() -> None:
    for call in (keys.manifest_key, keys.ranges_key, keys.plan_key, keys.work_folder):
        for generation in (-1, INT31 + 1):
            with pytest.raises(InvalidKey):
                call(GenerationSpan.of(generation))
    with pytest.raises(InvalidKey):
        keys.EVENT_KEYS.after(SegmentId(0, 0), -1)
    with pytest.raises(InvalidKey):
        keys.chunk_key(SegmentId(0, 0), 0, 0)


@pytest.mark.parametrize("name", ["", "A", "a b", "../x", "ä", "a" * 129, "a/b"])
def test_invalid_table_name_is_rejected(name: str) -> None:
    with pytest.raises(InvalidKey):
        keys.table_folder(name)
