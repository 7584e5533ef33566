"""Collects a benchmark's results and prints them once at the end, as Markdown tables for `docs/performance.md`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import Measured, Spread, compare, ratio, spread

BESIDE_LOOPS = (
    "the command, of the loop",
    "its work, of the loop with a digest",
    "processor s/GB",
    "times the loop's",
    "the work's",
    "times the loop's with a digest",
    "MB/s",
)
"""The heads above the cells of `beside_loops`, without the first."""


class Results:
    """Tables and the figures behind them, of one command line."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._setting: dict[str, str] = {}
        self._tables: list[str] = []
        self._figures: dict[str, Any] = {}

    def describe(self, setting: Mapping[str, str]) -> None:
        """Describe the servers and the machine; the first description of each item is kept."""
        self._setting = {**setting, **self._setting}

    def add(self, title: str, table: str, figures: Any) -> None:
        """Add a Markdown table and all figures from which it was made."""
        self._tables.append(table)
        self._figures[title] = figures

    def markdown(self) -> str:
        """Return all results for `docs/performance.md`."""
        setting = "; ".join(f"{name}: {text}" for name, text in self._setting.items())
        return "\n\n".join([f"`{self._command}`", f"{setting}.", *self._tables])

    def write_json(self, path: Path) -> None:
        """Write all figures as JSON."""
        document = {"command": self._command, "setting": self._setting, "figures": self._figures}
        path.write_text(json.dumps(document, indent=1) + "\n")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose others are figures."""
    lines = [_line(heads), _line(["---", *["--:"] * (len(heads) - 1)])]
    lines += [_line(row) for row in rows]
    return "\n".join(lines)


def spread_text(figures: Spread, digits: int) -> str:
    """Return ``median (minimum to maximum)``; the median alone if there is one figure."""
    if figures.low == figures.high:
        return f"{figures.median:,.{digits}f}"
    return f"{figures.median:,.{digits}f} ({figures.low:,.{digits}f} to {figures.high:,.{digits}f})"


def beside(found: Mapping[str, Sequence[Measured]], name: str, limit: str, peers: Sequence[str]) -> list[str]:
    """Return the first cells of an arm's row: its name, its speed as a multiple of the limit's and of each peer's."""
    against = ["" if name in (limit, peer) else spread_text(ratio(found, name, peer), 1) for peer in peers]
    return [name, "1" if name == limit else spread_text(ratio(found, name, limit), 2), *against]


def beside_loops(
    found: Mapping[str, Sequence[Measured]], name: str, loop: str, digested: str, few: str = ""
) -> list[str]:
    """Return the row of an arm beside the bare loop, and beside the one that computes a digest.

    Args:
        found: what was measured.
        name: the arm: one of the loops, or a command.
        loop: the bare loop.
        digested: the loop with a digest.
        few: the same command for a few events; the work's processor time is that of the command beyond it.
    """
    runs, fixed = found[name], spread([one.processor_seconds for one in found[few]]).median if few else 0.0

    def against(peer: str, figure: Callable[[Measured, Measured], float]) -> str:
        return "1" if name == peer else spread_text(compare(found, name, peer, figure), 2)

    def work(one: Measured) -> float:
        return one.processor_seconds - fixed

    is_measured, is_command = any(one.processor_seconds for one in runs), bool(few)
    return [
        name,
        against(loop, lambda mine, other: other.seconds_per_event / mine.seconds_per_event),
        against(digested, lambda mine, other: other.seconds / mine.work_seconds) if is_command else "",
        spread_text(spread([one.processor_seconds / one.bytes * 1e9 for one in runs]), 2) if is_measured else "",
        against(loop, lambda mine, other: mine.processor_seconds / other.processor_seconds) if is_measured else "",
        spread_text(spread([work(one) / one.bytes * 1e9 for one in runs]), 2) if is_command else "",
        against(digested, lambda mine, other: work(mine) / other.processor_seconds) if is_command else "",
        spread_text(spread([one.megabytes_per_second for one in runs]), 0),
    ]


def size_text(size: int) -> str:
    """Return a size in the largest unit that divides it: ``100 B``, ``1 KiB``, ``8 MiB``."""
    for unit, name in ((1024 * 1024, "MiB"), (1024, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
