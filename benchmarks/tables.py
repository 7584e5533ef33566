"""Markdown tables for `docs/performance.md`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.measuring import Spread

__all__ = ["size_text", "spread_text", "table"]


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


def size_text(size: int) -> str:
    """Return a size in the largest unit that divides it: ``100 B``, ``1 KiB``, ``8 MiB``."""
    for unit, name in ((1024 * 1024, "MiB"), (1024, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
