"""Bars of several streams at once."""

from __future__ import annotations

import io

from rich.console import Console

from streamvault.cli.progress import BarProgress


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
