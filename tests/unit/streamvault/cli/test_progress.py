"""Bars of several streams at once, and rates."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from streamvault.cli.progress import LINE_SECONDS, RATE_SECONDS, BarProgress, LineProgress, RecentRate, _rate_text


def test_each_stream_has_a_bar_while_its_phase_lasts() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=120, markup=False, highlight=False)
    progress = BarProgress(console)
    orders, carts = progress.part("orders"), progress.part("carts")
    orders.begin("exporting", 100)
    carts.begin("exporting", 200, 50)
    orders.advance(3, 60)
    bars = progress._bars
    assert bars is not None
    assert [(task.description, task.completed, task.total) for task in bars.tasks] == [
        ("orders: exporting", 60, 100),
        ("carts: exporting", 50, 200),
    ]
    orders.begin("verifying", 10)
    carts.end()
    carts.advance(1, 1)
    assert [task.description for task in bars.tasks] == ["orders: verifying"]
    orders.note("generation 1")
    carts.warn("a gap")
    carts.warn("a gap")
    progress.end()
    text = written.getvalue()
    assert "orders: generation 1" in text
    assert text.count("warning: carts: a gap") == 1


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


def test_a_bar_shows_rate_and_time_left_and_at_the_end_what_its_phase_took() -> None:
    progress = BarProgress(Console(file=io.StringIO(), force_terminal=True, width=120, markup=False, highlight=False))
    progress.begin("exporting", 2 * 1024**3, 1024**3)
    assert progress._bars is not None
    task = progress._bars.tasks[0]
    assert _rate_text(task) == "", "what an earlier run did is no rate"
    progress.advance(1, 1024**2)
    assert re.fullmatch(r"[\d.,]+ [KMGT]?i?B/s, [\d.]+ (s|min|h).* left", _rate_text(task))
    progress.advance(1, 1023 * 1024**2)
    assert re.fullmatch(r"[\d.]+ s", _rate_text(task))
    progress.end()


def test_without_a_terminal_a_log_line_says_from_time_to_time_how_far_a_phase_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 100.0
    progress = LineProgress(lambda: now)
    caplog.set_level("INFO", "streamvault")
    progress.begin("exporting", 4 * 1024**2, 1024**2)
    progress.advance(1, 512 * 1024)
    now += LINE_SECONDS
    progress.advance(1, 512 * 1024)
    progress.advance(1, 512 * 1024)
    assert caplog.messages == [
        "exporting: 4.0 MiB, 1.0 MiB done before",
        "exporting: 2.0 MiB of 4.0 MiB, 102 KiB/s, 20.0 s left",
    ]
