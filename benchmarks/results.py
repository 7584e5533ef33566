"""Gathers what a benchmark found, and prints it once at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Results"]


class Results:
    """Tables with the figures behind them.

    Args:
        command: as it was given.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._setting: dict[str, str] = {}
        self._tables: list[str] = []
        self._figures: dict[str, Any] = {}

    def describe(self, setting: Mapping[str, str]) -> None:
        """Say where it runs; what was said first holds."""
        self._setting = {**setting, **self._setting}

    def add(self, title: str, table: str, figures: Any) -> None:
        """Add a table in Markdown, and every single figure that it was made of."""
        self._tables.append(table)
        self._figures[title] = figures

    def markdown(self) -> str:
        """All of it, ready for `docs/performance.md`."""
        setting = "; ".join(f"{name}: {text}" for name, text in self._setting.items())
        return "\n\n".join([f"`{self._command}`", f"{setting}.", *self._tables])

    def write_json(self, path: Path) -> None:
        """Write every figure."""
        document = {"command": self._command, "setting": self._setting, "figures": self._figures}
        path.write_text(json.dumps(document, indent=1) + "\n")
