"""A finished import that is run again: nothing to do, or with `--again` read back and verified."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from streamvault.cli import main
from streamvault.streamstore.model import KeyRange, Retention, RetentionKind, StreamConfiguration, StreamName
from testkit.small_archives import KINDS, NAME, Vault
from testkit.streams import append_events
from tests.commands.importer.restores import BACK, restore

KEPT = replace(NAME, stream="kept")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_import_again_verifies_what_is_there(
    tmp_path: Path, kind: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    vault.make(events=40)
    vault.export(*kind)  # type: ignore[arg-type]
    assert restore(vault, "--again") == 0
    first = json.loads(capfd.readouterr().out)
    assert not first["unchanged"]
    assert restore(vault) == 0
    again = json.loads(capfd.readouterr().out)
    assert (again["unchanged"], again["verified"], again["moved_bytes"]) == (True, False, 0)
    assert main(["import", vault.archive, vault.uri(BACK), "--master", "inline", "--dry-run"]) == 0
    assert "nothing to restore" in capfd.readouterr().out
    assert main(["import", vault.archive, vault.uri(BACK), "--master", "inline"]) == 0
    assert "already restored" in capfd.readouterr().out
    assert restore(vault, "--again", "--dry-run") == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["unchanged"]
    assert main(["import", vault.archive, vault.uri(BACK), "--master", "inline", "--again", "--dry-run"]) == 0
    assert "would read back and verify" in capfd.readouterr().out
    assert restore(vault, "--again") == 0
    second = json.loads(capfd.readouterr().out)
    assert (second["unchanged"], second["events"], second["moved_bytes"]) == (True, first["events"], 0)
    assert main(["import", vault.archive, vault.uri(BACK), "--master", "inline", "--again"]) == 0
    assert "read back and verified" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Retention(RetentionKind.SIZE, 100, 200), "keeps 100 of 1[0-9]{3} restored bytes"),
        (Retention(RetentionKind.TIME, 3_600_000, 0), "keeps events for .*, counted from the restore"),
        (Retention(RetentionKind.SIZE, 1024**3, 0), ""),
        (Retention(), ""),
    ],
)
def test_dry_run_warns_of_what_a_retention_policy_may_delete(
    tmp_path: Path, policy: Retention, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    with vault.store as store:
        store.create_scope(NAME.scope)
        store.create_stream(NAME, StreamConfiguration(retention=policy))
    vault.add(*[b"event" * 25] * 10)
    vault.export()
    capfd.readouterr()
    assert restore(vault, "--dry-run") == 0
    warnings = json.loads(capfd.readouterr().out)["warnings"]
    if said:
        (warning,) = warnings
        assert re.search(f"the archived retention policy {said}.*; --retention off ", warning)
    else:
        assert not warnings
    assert restore(vault, "--retention", "off") == 0
    assert not json.loads(capfd.readouterr().out)["warnings"]
    with vault.store as store:
        assert store.describe(BACK).configuration == StreamConfiguration()
    assert main(["import", vault.archive, vault.uri(KEPT), "--master", "inline"]) == 0
    with vault.store as store:
        assert store.describe(KEPT).configuration.retention == policy


def scaled(vault: Vault, name: StreamName, *payloads: bytes) -> None:
    """A stream whose open segments are empty."""
    with vault.store as store:
        store.create_scope(name.scope)
        store.create_stream(name, StreamConfiguration())
        (first,) = store.describe(name).tail.offsets
        append_events(store, name, first, payloads)
        store.scale(name, [first], [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)])


@pytest.mark.parametrize("payloads", [(b"B",), (b"event of b",) * 5], ids=["other size", "same size"])
def test_stream_with_empty_open_segments_is_not_taken_for_another(
    tmp_path: Path, payloads: tuple[bytes, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    scaled(vault, NAME, *(b"event of a",) * 5)
    scaled(vault, BACK, *payloads)
    vault.export()
    for options in ((), ("--again",)):
        assert restore(vault, *options) == 4
        assert "the stream exists" in capfd.readouterr().err
    assert main(["import", vault.archive, vault.uri(KEPT), "--master", "inline"]) == 0
    for options in ((), ("--again",)):
        assert main(["import", vault.archive, vault.uri(KEPT), "--master", "inline", *options]) == 0
    assert "read back and verified" in capfd.readouterr().out


def test_part_of_another_stream_is_not_taken_for_restored(tmp_path: Path) -> None:
    """No archived range is restored as a whole."""
    one, other = Vault(tmp_path / "one"), Vault(tmp_path / "other")
    for vault, payload in ((one, b"a"), (other, b"b")):
        with vault.store as store:
            store.create_scope(NAME.scope)
            store.create_stream(NAME, StreamConfiguration())
        vault.add(payload * 50)
    cut = json.dumps({f"{NAME}/0.#epoch.0": 58})
    one.add(b"more")
    one.export()
    assert main(["import", one.archive, other.uri(), "--to", cut, "--master", "inline"]) == 4
    assert main(["import", one.archive, one.uri(BACK), "--to", cut, "--master", "inline"]) == 0
    assert main(["import", one.archive, one.uri(BACK), "--to", cut, "--master", "inline"]) == 0
