"""Whoever takes an archive's bytes gets them compared with their digests: no module reads objects past that."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]

UNCOMPARED = {
    "streamvault/manifests/damage.py": "compares them; gives what is left of a damaged range a digest of its own",
    "streamvault/lake/origins.py": "a sample, from which columns are proposed",
}
"""The modules that read ranges themselves, besides the layouts, and why they may."""


def test_ranges_are_read_where_they_are_compared() -> None:
    readers = set()
    for file in sorted((ROOT / "streamvault").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "read_range":
                readers.add(str(file.relative_to(ROOT)))
    assert {reader for reader in readers if not reader.startswith("streamvault/layouts/")} == set(UNCOMPARED)
