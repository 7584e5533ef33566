"""Rates, and when they say how long the rest takes."""

from __future__ import annotations

from streamvault.cli.progress import RATE_SECONDS, SETTLED_SECONDS, Phase, RecentRate


def test_lots_reported_in_a_row_are_no_burst() -> None:
    now = 100.0
    rate = RecentRate(lambda: now)
    assert rate.per_second() == 0
    now += 20
    rate.add(1000)
    rate.add(1000)
    assert rate.per_second() == 100


def test_a_rate_is_that_of_the_last_seconds() -> None:
    now = 100.0
    rate = RecentRate(lambda: now)
    now += 10
    rate.add(1_000_000)
    now += RATE_SECONDS + 10
    rate.add(400)
    assert rate.per_second() == 10, "the lot counts from the report before it"
    now += RATE_SECONDS + 1
    assert rate.per_second() == 0, "a server that hangs is not as fast as it was"


def test_the_time_left_is_shown_once_bytes_have_come_for_a_while() -> None:
    now = 100.0
    phase = Phase("exporting", 10_000, clock=lambda: now)
    now += 60
    phase.advance(0, 600)
    assert phase.speed(600) == "10 B/s", "most of it was starting"
    now += SETTLED_SECONDS
    phase.advance(0, 700)
    assert phase.speed(1300) == "20 B/s, 7 min 15 s left"
    now += SETTLED_SECONDS
    phase.advance(0, 0)
    assert phase.speed(1300).endswith(" left"), "it does not go away again"
