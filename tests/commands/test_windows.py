"""A task's window: one that is too small is rejected before any work."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault.cli import main
from streamvault.common.errors import Usage
from streamvault.layouts.windows import MIN_WINDOW, WINDOW, check_window
from testkit.small_archives import NAME, Vault, archive_of
from testkit.streams import make_byte_stream

MIB = 1024 * 1024


def test_window_below_the_minimum_is_rejected() -> None:
    check_window(MIN_WINDOW)
    check_window(WINDOW, WINDOW)
    with pytest.raises(Usage, match=r"the window must be at least 16\.0 MiB"):
        check_window(MIN_WINDOW - 1)


def test_window_smaller_than_a_whole_range_is_rejected() -> None:
    with pytest.raises(Usage, match="because a chunk is written whole") as caught:
        check_window(32 * MIB, 32 * MIB + 1)
    assert caught.value.exit_code == 2
    assert "--range-size" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--window", "1MiB"], 2),
        (["--window", "16MiB"], 0),  # events need not fit a whole range
        (["--window", "16MiB", "--layout", "chunks"], 2),  # the default range is larger
        (["--window", "16MiB", "--layout", "chunks", "--range-size", "16MiB"], 0),
        (["--window", "1x"], 2),
        (["--compress", "zstd"], 2),
        (["--compress", "zstd", "--layout", "chunks"], 0),
    ],
)
def test_export_rejects_a_window_that_is_too_small(
    tmp_path: Path, options: list[str], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    vault = Vault(tmp_path, root=f"file://{tmp_path}/vault")
    vault.make(events=20)
    assert main(["export", vault.uri(), vault.root, "--master", "inline", *options]) == code
    assert len(archive_of(vault.root).generations()) == (not code)
    assert capfd.readouterr().err.count("\n") == bool(code)


def test_import_rejects_a_window_below_the_minimum(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    vault = Vault(tmp_path, root=f"file://{tmp_path}/vault")
    vault.make(events=20)
    vault.export("chunks", "zstd")
    line = ["import", vault.archive, f"local://{tmp_path}/streams/scope/restored", "--master", "inline"]
    assert main([*line, "--window", "8MiB"]) == 2
    assert "--window must be at least 16MiB: 8MiB" in capfd.readouterr().err
    with vault.store as store:
        assert [found.stream for found in store.list_streams("scope", own=True)] == [NAME.stream]
    assert main([*line, "--window", "16MiB"]) == 0


def test_window_must_fit_the_ranges_of_an_existing_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An existing plan is resumed, so the window must fit its ranges."""
    vault = Vault(tmp_path, root=f"file://{tmp_path}/vault")
    vault.make(events=20)
    with monkeypatch.context() as patch:
        patch.setattr("streamvault.exporter.run.ExportRun._prove", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        chunks = ["--layout", "chunks", "--range-size", "64MiB", "--window", "64MiB"]
        assert main(["export", vault.uri(), vault.root, "--master", "inline", *chunks]) == 130
    line = ["export", vault.uri(), vault.root, "--master", "inline"]
    assert main([*line, "--window", "16MiB"]) == 2
    assert archive_of(vault.root).generations() == []
    assert main([*line, "--window", "64MiB"]) == 0
    assert archive_of(vault.root).manifest().layout == "chunks"


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_window_of_an_export_with_nothing_new_is_checked_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    """The archive's content decides the layout."""
    vault = Vault(tmp_path)
    with vault.store as store:
        make_byte_stream(store, NAME)
    line = ["export", vault.uri(), vault.root, "--master", "inline"]
    assert main([*line, "--content", "bytes"]) == 0
    assert main([*line, *more, "--range-size", "128MiB"]) == 2
    assert "the window must be at least the range size" in capfd.readouterr().err
