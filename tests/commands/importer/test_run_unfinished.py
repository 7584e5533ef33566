"""An import that was stopped and is run again when the archive has a newer generation."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import compact_archive, rotate_stream
from streamvault.cli import main
from streamvault.common.errors import Failed
from streamvault.importer.run import ImportRun
from streamvault.importer.target import lease_stream
from streamvault.streamstore.lease import last_heartbeat
from streamvault.streamstore.own import UNFINISHED
from testkit.small_archives import NAME, RANGE_SIZE, Vault
from testkit.streams import digest_of, shape_of
from tests.commands.importer.restores import BACK, killed_at_its_end, restore, stopped_after

Stop = Callable[[], None]


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """A stream whose archive has two generations."""
    found = Vault(tmp_path, f"file://{tmp_path}/vault")
    Path(tmp_path, "vault").mkdir()
    found.make(events=40, largest=3000)
    found.export("chunks")
    found.add(b"second")
    found.export("chunks")
    return found


def begin(vault: Vault, *options: str) -> None:
    """An import that stops when half of the data is restored."""
    with stopped_after(1):
        assert restore(vault, *options) == 1
    with vault.store as store:
        assert any(tag.startswith(UNFINISHED) for tag in store.describe(BACK).configuration.tags)


def grow(vault: Vault) -> None:
    """The stream as of the second generation, and a third one."""
    vault.add(b"third" * 100)
    vault.export("chunks")


def is_second(vault: Vault, *options: str) -> bool:
    """Whether the restored stream is what `--generation 2` restores."""
    wanted = replace(NAME, stream="wanted")
    uri = vault.uri(wanted)
    assert main(["import", vault.archive, uri, "--generation", "2", "--master", "inline", *options]) == 0
    with vault.store as store:
        return (digest_of(store, BACK), shape_of(store, BACK)) == (digest_of(store, wanted), shape_of(store, wanted))


@pytest.mark.parametrize("options", [(), ("--again",), ("--offsets", "shift")], ids=" ".join)
def test_same_command_resumes_its_older_generation(
    vault: Vault, options: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    begin(vault, *options)
    grow(vault)
    capfd.readouterr()
    assert restore(vault, *options, "--dry-run") == 0
    assert json.loads(capfd.readouterr().out)["generation"] == 2
    assert restore(vault, *options) == 0
    told = capfd.readouterr()
    report = json.loads(told.out)
    assert (report["resumed"], report["generation"]) == (True, 2)
    (line,) = [line for line in told.err.splitlines() if "the archive has generation 3" in line]
    assert "up to generation 2" in line
    assert report["warnings"] == [line.removeprefix("warning: ")]
    assert is_second(vault, *options)
    assert restore(vault) == 4, "it is finished now"
    assert "the stream exists" in capfd.readouterr().err
    assert restore(vault, "--again") == 4, "and not the newest"


def test_generation_begun_is_resumed_after_a_merge(vault: Vault) -> None:
    begin(vault)
    grow(vault)
    assert compact_archive(vault.archive, master="inline").runs
    assert restore(vault) == 0
    assert is_second(vault)


def test_import_begun_with_a_generation_is_resumed_without(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    begin(vault, "--generation", "1")
    capfd.readouterr()
    assert restore(vault) == 0
    told = capfd.readouterr()
    assert json.loads(told.out)["generation"] == 1
    assert "the archive has generation 2" in told.err


def test_another_generation_is_refused(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    begin(vault)
    grow(vault)
    with vault.store as store:
        before = store.describe(BACK)
    for other in (("--generation", "3"), ("--generation", "1"), ("--at", "2999-01-01T00:00:00Z")):
        capfd.readouterr()
        assert restore(vault, *other) == 4
        line = capfd.readouterr().err.splitlines()[-1]
        assert "unfinished target of an import up to generation 2, not " in line
        assert "--generation 2" in line
    with vault.store as store:
        assert store.describe(BACK) == before
    assert restore(vault, "--generation", "2") == 0


def test_import_of_another_archive_is_refused(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    begin(vault)
    elsewhere = replace(vault, root=f"{vault.root}-2")
    Path(vault.folder, "vault-2").mkdir()
    elsewhere.export()
    capfd.readouterr()
    assert restore(elsewhere) == 4
    assert "the unfinished target of" in capfd.readouterr().err


def test_expired_generation_is_refused(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    begin(vault)
    grow(vault)
    rotate_stream(vault.uri(), vault.root, layout="chunks", range_size=RANGE_SIZE, keep=1, master="inline")
    capfd.readouterr()
    assert restore(vault) == 4
    assert "up to generation 2, not 3" in capfd.readouterr().err


def test_import_killed_at_its_end_is_finished(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with killed_at_its_end(monkeypatch):
        restore(vault)
    with vault.store as store:
        assert not any(tag.startswith(UNFINISHED) for tag in store.describe(BACK).configuration.tags)
        record = last_heartbeat(store, lease_stream(BACK))
        assert record is not None
        assert record.finishing
    grow(vault)
    assert restore(vault, "--generation", "3") == 4, "and what the lease says is not lost by that"
    with monkeypatch.context() as patch:
        patch.setattr(ImportRun, "_verify", failing_verify)
        assert restore(vault) == 1, "stopped once more, while it reads back"
    capfd.readouterr()
    assert restore(vault) == 0
    assert json.loads(capfd.readouterr().out)["generation"] == 2
    assert is_second(vault)
    with vault.store as store:
        assert not store.exists(lease_stream(BACK))


def failing_verify(*_: Any) -> Any:
    raise Failed("stopped for a test")


def test_other_options_than_those_of_the_unfinished_import_are_named(
    vault: Vault, capfd: pytest.CaptureFixture[str]
) -> None:
    begin(vault, "--offsets", "shift", "--numbers", "map")
    for options in ((), ("--numbers", "map"), ("--offsets", "shift", "--dry-run"), ("--generation", "2")):
        capfd.readouterr()
        assert restore(vault, *options) == 2
        told = capfd.readouterr().err
        assert "an unfinished import has other options: --offsets shift, --numbers map" in told
        assert "To give it up, end its run, then delete the stream" in told
    vault.add(b"third")
    vault.export("chunks")
    assert restore(vault) == 2
    assert restore(vault, "--generation", "1") == 4
    assert restore(vault, "--offsets", "shift", "--numbers", "map") == 0
