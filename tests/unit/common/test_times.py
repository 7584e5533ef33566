"""Parsing and formatting of times and durations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamvault.common.errors import Usage
from streamvault.common.units import LONGEST_SECONDS, age_text, duration_text, moment_text, parse_duration, parse_moment


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90d", 90 * 86400),
        ("2w", 14 * 86400),
        ("36h", 36 * 3600),
        ("15m", 900),
        ("30s", 30),
        (" 1 d ", 86400),
        ("0s", 0),
        ("1h30m", 5400),
        ("0.5s", 0.5),
        ("1.1h", 3960),
        ("1w 2d 3h 4m 5s", 7 * 86400 + 2 * 86400 + 3 * 3600 + 4 * 60 + 5),
    ],
)
def test_parse_duration_reads_units(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "90", "d", "-1d", "1.h", ".5s", "1e3s", "1y", "2h 1d", "1h 1h", "\u0661d", "9999999999999999d"]
)
def test_parse_duration_refuses_other_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.25 s"),
        (63, "1 min 03 s"),
        (7500, "2 h 05 min"),
        (86400 * 3 + 3600 * 4, "3 d 04 h"),
    ],
)
def test_age_text_rounds_and_names_the_unit(seconds: float, text: str) -> None:
    assert age_text(seconds) == text
