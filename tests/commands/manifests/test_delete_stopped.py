"""An archive whose deletion was stopped after its first decision: it is read, nothing is added, and commands say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault.cli import main
from testkit.small_archives import NAME, Vault, archive_of, contents, is_sound

MASTER = ("--master", "inline")
SAY_SO = (("ls", "ROOT"), ("status", "ROOT"), ("status", "SCOPE/", "--root", "ROOT"), ("timeline", "A"), ("show", "A"))
READ = (
    ("check", "A", *MASTER),
    ("cat", "A"),
    ("import", "A", "STREAM-2", *MASTER),
    ("replicate", "A", "STREAM-3", *MASTER),
    ("join", "A", "--into", "STREAM-4", *MASTER),
    ("convert", "A", "OTHER", "--layout", "chunks", *MASTER),
    ("report", "A", "-o", "FILE"),
    ("warm", "A"),
    ("delete", "A"),
)
ADD = (
    ("export", "STREAM", "ROOT", *MASTER),
    ("export", "STREAM", "ROOT", "--dry-run"),
    ("export", "STREAM", "ROOT", "--restart", *MASTER),
    ("rotate", "STREAM", "ROOT", "--keep", "1", "--truncate-source", *MASTER),
    ("rotate", "SCOPE/ab*", "ROOT", "--keep", "1", *MASTER),
    ("follow", "STREAM", "ROOT", *MASTER),
    ("hold", "A", "audit"),
    ("release", "A", "audit"),
)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    vault.make(events=20, largest=2000)
    vault.export("events")
    vault.add(b"more")
    archive_of(vault.root).decide(lambda now: now.decision.delete("begun"), deleting=True)
    return vault


def words(vault: Vault, command: tuple[str, ...]) -> list[str]:
    stream, scope = vault.uri(), vault.uri().rpartition("/")[0]
    given = {
        "ROOT": vault.root,
        "A": vault.archive,
        "FILE": f"{vault.folder}/page.html",
        "OTHER": f"{vault.root}-2",
        "SCOPE/": f"{scope}/",
        "SCOPE/ab*": f"{scope}/{NAME.stream[:2]}*",
        "STREAM": stream,
    }
    return [given.get(each) or each.replace("STREAM-", f"{stream}-") for each in command]


def says(vault: Vault) -> str:
    return archive_of(vault.root).listing().decision.title


def test_commands_that_list_say_so(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    for command in SAY_SO:
        assert main(words(vault, command)) == 0, command
        told = " ".join(capfd.readouterr().out.split())
        assert "being deleted" in told or "DELETION" in told or "deletion begun" in told, command
        if command[0] in {"timeline", "show"}:
            assert f"says {says(vault)}" in told, command
            assert "--yes" not in told, command


def test_it_can_be_read(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    before = contents(vault.root)
    for command in READ:
        assert main(words(vault, command)) == 0, command
    assert contents(vault.root) == before
    assert is_sound(vault.root)


def test_nothing_is_added_and_nothing_is_lost(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    before, head = contents(vault.root), vault.described.head
    capfd.readouterr()
    for command in ADD:
        assert main(words(vault, command)) == 4, command
        told = capfd.readouterr()
        line = (
            f"the archive is being deleted, says {says(vault)}: {vault.archive}. Archive the stream below another root"
        )
        assert line in told.err, command
        assert "--yes" not in told.err, command
        assert len(told.err.splitlines()) == 1, command
    assert contents(vault.root) == before
    assert vault.described.head == head
    assert main(["delete", vault.archive, "--yes"]) == 0
    assert "an unfinished deletion of an earlier run" in capfd.readouterr().out
