"""The figures in the documentation can be drawn again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_figures_are_those_that_the_command_draws(tmp_path: Path) -> None:
    """As many marks and as many texts: how wide a text is depends on the machine's fonts."""
    subprocess.run([sys.executable, ROOT / "bin" / "figures", tmp_path], check=True, timeout=120, env={})
    drawn = {file.name: file.read_text() for file in tmp_path.iterdir()}
    kept = {file.name: file.read_text() for file in (ROOT / "docs" / "figures").glob("*.svg")}
    assert drawn.keys() == kept.keys() == {"architecture.svg", "heat-map.svg", "segments.svg"}
    for name, text in kept.items():
        assert [drawn[name].count(mark) for mark in ("<path", "<text", "fill=")] == [
            text.count(mark) for mark in ("<path", "<text", "fill=")
        ]
        assert len(text) < 40_000
