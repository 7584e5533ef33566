"""An import that was stopped or finished, and is run again."""

from __future__ import annotations

import json
import re
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
from streamvault.streamstore.model import KeyRange, Retention, RetentionKind, StreamConfiguration, StreamName
from streamvault.streamstore.own import UNFINISHED
from testkit.scenes import BACK, killed_at_its_end, restore, stopped_after
from testkit.small_archives import KINDS, NAME, RANGE_SIZE, Vault, a_vault
from testkit.streams import append_events
from tests.told import Ran, Restored

Stop = Callable[[], None]


vault = a_vault(events=40, largest=3000, exports=[("chunks", "")] * 2, between=[b"second"], on_disk=True)
"""A stream whose archive has two generations."""


def begin(vault: Vault, *options: str) -> None:
    """An import that stops when half of the data is restored."""
    with stopped_after(1):
        assert restore(vault, *options) == 1
    assert any(tag.startswith(UNFINISHED) for tag in vault.configuration(BACK).tags)


def grow(vault: Vault) -> None:
    """The stream as of the second generation, and a third one."""
    vault.add(b"third" * 100)
    vault.export("chunks")


def is_second(vault: Vault, *options: str) -> bool:
    """Whether the restored stream is what `--generation 2` restores."""
    wanted = replace(NAME, stream="wanted")
    uri = vault.uri(wanted)
    assert main(["import", vault.archive, uri, "--generation", "2", "--master", "inline", *options]) == 0
    return (vault.digest(BACK), vault.shape(BACK)) == (vault.digest(wanted), vault.shape(wanted))


@pytest.mark.parametrize("options", [(), ("--again",), ("--offsets", "shift")], ids=" ".join)
def test_same_command_resumes_its_older_generation(vault: Vault, options: tuple[str, ...], restored: Restored) -> None:
    begin(vault, *options)
    grow(vault)
    assert json.loads(restored(vault, *options, "--dry-run").out)["generation"] == 2
    told = restored(vault, *options)
    report = json.loads(told.out)
    assert (report["resumed"], report["generation"]) == (True, 2)
    (line,) = [line for line in told.err.splitlines() if "the archive has generation 3" in line]
    assert "up to generation 2" in line
    assert report["warnings"] == [line.removeprefix("warning: ")]
    assert is_second(vault, *options)
    assert "the stream exists" in restored(vault, code=4).err
    assert restore(vault, "--again") == 4, "and not the newest"


def test_generation_begun_is_resumed_after_a_merge(vault: Vault) -> None:
    begin(vault)
    grow(vault)
    assert compact_archive(vault.archive, master="inline").runs
    assert restore(vault) == 0
    assert is_second(vault)


def test_import_begun_with_a_generation_is_resumed_without(vault: Vault, restored: Restored) -> None:
    begin(vault, "--generation", "1")
    told = restored(vault)
    assert json.loads(told.out)["generation"] == 1
    assert "the archive has generation 2" in told.err


def test_another_generation_is_refused(vault: Vault, restored: Restored) -> None:
    begin(vault)
    grow(vault)
    before = vault.describe(BACK)
    for other in (("--generation", "3"), ("--generation", "1"), ("--at", "2999-01-01T00:00:00Z")):
        line = restored(vault, *other, code=4).err.splitlines()[-1]
        assert "unfinished target of an import up to generation 2, not " in line
        assert "--generation 2" in line
    assert vault.describe(BACK) == before
    assert restore(vault, "--generation", "2") == 0


def test_import_of_another_archive_is_refused(vault: Vault, restored: Restored) -> None:
    begin(vault)
    elsewhere = replace(vault, root=f"{vault.root}-2")
    Path(vault.folder, "vault-2").mkdir()
    elsewhere.export()
    assert "the unfinished target of" in restored(elsewhere, code=4).err


def test_expired_generation_is_refused(vault: Vault, restored: Restored) -> None:
    begin(vault)
    grow(vault)
    rotate_stream(vault.uri(), vault.root, layout="chunks", range_size=RANGE_SIZE, keep=1, master="inline")
    assert "up to generation 2, not 3" in restored(vault, code=4).err


def test_import_killed_at_its_end_is_finished(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, restored: Restored
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
    assert json.loads(restored(vault).out)["generation"] == 2
    assert is_second(vault)
    assert not vault.exists(lease_stream(BACK))


def failing_verify(*_: Any) -> Any:
    raise Failed("stopped for a test")


def test_other_options_than_those_of_the_unfinished_import_are_named(vault: Vault, restored: Restored) -> None:
    begin(vault, "--offsets", "shift", "--numbers", "map")
    for options in ((), ("--numbers", "map"), ("--offsets", "shift", "--dry-run"), ("--generation", "2")):
        told = restored(vault, *options, code=2).err
        assert "an unfinished import has other options: --offsets shift, --numbers map" in told
        assert "To abandon it, stop its run, then delete the stream" in told
    vault.add(b"third")
    vault.export("chunks")
    assert restore(vault) == 2
    assert restore(vault, "--generation", "1") == 4
    assert restore(vault, "--offsets", "shift", "--numbers", "map") == 0


KEPT = replace(NAME, stream="kept")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_import_again_verifies_what_is_there(
    tmp_path: Path, kind: tuple[str, str], ran: Ran, restored: Restored
) -> None:
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    vault.make(events=40)
    vault.export(*kind)  # type: ignore[arg-type]
    first = json.loads(restored(vault, "--again").out)
    assert not first["unchanged"]
    again = json.loads(restored(vault).out)
    assert (again["unchanged"], again["verified"], again["moved_bytes"]) == (True, False, 0)
    assert "nothing to restore" in ran("import", vault.archive, vault.uri(BACK), "--master", "inline", "--dry-run").out
    assert "already restored" in ran("import", vault.archive, vault.uri(BACK), "--master", "inline").out
    assert json.loads(restored(vault, "--again", "--dry-run").out.splitlines()[-1])["unchanged"]
    assert (
        "would read back and verify"
        in ran("import", vault.archive, vault.uri(BACK), "--master", "inline", "--again", "--dry-run").out
    )
    second = json.loads(restored(vault, "--again").out)
    assert (second["unchanged"], second["events"], second["moved_bytes"]) == (True, first["events"], 0)
    assert (
        "read back and verified" in ran("import", vault.archive, vault.uri(BACK), "--master", "inline", "--again").out
    )


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
    tmp_path: Path, policy: Retention, said: str, restored: Restored
) -> None:
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    with vault.store as store:
        store.create_scope(NAME.scope)
        store.create_stream(NAME, StreamConfiguration(retention=policy))
    vault.add(*[b"event" * 25] * 10)
    vault.export()
    warnings = json.loads(restored(vault, "--dry-run").out)["warnings"]
    if said:
        (warning,) = warnings
        assert re.search(f"the archived retention policy {said}.*; --retention off ", warning)
    else:
        assert not warnings
    assert not json.loads(restored(vault, "--retention", "off").out)["warnings"]
    assert vault.configuration(BACK) == StreamConfiguration()
    assert main(["import", vault.archive, vault.uri(KEPT), "--master", "inline"]) == 0
    assert vault.configuration(KEPT).retention == policy


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
