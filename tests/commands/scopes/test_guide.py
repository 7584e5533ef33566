"""The commands of the guide on scopes work as they are written, on the embedded store and a folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from streamvault.cli import main
from tests.commands.scopes.scopes import Scopes

GUIDE = Path(__file__).parents[3] / "docs/guide/scopes.md"


def test_the_guides_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    scopes = Scopes(tmp_path, capfd)
    scopes.make(["orders", "carts"])
    here = {"pravega://localhost:9090": scopes.uri("").rstrip("/"), "s3://vault": scopes.root}
    here["pravega://standby:9090"] = f"local://{tmp_path}/standby"
    guide = GUIDE.read_text()
    for written, real in here.items():
        guide = guide.replace(written, real)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streams.toml").write_text(guide.split("```toml\n")[1].split("```")[0])
    commands = re.findall(r"^streamvault (.*)$", guide, re.MULTILINE)
    assert len(commands) == 10
    for command in commands:
        assert main([*shlex.split(command), "--master", "inline"]) == 0, capfd.readouterr().err
        assert "orders: " in capfd.readouterr().out
