"""The commands of the guide on scopes work as they are written, on the embedded store and a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault.cli import main
from tests.commands.scopes.scopes import Scopes
from tests.pages import DOCS, command_lines


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
