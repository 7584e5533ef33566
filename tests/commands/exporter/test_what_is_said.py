"""What an export says that writes nothing: because there is nothing new, or because it is a dry run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamvault.cli import main
from testkit.small_archives import NAME, Vault, archive_of

INLINE = ("--master", "inline")


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"one", b"two")
    return vault


def test_unchanged_export_repeats_the_fingerprint(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    first = vault.export()
    assert first.fingerprint == archive_of(vault.root).fingerprint()
    for more in ((), ("--dry-run",)):
        assert main(["export", vault.uri(), vault.root, *INLINE, *more, "--json"]) == 0
        report = json.loads(capfd.readouterr().out)
        assert (report["unchanged"], report["fingerprint"]) == (True, first.fingerprint)
        assert main(["export", vault.uri(), vault.root, *INLINE, *more]) == 0
        assert first.fingerprint in capfd.readouterr().out
    vault.add(b"three")
    assert main(["export", vault.uri(), vault.root, *INLINE, "--dry-run", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["fingerprint"] == ""


@pytest.mark.parametrize("verb", ["export", "rotate"])
def test_dry_run_says_what_it_guesses(vault: Vault, verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    line = [verb, vault.uri(), vault.root, "--layout", "chunks", *INLINE, "--dry-run"]
    assert main(line) == 0
    assert "about" not in capfd.readouterr().out, "the sample has all events"
    vault.add(*[b"x" * 100_000] * 20)  # more than the sample
    assert main(line) == 0
    assert "about 2" in capfd.readouterr().out
    assert main([*line, "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report.get("export", report)["events_estimated"]


def test_range_that_was_moved_twice_counts_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    vault = Vault(tmp_path)
    vault.make(60, largest=200)
    line = ["export", vault.uri(), vault.root, *INLINE, "--range-size", "40"]  # most ranges begin inside an event
    assert main([*line, "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["moved_bytes"] == report["bytes"] > 0


def test_time_that_timeline_prints_chooses_its_generation(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        vault.add(b"more")
        assert vault.export().generation == number
    assert main(["timeline", f"{vault.root}/{NAME}"]) == 0
    rows = [line.split() for line in capfd.readouterr().out.splitlines()[3:]]
    assert [row[0] for row in rows] == ["1", "2"]
    for number, day, hour, *_ in rows:
        line = ["import", f"{vault.root}/{NAME}", f"{vault.uri()}-restored", "--at", f"{day} {hour}", *INLINE]
        assert main([*line, "--dry-run", "--json"]) == 0
        assert json.loads(capfd.readouterr().out)["generation"] == int(number)


def test_limit_below_zero_is_refused_like_any_number(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", f"{vault.root}/{NAME}", "--limit", "-1"]) == 2
    assert capfd.readouterr().err == "streamvault: --limit must be at least 0: -1\n"
