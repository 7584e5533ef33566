"""Collects a benchmark's results and prints them once at the end, as Markdown tables for `docs/performance.md`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import Measured, Spread, ratio


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


def size_text(size: int) -> str:
    """Return a size in the largest unit that divides it: ``100 B``, ``1 KiB``, ``8 MiB``."""
    for unit, name in ((1024 * 1024, "MiB"), (1024, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
