"""Collects a benchmark's results, and prints them once at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Results"]


class Results:
    """Tables and the figures behind them.

    Args:
        command: the benchmark's command line.
    """

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
