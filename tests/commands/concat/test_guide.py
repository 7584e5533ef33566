"""Each command of the guide to appending does what the guide says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamvault import copy_stream, export_stream
from streamvault.cli import main
from tests.commands.concat.keyed import Keyed
from tests.pages import DOCS, command_lines

COMMANDS = [" ".join(words) for words in command_lines((DOCS / "guide" / "append.md").read_text())]


def test_the_guide_has_commands() -> None:
    assert len(COMMANDS) == 5


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_guide(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert main([*local.split(), "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["unchanged"] == ("--to" in command)
    assert len(report["left_out"]) == (2 if "--distinct" in command else 0)
    assert report["dry_run"] == ("--dry-run" in command)
    appended = 0 if report["unchanged"] or report["dry_run"] else 40 if "2026" in command else 30
    joined = command.startswith("join")
    assert len(streams.payloads("history" if joined else "all")) == appended + (0 if joined else 5)
