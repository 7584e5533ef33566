"""Every command of every page is run by a test, or says what it needs; most are run here, without a server."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.memory_groups import MemoryGroups
from tests.pages import DOCS, PAGES, ROOT, blocks, command_lines, is_parsed
from tests.site_of_pages import BEFORE, Site, Walk, walks

NAMES = {os.path.relpath(page, DOCS): page for page in PAGES}
NEEDS = {
    "airflow": "tests/commands/test_airflow_guide.py",  # with a stand-in; it fails if the page has more of them
    "benchmarks": "tests/unit/project/test_benchmarks.py",
    "cluster": "tests/unit/runner/test_sent.py",
    "docker": "tests/unit/project/test_examples.py",
    "glacier": "tests/integration/test_pages.py",
    "glue": "tests/integration/test_pages.py",
    "iceberg-rest": "tests/integration/test_pages.py",
    "jq": "tests/commands/test_pages.py",
    "kubernetes": "tests/unit/project/test_examples.py",
    "network": "tests/integration/test_wheel.py",
    "systemd": "tests/unit/project/test_examples.py",
}
"""What a block needs → the test that runs it, or what can be run of it without."""

TESTS = {
    "../README.md": "tests/unit/project/test_guides.py",
    "guide/append.md": "tests/commands/concat/test_guide.py",
    "guide/scopes.md": "tests/commands/scopes/test_guide.py",
    "runbooks/": "tests/commands/test_runbooks.py",
    "tutorial/": "tests/unit/project/test_guides.py",
}
"""Pages that have tests of their own, which follow all of their sections."""

AT_HAND = {"", "jq"} if shutil.which("jq") else {""}
HERE = [
    *(walk for walk in walks(["../README.md"]) if walk.section != "A tour"),
    *walks((name for name in NAMES if not name.startswith(tuple(TESTS))), AT_HAND),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_parsed_and_say_what_they_need(page: Path) -> None:
    text = page.read_text()
    assert all(is_parsed(words) for words in command_lines(text))
    assert {block.needs for block in blocks(text)} <= {"", *NEEDS}


@pytest.mark.parametrize("test", sorted({*NEEDS.values(), *TESTS.values()}))
def test_tests_of_pages_exist(test: str) -> None:
    assert (ROOT / test).is_file()


def test_most_commands_are_found() -> None:
    assert sum(len(command_lines(page.read_text())) for page in PAGES) > 150
    assert len(HERE) > 30
    assert BEFORE.keys() <= {(walk.file, walk.section) for walk in walks(NAMES, NEEDS)} | {
        (walk.file, walk.section) for walk in HERE
    }


@pytest.mark.parametrize("walk", HERE, ids=str)
def test_commands_run(
    walk: Walk,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    groups: MemoryGroups,
) -> None:
    monkeypatch.setenv("STREAMVAULT_MASTER", "inline")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vault").mkdir()
    site = Site(f"local://{tmp_path}/here", f"local://{tmp_path}/there", f"file://{tmp_path}/vault", tmp_path, capfd)
    walk.follow(site)
