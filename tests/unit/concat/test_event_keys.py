"""Where the routing keys of events are, and which segments of a target take which key ranges."""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.common.errors import Usage
from streamvault.concat.copy_events import EventKey
from streamvault.concat.planning import HASHES, Places, shared_ranges
from streamvault.streamstore.model import EventPointer, KeyRange, SegmentId

POINTER = EventPointer.parse("scope/stream/0.#epoch.0:8-20")


def reversed_text(payload: bytes) -> object:
    """A user's function."""
    return payload.decode()[::-1]


def ends_the_process(_: bytes) -> object:
    raise SystemExit(0)


def huge(_: bytes) -> object:
    return 10**5000


@pytest.mark.parametrize(
    ("key", "payload", "found"),
    [
        ("/id", b'{"id": "a"}', "a"),
        ("/id", b'{"id": 17}', "17"),
        ("/a/1/b", b'{"a": [0, {"b": "deep"}]}', "deep"),
        ("/a~1b/c~0d", b'{"a/b": {"c~d": "x"}}', "x"),
        ("/", b'{"": "empty"}', "empty"),
        ("tests.unit.concat.test_event_keys:reversed_text", b"abc", "cba"),
    ],
)
def test_key_is_found(key: str, payload: bytes, found: str) -> None:
    assert EventKey(key).of(payload, lambda: POINTER) == found


def test_function_may_be_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys_of_a_user.py").write_text("def first(payload):\n    return payload[:1].decode()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert EventKey("keys_of_a_user:first").of(b"xyz", lambda: POINTER) == "x"


@pytest.mark.parametrize(
    ("key", "payload", "said"),
    [
        ("/id", b"not JSON", "no routing key is found in an event"),
        ("/id", b'{"other": 1}', "KeyError: 'id'"),
        ("/a/7", b'{"a": [1]}', "IndexError"),
        ("/a/b", b'{"a": 1}', "TypeError"),
        ("/a", b'{"a": null}', "neither text nor an integer"),
        ("/a", b'{"a": true}', "neither text nor an integer"),
        ("/a", b'{"a": 1.5}', "neither text nor an integer"),
        ("/a", b'{"a": ' + b"[" * 100_000, "RecursionError"),
        ("tests.unit.concat.test_event_keys:reversed_text", b"\xff", "UnicodeDecodeError"),
        ("tests.unit.concat.test_event_keys:ends_the_process", b"", "SystemExit: 0"),
        ("tests.unit.concat.test_event_keys:huge", b"", "ValueError: Exceeds the limit"),
    ],
)
def test_event_without_a_key_is_named(key: str, payload: bytes, said: str) -> None:
    with pytest.raises(Usage, match=said) as caught:
        EventKey(key).of(payload, lambda: POINTER)
    assert str(POINTER) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("id", "neither a JSON pointer nor MODULE:FUNCTION"),
        (":f", "neither"),
        ("no.such.module:f", "is not found"),
        ("json:no_such_function", "is not found"),
        ("json:__name__", "not a function"),
        ("..:f", "is not found"),
    ],
)
def test_key_that_cannot_be_used_is_refused(key: str, said: str) -> None:
    with pytest.raises(Usage, match=said):
        EventKey(key)


@pytest.mark.parametrize("content", ["def first(:", "raise KeyError('x')", "raise SystemExit(0)"])
def test_module_that_cannot_be_imported_is_refused(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_keys_of_a_user.py").write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    with pytest.raises(Usage, match="the function of --key is not found"):
        EventKey("broken_keys_of_a_user:first")


def epoch(*bounds: float) -> dict[SegmentId, KeyRange]:
    pieces = [KeyRange(low, high) for low, high in pairwise([0.0, *sorted(set(bounds)), 1.0])]
    return {SegmentId(0, number): piece for number, piece in enumerate(pieces)}


BOUNDS = st.lists(st.integers(1, 2**20 - 1).map(lambda at: at / 2**20), max_size=6, unique=True)
RANGES = st.lists(BOUNDS.map(lambda bounds: list(epoch(*bounds).values())), max_size=4)


@given(target=BOUNDS, sources=RANGES)
def test_each_range_lies_in_one_segment_after_the_scale(target: list[float], sources: list[list[KeyRange]]) -> None:
    ranges = [held for some in sources for held in some]
    segments = epoch(*target)
    scale = Places(segments).scale_for(ranges)
    after = {segment: held for segment, held in segments.items() if scale is None or segment not in scale.seal}
    after |= {SegmentId(1, number): held for number, held in enumerate(scale.ranges if scale else ())}
    assert sum(held.high - held.low for held in after.values()) == pytest.approx(1.0)
    for held in ranges:
        (segment,) = Places(after).of(held)
        assert after[segment].low <= held.low < held.high <= after[segment].high
    # nothing is merged needlessly: each boundary that is gone lies inside of a range
    gone = {held.low for held in segments.values()} - {held.low for held in after.values()}
    assert all(any(held.low < at < held.high for held in ranges) for at in gone)


@given(sources=RANGES)
def test_shared_ranges_cover_each_range_and_are_the_smallest(sources: list[list[KeyRange]]) -> None:
    ranges = [held for some in sources for held in some]
    found = shared_ranges(ranges)
    assert [held.low for held in found] == [0.0, *(held.high for held in found[:-1])]
    assert found[-1].high == 1.0
    for held in ranges:
        assert sum(one.low <= held.low < held.high <= one.high for one in found) == 1
    bounds = {held.low for held in ranges} | {held.high for held in ranges}
    lows = {held.low for held in found}
    assert all(any(held.low < at < held.high for held in ranges) for at in bounds - lows - {1.0})


def test_boundaries_are_the_same_if_no_hash_lies_between() -> None:
    third, next_one = 1 / 3, math.nextafter(1 / 3, 1)
    assert third * HASHES % 1 != 0.0
    assert Places(epoch(third)).scale_for([KeyRange(0.0, next_one), KeyRange(next_one, 1.0)]) is None
    half, after = 0.5, math.nextafter(0.5, 1)
    scale = Places(epoch(half)).scale_for([KeyRange(0.0, after)])
    assert scale is not None
    assert scale.ranges == (KeyRange(0.0, 1.0),)


def test_a_key_space_that_ends_below_one_is_whole() -> None:
    short = {SegmentId(0, i): KeyRange(i * (1 / 49), (i + 1) * (1 / 49)) for i in range(49)}
    assert max(held.high for held in short.values()) < 1.0
    assert Places(short).of(KeyRange(0.99, 1.0)) == [SegmentId(0, 48)]
