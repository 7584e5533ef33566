"""The modes of what is made, whatever the umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamvault.cli import main
from streamvault.common.errors import Usage
from streamvault.common.processes import make_file, make_folder, make_folders, open_file
from streamvault.objectstore.folder import FolderStore
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.streams import make_stream


@pytest.fixture(autouse=True, params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> set[str]:
    """The modes of all below a folder: d for folders, f for files."""
    return {f"{'d' if at.is_dir() else 'f'}{at.stat().st_mode & 0o7777:o}" for at in folder.rglob("*")}


@pytest.mark.parametrize(
    ("given", "expected"), [("", {"d700", "f600"}), ("0750", {"d750", "f640"}), ("2770", {"d2770", "f660"})]
)
def test_archive_store_and_log(given: str, expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMVAULT_MODE", given)
    make_folder(tmp_path / "made")
    stream = StreamName("shop", "orders")
    with parse_stream(f"local://{tmp_path}/made/streams/{stream}")[0].open() as store:
        make_stream(store, stream, events=20)
    for command in (
        ["export", f"local://{tmp_path}/made/streams/shop/orders", f"file://{tmp_path}/made/vault"],
        ["handoff", f"file://{tmp_path}/made/vault/shop/orders", "--format", "parquet"],
    ):
        assert main([*command, "--master", "inline", "-q", "--log-file", str(tmp_path / "made/log")]) == 0
    FolderStore(tmp_path / "made/vault", unnamed_files=False).put("x/named", b"1")
    FolderStore(tmp_path / "made/vault").put_blocks("y/spooled", [b"1"])
    assert modes(tmp_path / "made") == expected


def test_what_exists_keeps_its_mode(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "folder/file"
    folder.mkdir()
    file.touch()
    folder.chmod(0o755)
    file.chmod(0o664)
    make_folders(folder)
    os.close(open_file(file))
    assert modes(tmp_path) == {"d755", "f664"}
    with pytest.raises(FileExistsError):
        make_folders(file)


@pytest.mark.parametrize("given", ["rwx", "0640", "07777777", "750x", "0o750"])
def test_what_is_no_mode_is_a_usage_error(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMVAULT_MODE", given)
    with pytest.raises(Usage, match="is not a valid mode"):
        os.close(make_file(tmp_path / "file"))


def test_mode_is_given_to_no_other_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that somebody puts in place of the folder that was just made."""
    monkeypatch.setenv("STREAMVAULT_MODE", "0777")
    (tmp_path / "other").mkdir(0o700)
    monkeypatch.setattr(Path, "mkdir", lambda folder, _: folder.symlink_to(tmp_path / "other"))
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "made")
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o700
