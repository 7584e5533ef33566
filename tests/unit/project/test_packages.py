"""The packages and files that the design names are those that there are, in the order that import-linter enforces.

The table of rules that `bin/prove --mutants` takes out fits the code and the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from testkit.prove.mutants import EVERY_SCHEDULE, SKIPPED, Mutant
from testkit.prove.rules import RULES

ROOT = Path(__file__).parents[3]
DESIGN = (ROOT / "docs/design.md").read_text()


def test_table_has_each_package() -> None:
    table = DESIGN.split("| package | contents |")[1].split("\n\n")[0]
    packages = {package for row in table.splitlines() for package in re.findall(r"`(\w+)/`", row.split(" | ")[0])}
    folders = {folder.name for folder in (ROOT / "streamvault").iterdir() if (folder / "__init__.py").exists()}
    assert packages == folders | {"dags"}


def test_imports_go_down_as_the_design_says() -> None:
    sentence = DESIGN.split("packages on one level do not import each other: ")[1].split(". ")[0]
    levels = [set(re.findall(r"`(\w+)`", level)) for level in sentence.split(";")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert levels == [set(level.split(" | ")) for level in contracts[0]["layers"]]


@pytest.mark.parametrize("page", ["design.md", "ten-files.md"])
def test_files_that_a_page_names_exist(page: str) -> None:
    named = re.findall(r"`(streamvault/[\w/.]*)`", (ROOT / "docs" / page).read_text())
    assert len(named) > 15
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("mutant", RULES, ids=lambda mutant: mutant.name)
def test_rule_has_one_place_and_a_test_that_exists(mutant: Mutant) -> None:
    if not mutant.same:
        assert (ROOT / "streamvault" / mutant.file).read_text().count(mutant.old) == 1
        assert mutant.tests or mutant.families
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()
        assert (ROOT / file).exists()


def test_cases_that_rules_name_are_run_when_they_are_taken_out() -> None:
    named = sorted({test for mutant in RULES for test in mutant.tests if "[" in test})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", SKIPPED, *named]
    found = subprocess.run(
        command, cwd=ROOT, env={**os.environ, EVERY_SCHEDULE: "1"}, check=False, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    assert sorted(line for line in found.stdout.splitlines() if "::" in line) == named


def test_names_of_rules_differ() -> None:
    assert len({mutant.name for mutant in RULES}) == len(RULES)
