"""Parsing and formatting of times and durations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamvault.common.errors import Usage
from streamvault.common.units import (
    LONGEST_SECONDS,
    age_text,
    bytes_text,
    count_text,
    duration_text,
    generations_text,
    moment_text,
    parse_duration,
    parse_moment,
    parse_percent,
    parse_size,
    seconds_text,
)

VALUES: dict[Callable[[Any], Any], list[tuple[Any, Any]]] = {
    parse_size: [
        ("0", 0), ("4096", 4096), ("4096B", 4096), ("1KiB", 1024), ("64MiB", 64 * 1024**2), ("64 mib", 64 * 1024**2),
        ("1GiB", 1024**3), ("500MB", 500_000_000), ("2kb", 2000), ("1.5GiB", 1536 * 1024**2), ("1TB", 10**12),
        ("9223372036854775807", 2**63 - 1),
    ],
    bytes_text: [
        (0, "0 B"), (1023, "1,023 B"), (1024, "1.0 KiB"), (12_900_000, "12.3 MiB"), (64 * 1024**2, "64.0 MiB"),
        (105 * 1024**2, "105 MiB"), (3 * 1024**5, "3.0 PiB"),
    ],
    seconds_text: [
        (0.0, "0.00 s"), (0.421, "0.42 s"), (12.34, "12.3 s"), (59.99, "1 min 00 s"), (245, "4 min 05 s"),
        (7385, "2 h 03 min"),
    ],
    age_text: [
        (0, "0 s"), (0.25, "0.25 s"), (63, "1 min 03 s"), (7500, "2 h 05 min"), (86400 * 3 + 3600 * 4, "3 d 04 h"),
    ],
    generations_text: [
        ([], ""), ([3], "generation 3"), (range(1, 3), "generations 1 to 2"), ((4, 5, 6), "generations 4 to 6"),
        ([1, 3], "generations 1, 3"), ([1, 2, 3, 7, 9, 10], "generations 1 to 3, 7, 9 to 10"),
    ],
    parse_duration: [
        ("90d", 90 * 86400), ("2w", 14 * 86400), ("36h", 36 * 3600), ("15m", 900), ("30s", 30), (" 1 d ", 86400),
        ("0s", 0), ("1h30m", 5400), ("0.5s", 0.5), ("1.1h", 3960),
        ("1w 2d 3h 4m 5s", 7 * 86400 + 2 * 86400 + 3 * 3600 + 4 * 60 + 5),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("function", "value", "expected"), [(function, *row) for function, rows in VALUES.items() for row in rows]
)
def test_value_is_read_or_written(function: Callable[[Any], Any], value: Any, expected: Any) -> None:
    assert function(value) == expected


REFUSED: list[tuple[Callable[[str], Any], str, list[str]]] = [
    (parse_size, "is not a size",
     ["", "MiB", "64 Mi", "64Q", "-1", "1e6", "1,000", "\N{ARABIC-INDIC DIGIT ONE}", "64MiB!", "1.MiB", "0x10"]),
    (parse_percent, "is not a percentage", ["10", "0%", "101%", "-1%", "%", "ten%", "nan%"]),
    (parse_duration, "is not a duration",
     ["", "90", "d", "-1d", "1.h", ".5s", "1e3s", "1y", "2h 1d", "1h 1h", "\u0661d", "9999999999999999d"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "said", "text"), [(function, said, text) for function, said, texts in REFUSED for text in texts]
)
def test_other_text_is_refused(function: Callable[[str], Any], said: str, text: str) -> None:
    with pytest.raises(ValueError, match=said):
        function(text)


@pytest.mark.parametrize(("text", "share"), [("10%", 0.1), ("100 %", 1.0), ("0.5%", 0.005)])
def test_parse_percent_reads_a_share(text: str, share: float) -> None:
    assert parse_percent(text) == pytest.approx(share)


def test_count_text_has_singular_and_plural() -> None:
    assert count_text(1, "event") == "1 event"
    assert count_text(10_000, "event") == "10,000 events"
    assert count_text(2, "archive entry", "archive entries") == "2 archive entries"


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_bytes_text_is_near_the_size(size: int) -> None:
    number, unit = bytes_text(size).replace(",", "").split()
    factor = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}[unit]
    assert float(number) * factor == pytest.approx(size, rel=0.051)


def test_duration_of_more_than_a_thousand_years_is_refused() -> None:
    assert parse_duration("365000d") == LONGEST_SECONDS
    with pytest.raises(ValueError, match="'365001d' is too long: a duration is at most 365000d"):
        parse_duration("365001d")


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_duration_that_no_option_accepts_can_be_named(value: float) -> None:
    assert duration_text(value) == f"{value}s"


@given(st.floats(0, LONGEST_SECONDS) | st.integers(0, 10**8).map(lambda minutes: minutes * 60.0))
@example(0.5)
@example(2_592_001.0)
def test_duration_is_read_back_as_it_was_written(seconds: float) -> None:
    assert parse_duration(duration_text(seconds)) == seconds


@given(st.datetimes(datetime(1900, 1, 1), datetime(2900, 1, 1)), st.integers(-14 * 60, 14 * 60))  # noqa: DTZ001
def test_parse_moment_reads_any_zone(naive: datetime, minutes: int) -> None:
    moment = naive.replace(tzinfo=UTC)
    there = moment.astimezone(timezone(timedelta(minutes=minutes)))
    assert parse_moment(there.isoformat(), "--at") == parse_moment(there, "--at") == moment
    assert parse_moment(moment_text(there), "--at") == moment
    assert moment_text(there).endswith("Z")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("noon", "--at is not a time"),
        ("2026-13-01T00:00:00Z", "--at is not a time"),
        ("0001-01-01T00:00:00+14:00", "--at is not a time"),
        ("2026-01-01", "--at has no time zone"),
        ("2026-01-01T00:00:00", "--at has no time zone"),
    ],
)
def test_parse_moment_refuses_other_text(text: str, said: str) -> None:
    with pytest.raises(Usage, match=said):
        parse_moment(text, "--at")
