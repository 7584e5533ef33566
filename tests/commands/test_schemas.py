"""What the commands print with ``--json`` fits the schemas in docs/reference."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import jsonschema
import pytest

from bin.pages.reports import FOLDER, REPORTS, files, nested_classes
from streamvault.cli import main
from streamvault.cli.app import COMMANDS
from testkit.small_archives import Vault, archive_of

Print = Callable[..., list[dict[str, Any]]]
INLINE = ("--master", "inline[2]")
WITHOUT = {"show", "get", "cat", "ddl"}
"""Commands that print a manifest, events or statements."""


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    vault.make(events=60, largest=3000)
    return vault


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str]) -> Print:
    def run(command: str, *arguments: str) -> list[dict[str, Any]]:
        capfd.readouterr()
        assert main([*command.split(), *arguments, "--json"]) == 0
        *others, last = map(json.loads, capfd.readouterr().out.splitlines())
        for found, name in [*((other, f"{command}-request") for other in others), (last, command.split(maxsplit=1)[0])]:
            jsonschema.validate(found, json.loads((FOLDER / "reports" / f"{name}.json").read_text()))
        return [*others, last]

    return run


def test_each_command_has_a_schema() -> None:
    assert set(REPORTS) - {"work-request", "scope"} == set(COMMANDS) - WITHOUT


def test_each_field_is_described() -> None:
    for file, text in files().items():
        if file.suffix == ".json":
            schema = json.loads(text)
            for each in (schema, *schema.get("$defs", {}).values()):
                assert all(about["description"] for about in each["properties"].values())
                assert each["required"] == list(each["properties"])


def test_field_has_the_same_type_in_all_reports() -> None:
    """But that it may be null in one: a source that was not sealed has no tail."""
    types: dict[str, set[str]] = defaultdict(set)
    for kind in {each for report in REPORTS.values() for each in nested_classes(report).values()}:
        for name, hint in get_type_hints(kind).items():
            types[name].add(str(hint).removesuffix(" | None").replace("typing.Optional", ""))
    types.pop("ended")  # only a replication can have caught up
    assert {name: found for name, found in types.items() if len(found) > 1} == {}


def test_archives(vault: Vault, printed: Print) -> None:
    export = ("export", vault.uri(), vault.root, *INLINE)
    printed(*export, "--dry-run")
    printed(*export)
    printed(*export)
    vault.add(b"more")
    printed(*export)
    printed("streams", f"local://{vault.folder}/streams/")
    printed("plan", vault.uri(), "--layout", "chunks")
    printed("plan", "--segments", "3", "--bytes", "1GB", "--events", "1000")
    printed("sweep", f"local://{vault.folder}/streams/scope/")
    printed("ls", vault.root)
    printed("check", vault.archive, "--read-data", *INLINE)
    printed("hold", vault.archive, "audit")
    printed("release", vault.archive, "audit")
    printed("timeline", vault.archive)
    printed("doctor", vault.uri(), vault.root, "--time-limit", "60s")
    printed("status", vault.root, "--metrics", str(vault.folder / "status.prom"))
    printed("report", vault.archive, "-o", str(vault.folder / "report.html"), "--stream", vault.uri())
    printed("delete", vault.archive)
    printed("convert", vault.archive, "memory://converted", "--layout", "chunks", *INLINE)
    printed("compact", vault.archive, *INLINE)
    vault.add(b"more")
    printed("rotate", vault.uri(), vault.root, "--keep", "1", *INLINE)
    printed("follow", vault.uri(), vault.root, "--for", "1s", *INLINE)
    printed("handoff", vault.archive, *INLINE, "--dry-run")
    printed("handoff", vault.archive, *INLINE)


def test_streams(vault: Vault, printed: Print) -> None:
    vault.export()
    source = vault.uri()
    restored, copied, replica, moved = (source.replace("/scope/stream", f"/scope/{name}") for name in "abcd")
    printed("import", vault.archive, restored, *INLINE, "--dry-run")
    printed("import", vault.archive, restored, *INLINE)
    printed("translate", vault.archive, restored, json.dumps(archive_of(vault.root).manifest().to.to_json()))
    printed("copy", source, copied, *INLINE)
    printed("replicate", source, replica, *INLINE)
    printed("replicate", source, replica, *INLINE, "--dry-run")
    printed("promote", replica)
    printed("move", source, moved, *INLINE, "--dry-run")


def test_queues(vault: Vault, printed: Print) -> None:
    vault.export()
    queue, restored = (vault.uri().replace("/scope/stream", f"/scope/{name}") for name in ("queue", "restored"))
    printed("request-restore", vault.archive, restored, "--queue", queue)
    printed("queue show", queue)
    assert len(printed("work", queue, "--once", *INLINE)) == 2
