"""The packages and files that the design names are those that there are, in the order that import-linter enforces.

The table of rules that `bin/prove --mutants` takes out fits the code and the tests.

From a command to the bytes that it writes, a reader of the code opens few files.

Whoever takes the bytes of a source gets them compared: no other module reads an archive's objects or a stream.

An archive's bytes are compared with their digests, a stream's by who continues with them (`streamvault.sources`).
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import threading
import tomllib
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import obstore
import pytest

from streamvault.cli import main
from streamvault.streamstore.local.store import LocalAppender
from streamvault.streamstore.model import StreamConfiguration, StreamName
from testkit.prove.mutants import EVERY_SCHEDULE, SKIPPED, Mutant
from testkit.prove.rules import RULES
from testkit.small_archives import Vault

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


PACKAGE = str(Path(__file__).parents[3] / "streamvault")


class Ways:
    """The files on the call stack of each write, threads' starts included: from the module of the command on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, is_data: Callable[[str], bool]) -> None:
        self.longest: list[str] = []
        self._is_data = is_data
        begun: dict[threading.Thread, list[str]] = {}
        start, put, append = threading.Thread.start, obstore.put, LocalAppender.append

        def stack() -> list[str]:
            here = [frame.filename for frame in traceback.extract_stack()]
            return begun.get(threading.current_thread(), []) + here

        def starting(thread: threading.Thread) -> None:
            begun[thread] = stack()
            start(thread)

        def putting(store: Any, key: str, *arguments: Any, **options: Any) -> Any:
            self._note(key, stack())
            return put(store, key, *arguments, **options)

        def appending(appender: LocalAppender, block: Any) -> None:
            self._note("append", stack())
            append(appender, block)

        monkeypatch.setattr(threading.Thread, "start", starting)
        monkeypatch.setattr(obstore, "put", putting)
        monkeypatch.setattr(LocalAppender, "append", appending)

    def _note(self, what: str, stack: list[str]) -> None:
        if self._is_data(what):
            files = list(dict.fromkeys(file for file in stack if file.startswith(PACKAGE)))
            while files and files[0].rpartition("/")[2] in {"__init__.py", "app.py", "options.py"}:
                del files[0]  # the command line
            self.longest = max(self.longest, files, key=len)


@pytest.mark.parametrize(
    ("most", "command", "data"),
    [
        (12, "export {stream} {root} --layout events", "/events/"),
        (12, "export {stream} {root} --layout chunks", "/chunks/"),
        (8, "import {archive} {other}", "append"),
        (9, "copy {stream} {other}", "append"),
        (10, "replicate {stream} {other}", "append"),
        (7, "append {archive} --into {target} --own-segments", "append"),
        (9, "handoff {archive} --format parquet --root {root}", ".parquet"),
    ],
)
def test_way_from_a_command_to_its_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most: int, command: str, data: str
) -> None:
    vault = Vault(tmp_path)
    vault.make()
    if "export" not in command:
        vault.export("chunks")
    with vault.store as store:
        store.create_stream(StreamName("scope", "target"), StreamConfiguration())
    other, target = (vault.uri(StreamName("scope", name)) for name in ("other", "target"))
    places = {"stream": vault.uri(), "root": vault.root, "archive": vault.archive, "other": other, "target": target}
    ways = Ways(monkeypatch, lambda what: data in what)
    assert main([*command.format(**places).split(), "--master", "inline"]) == 0
    assert ways.longest, "no data were written"
    assert len(ways.longest) <= most - ("root" in command), ways.longest  # requests to S3 are repeated in one more file


UNCOMPARED = {
    "streamvault/manifests/damage.py": "compares them; gives what is left of a damaged range a digest of its own",
    "streamvault/lake/origins.py": "a sample, from which columns are proposed",
    "streamvault/serving/blocks.py": "compares each block before it is handed out",
}
"""The modules that read ranges themselves, besides the layouts, and why they may."""

SINGLE_EVENTS = {
    "streamvault/manifests/history.py": "where the event at a cut begins",
    "streamvault/manifests/verbs/show.py": "one event, of a range that is compared before, unless --unverified",
}
"""The modules that read one event of a range, besides the layouts, and why they may."""

OF_STREAMS = {
    "streamvault/concat/copy_events.py": "the end of a target; a source's events, identified before and after",
    "streamvault/demo/tour.py": "the demo's own stream",
    "streamvault/importer/fill.py": "what a target has, to compare it with its source",
    "streamvault/importer/run.py": "what a target has of a source that is gone, to compare it with what was recorded",
    "streamvault/lake/origins.py": "a sample, from which columns are proposed",
    "streamvault/replication/copy.py": "the last bytes of a finished copy, and of its source",
    "streamvault/serving/embedded.py": "what a client of a test asks for, of a stream that the test has made",
    "streamvault/serving/live.py": "what a client asks for, of a stream that is compared with its archive",
    "streamvault/replication/replica.py": "where the last event of a replica ends",
}
"""The modules that read segments themselves, besides those of `streamstore` and `sources`, and why they may."""

WALKING = {
    "streamvault/lake/origins.py": "a sample, from which columns are proposed",
    "streamvault/spark/pravega_reader.py": "Spark's partitions of a stream",
}
"""The modules that look for events in a segment, besides those of `streamstore` and `sources`, and why they may."""


def modules_that(does: Callable[[ast.Call, str], bool], *apart: str) -> set[str]:
    """Return the modules in which a call is what ``does`` says, given the call and its name, apart from some packages.

    Args:
        does: whether a call is one.
        apart: the packages that are left out.
    """
    return {module for module, call, name in _calls() if Path(module).parts[1] not in apart and does(call, name)}


@cache
def _calls() -> list[tuple[str, ast.Call, str]]:
    """Return the calls of the package: the module, the call, and the name of what is called."""
    found = []
    for file in sorted((ROOT / "streamvault").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                found.append((str(file.relative_to(ROOT)), node, name))
    return found


def test_ranges_are_read_where_they_are_compared() -> None:
    # `sources.reader` has a function of that name, which reads a stream
    readers = modules_that(lambda call, name: name == "read_range" and isinstance(call.func, ast.Attribute), "layouts")
    assert readers == set(UNCOMPARED)


def test_one_event_of_an_archive_is_read_by_few() -> None:
    assert modules_that(lambda _, name: name in {"read_event", "find_event"}, "layouts") == set(SINGLE_EVENTS)


def test_segments_are_read_by_the_sources() -> None:
    def is_read(call: ast.Call, name: str) -> bool:
        return name in {"read", "read_bytes"} and len(call.args) + len(call.keywords) == 4

    assert modules_that(is_read, "streamstore", "sources") == set(OF_STREAMS)


def test_events_of_a_segment_are_found_by_the_sources() -> None:
    walks = {"find_start", "EventWalk"}
    assert modules_that(lambda _, name: name in walks, "streamstore", "sources") == set(WALKING)
