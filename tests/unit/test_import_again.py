"""A finished import that is run again: refused, or with `--again` read back and verified."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from streamvault.cli import main
from tests.streams import append_events
from tests.unit.small_archives import KINDS, NAME, Vault

BACK = replace(NAME, stream="back")


def restore(vault: Vault, *options: str) -> int:
    return main(["import", vault.archive, vault.uri(BACK), "--master", "inline", "--json", *options])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_what_is_there_is_verified(tmp_path: Path, kind: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    vault.make(events=40)
    vault.export(*kind)  # type: ignore[arg-type]
    assert restore(vault, "--again") == 0
    first = json.loads(capfd.readouterr().out)
    assert not first["unchanged"]
    assert restore(vault) == 4
    capfd.readouterr()
    assert restore(vault, "--again") == 0
    second = json.loads(capfd.readouterr().out)
    assert (second["unchanged"], second["events"], second["moved_bytes"]) == (True, first["events"], 0)
    assert main(["import", vault.archive, vault.uri(BACK), "--master", "inline", "--again"]) == 0
    assert "read back and verified" in capfd.readouterr().out


def test_what_was_written_to_is_refused(tmp_path: Path) -> None:
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    vault.make(events=10)
    vault.export()
    assert restore(vault) == 0
    with vault.store as store:
        append_events(store, BACK, min(store.describe(BACK).tail.offsets), [b"more"])
    assert restore(vault, "--again") == 4
