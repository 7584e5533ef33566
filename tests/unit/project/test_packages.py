"""The table of rooms in the design says what there is, and its order is the one that import-linter enforces."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
DESIGN = (ROOT / "docs/design.md").read_text()


def test_table_has_each_room() -> None:
    table = DESIGN.split("| room | contents |")[1].split("\n\n")[0]
    rooms = {room for row in table.splitlines() for room in re.findall(r"`(\w+)/`", row.split(" | ")[0])}
    folders = {folder.name for folder in (ROOT / "streamvault").iterdir() if (folder / "__init__.py").exists()}
    assert rooms == folders | {"dags"}


def test_imports_go_down_as_the_design_says() -> None:
    sentence = DESIGN.split("rooms on one level do not import each other: ")[1].split(". ")[0]
    levels = [set(re.findall(r"`(\w+)`", level)) for level in sentence.split(";")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert levels == [set(level.split(" | ")) for level in contracts[0]["layers"]]
