"""Bars, of several streams at once too."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from streamvault.cli.progress_bars import BarProgress, _rate_text
from streamvault.common.progress import RunningTasks, task_progress


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


def test_a_bar_shows_rate_and_time_left_and_at_the_end_what_its_phase_took() -> None:
    progress = BarProgress(Console(file=io.StringIO(), force_terminal=True, width=120, markup=False, highlight=False))
    progress.begin("exporting", 2 * 1024**3, 1024**3)
    assert progress._bars is not None
    task = progress._bars.tasks[0]
    assert _rate_text(task) == "", "what an earlier run did is no rate"
    progress.advance(1, 1024**2)
    assert re.fullmatch(r"[\d.,]+ [KMGT]?i?B/s", _rate_text(task)), "so early, nothing is known of the rest"
    progress._phase.rate._first = 0.0
    assert re.fullmatch(r"[\d.,]+ [KMGT]?i?B/s, [\d.]+ (s|min|h).* left", _rate_text(task))
    progress.advance(1, 1023 * 1024**2)
    assert re.fullmatch(r"[\d.]+ s", _rate_text(task))
    progress.end()


@pytest.mark.parametrize("width", [80, 119, 120, 160])
@pytest.mark.parametrize("name", ["", "a-stream-with-a-long-name"])
def test_a_bar_stays_on_one_line(monkeypatch: pytest.MonkeyPatch, width: int, name: str) -> None:
    monkeypatch.setattr("streamvault.cli.progress._speed_text", lambda *_: "1,007 MiB/s, 16 min 25 s left")
    console = Console(file=io.StringIO(), force_terminal=True, width=width, markup=False, highlight=False)
    progress = BarProgress(console)
    part = progress.part(name) if name else progress
    part.begin("exporting", 999 * 1024**3)
    part.advance(100_000, 10 * 1024**3)
    assert progress._bars is not None
    [line] = console.render_lines(progress._bars.get_renderable())
    assert "16 min 25 s left" in "".join(segment.text for segment in line)
    progress.end()


def test_a_bar_shows_what_running_tasks_have_acknowledged() -> None:
    progress = BarProgress(Console(file=io.StringIO(), force_terminal=True, width=120, markup=False, highlight=False))
    progress.begin("exporting", 100, 10)
    part = progress.part("orders")
    part.begin("importing", 50)
    tasks, others = RunningTasks(), RunningTasks()
    with progress.watch(tasks), tasks.task(0), part.watch(others):
        task_progress().acknowledge(20)
        with others.task(0):
            task_progress().acknowledge(7)
        progress.tick()
        assert progress._bars is not None
        assert [task.completed for task in progress._bars.tasks] == [30, 7]
        tasks.taken(0)
        progress.advance(1, 25)
    assert [task.completed for task in progress._bars.tasks] == [35, 7]
    progress.end()
