"""Every command of every page is run by a test, or says what it needs; what commands print fits docs/reference.

Most pages are followed here, without a server.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import jsonschema
import pytest

from bin.pages.reports import FOLDER, REPORTS, files, nested_classes
from streamvault import copy_stream, export_stream
from streamvault.airflow.lists import Rotations
from streamvault.cli import main
from streamvault.cli.app import COMMANDS
from streamvault.streamstore.errors import AccessDenied
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.pravega.connection import PravegaSettings
from streamvault.streamstore.uri import open_stream
from testkit.scenes import Keyed, Scopes
from testkit.small_archives import Vault, a_vault, archive_of
from tests.memory_groups import MemoryGroups
from tests.pages import DOCS, PAGES, ROOT, blocks, command_lines, is_parsed
from tests.site_of_pages import BEFORE, Site, Walk, make_orders, walks
from tests.told import Ran

NAMES = {os.path.relpath(page, DOCS): page for page in PAGES}
NEEDS = {
    "airflow": "tests/commands/test_pages.py",  # with a stand-in; it fails if the page has more of them
    "benchmarks": "tests/unit/project/test_benchmarks.py",
    "cluster": "tests/unit/runner/test_sent.py",
    "docker": "tests/unit/project/test_examples.py",
    "glacier": "tests/integration/test_pages.py",
    "glue": "tests/integration/test_pages.py",
    "iceberg-rest": "tests/integration/test_pages.py",
    "jq": "tests/commands/test_pages.py",
    "kubernetes": "tests/unit/project/test_examples.py",
    "network": "tests/integration/test_wheel.py",
    "readers": "tests/commands/serving/test_serve.py",
    "protoc": "tests/unit/lake/test_protobuf.py",
    "registry": "tests/integration/test_schema_registry.py",
    "systemd": "tests/unit/project/test_examples.py",
}
"""What a block needs → the test that runs it, or what can be run of it without."""

TESTS = {
    "../README.md": "tests/unit/project/test_guides.py",
    "guide/append.md": "tests/commands/test_pages.py",
    "guide/scopes.md": "tests/commands/test_pages.py",
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


STAND_IN = """#!/bin/sh
echo "airflow $*"
env | grep -E '^(AIRFLOW_HOME|AIRFLOW_CONN_SPARK_DEFAULT|STREAMVAULT_ROTATION_FILE)='
"""


def test_trial_declares_the_stream_that_the_demo_leaves(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guide" / "airflow.md").read_text()
    trial = guide.partition("## A trial in five minutes")[2].partition("\n## ")[0]
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", trial, re.MULTILINE | re.DOTALL)
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "trial").mkdir()
    for name, text in {"airflow": STAND_IN, "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n'}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (programs / "streamvault").symlink_to(Path(sys.executable).with_name("streamvault"))
    done = subprocess.run(
        ["sh", "-e"],
        input=commands,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    *_, started, first, second, third = done.stdout.splitlines()
    assert started == "airflow standalone"
    variables = dict(line.split("=", 1) for line in (first, second, third))
    assert json.loads(variables["AIRFLOW_CONN_SPARK_DEFAULT"]) == {"conn_type": "spark", "host": "inline"}
    dags = {file.stem for file in Path(variables["AIRFLOW_HOME"], "dags").iterdir()}
    assert dags == {"archive_rotation", "restore_on_demand", "copy_via_file", "standby"}
    rotations = Rotations.read(None, variables["STREAMVAULT_ROTATION_FILE"])
    (rotation,) = rotations.arguments(lambda *_: [])
    assert rotation["root"] == f"file://{tmp_path}/trial/vault"
    with open_stream(rotation["stream"]) as stream:
        assert stream.exists()


def test_the_guides_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    scopes = Scopes(tmp_path, capfd)
    scopes.make(["orders", "carts"])
    here = {"pravega://localhost:9090": scopes.uri("").rstrip("/"), "s3://vault": scopes.root}
    here["pravega://standby:9090"] = f"local://{tmp_path}/standby"
    guide = (DOCS / "guide" / "scopes.md").read_text()
    for written, real in here.items():
        guide = guide.replace(written, real)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streams.toml").write_text(guide.split("```toml\n")[1].split("```")[0])
    commands = command_lines(guide)
    assert len(commands) == 10
    for command in commands:
        assert main([*command, "--master", "inline"]) == 0, capfd.readouterr().err
        assert "orders: " in capfd.readouterr().out


APPENDING = [" ".join(words) for words in command_lines((DOCS / "guide" / "append.md").read_text())]


def test_the_guide_has_commands() -> None:
    assert len(APPENDING) == 5


@pytest.mark.parametrize("command", APPENDING)
def test_command_of_the_guide(command: str, tmp_path: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Keyed(tmp_path / "shop", scope="shop")
    streams.make("2025", 2, events=30)
    streams.make("2026", events=10)
    streams.make("all", 3, events=5)
    export_stream(streams.uri("2026"), f"file://{tmp_path}/vault", master="inline")
    copy_stream(streams.uri("2025"), streams.uri("clone"), master="inline")
    cut = {f"shop/2025/{segment}": 0 for segment in streams.tail("2025")}
    (tmp_path / "cut.json").write_text(json.dumps(cut))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMVAULT_MASTER", "inline")
    local = command.replace("pravega://HERE:9090", f"local://{tmp_path}/shop").replace("s3://", f"file://{tmp_path}/")
    report = json.loads(ran(*local.split(), "--json").out)
    assert report["unchanged"] == ("--to" in command)
    assert len(report["left_out"]) == (2 if "--distinct" in command else 0)
    assert report["dry_run"] == ("--dry-run" in command)
    appended = 0 if report["unchanged"] or report["dry_run"] else 40 if "2026" in command else 30
    joined = command.startswith("join")
    assert len(streams.payloads("history" if joined else "all")) == appended + (0 if joined else 5)


THERE = "pravega://127.0.0.1:1/shop/orders"
SECOND_CLUSTER = {
    "export": f"{THERE} VAULT",
    "import": f"VAULT/shop/orders {THERE}",
    "copy": f"STREAM {THERE}",
    "append": f"STREAM --into {THERE}",
    "join": f"STREAM --into {THERE}",
    "replicate": f"STREAM {THERE}",
    "promote": THERE,
    "move": f"STREAM {THERE}",
    "translate": f"STREAM {THERE} shop/orders/0.#epoch.0:0-8",
    "streams": "pravega://127.0.0.1:1/shop/",
    "sweep": "pravega://127.0.0.1:1/shop/",
    "status": "pravega://127.0.0.1:1/shop/",
    "report": f"{THERE} -o page.html",
    "plan": THERE,
    "handoff": f"{THERE} --root VAULT",
    "rotate": f"{THERE} VAULT",
    "follow": f"{THERE} VAULT",
    "request-restore": f"VAULT/shop/orders STREAM --queue {THERE}",
    "work": THERE,
    "queue show": THERE,
}
"""Commands with a stream of another cluster. (`doctor` first asks whether anything listens at its port.)"""


def test_commands_with_a_login_for_the_second_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    def refuse(_: object, settings: PravegaSettings) -> None:
        used.append(settings.username)
        raise AccessDenied("denied")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("streamvault.streamstore.pravega.store.PravegaStore.__init__", refuse)
    monkeypatch.setenv("STREAMVAULT_MASTER", "inline")
    for prefix in ("PRAVEGA_", "PRAVEGA_TARGET_"):
        monkeypatch.setenv(f"{prefix}USERNAME", prefix)
        monkeypatch.setenv(f"{prefix}PASSWORD", "secret")
    with LocalStore(tmp_path / "here") as store:
        make_orders(store, StreamName("shop", "orders"))
    stream, vault = f"local://{tmp_path}/here/shop/orders", f"file://{tmp_path}/vault"
    (tmp_path / "vault").mkdir()
    export_stream(stream, vault)
    second = set()
    for command, arguments in SECOND_CLUSTER.items():
        used.clear()
        line = f"{command} {arguments}".replace("STREAM", stream).replace("VAULT", vault)
        assert main(line.split()) == 1, line
        (login,) = set(used)
        second |= {command} if login == "PRAVEGA_TARGET_" else set()
    page = (DOCS / "reference/commands.md").read_text()
    (told,) = re.findall(r"^\| `PRAVEGA_TARGET_USERNAME`.*? second stream of ([^;]*);", page, re.MULTILINE)
    assert set(re.findall("`([a-z]+)`", told)) == second


Print = Callable[..., list[dict[str, Any]]]
INLINE = ("--master", "inline[2]")
WITHOUT = {"show", "get", "cat", "ddl"}
"""Commands that print a manifest, events or statements."""


vault = a_vault(events=60, largest=3000)


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
