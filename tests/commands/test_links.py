"""Symbolic links below the root of a folder: no verb follows one out of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamvault.cli import main
from streamvault.objectstore import folder as store_module
from streamvault.objectstore.folder import FolderStore
from streamvault.objectstore.store import ObjectStoreError
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.streams import make_stream

STREAM = StreamName("shop", "orders")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stream, its archive and a table of it."""
    tmp_path = tmp_path_factory.mktemp("made")
    with parse_stream(f"local://{tmp_path}/streams/{STREAM}")[0].open() as store:
        make_stream(store, STREAM, events=20)
    root = (tmp_path / "vault").as_uri()
    for command in (["export", f"local://{tmp_path}/streams/{STREAM}", root], ["handoff", f"{root}/{STREAM}"]):
        more = ["--format", "parquet"] if command[0] == "handoff" else []
        assert main([*command, *more, "--master", "inline", "-q"]) == 0
    return tmp_path


@pytest.fixture
def archive(made: Path, tmp_path: Path) -> Path:
    """The archive's folder, in a copy of all."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "vault" / "shop" / "orders"


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(at): (at.read_bytes(), at.stat().st_mtime_ns) for at in folder.rglob("*") if at.is_file()}


@pytest.mark.parametrize("place", ["archive", "folders", "files"])
@pytest.mark.parametrize(
    "command",
    [
        "export {stream} {root}",
        "check {archive} --read-data",
        "cat {archive}",
        "import {archive} {stream}2",
        "handoff {archive} --format parquet --table other",
        "compact {archive}",
        "hold {archive} audit",
        "delete {archive} --yes",
    ],
    ids=lambda command: command.split()[0],
)
def test_nothing_outside_is_read_or_changed(
    command: str, place: str, archive: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    moved = {
        "archive": [archive],
        "folders": [at for at in archive.iterdir() if at.is_dir()],
        "files": [at for at in archive.rglob("*") if at.is_file()],
    }[place]
    outside = tmp_path / "outside"
    for number, at in enumerate(moved):
        outside.mkdir(exist_ok=True)
        at.rename(outside / str(number))
        at.symlink_to(outside / str(number))
    before = contents(outside)
    places = {
        "stream": f"local://{tmp_path}/streams/{STREAM}",
        "root": (tmp_path / "vault").as_uri(),
        "archive": archive.as_uri(),
    }
    words = command.format(**places).split()
    tasks = [] if words[0] in {"cat", "hold", "delete"} else ["--master", "inline"]
    code = main([*words, *tasks, "-q"])
    shown = capfd.readouterr()
    assert contents(outside) == before
    assert code in {1, 3, 4, 5}, shown
    assert shown.out == ""
    assert "Traceback" not in shown.err


def test_folder_store_follows_no_link_below_its_root(tmp_path: Path) -> None:
    (tmp_path / "outside/deep").mkdir(parents=True)
    (tmp_path / "outside/deep/file").write_bytes(b"secret")
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")  # the root itself may be one
    store = FolderStore(tmp_path / "root")
    store.put("a/file", b"1")
    (tmp_path / "root/out").symlink_to(tmp_path / "outside")
    (tmp_path / "root/in").symlink_to(tmp_path / "real/a")
    (tmp_path / "root/a/link").symlink_to(tmp_path / "outside/deep/file")
    calls = {
        "get": lambda: store.get("out/deep/file"),
        "get inside": lambda: store.get("in/file"),
        "get file": lambda: store.get("a/link"),
        "size": lambda: store.size("out/deep/file"),
        "range": lambda: store.get_range("out/deep/file", 0, 1),
        "list": lambda: list(store.list("out/")),
        "folders": lambda: store.folders("out/"),
        "put": lambda: store.put("out/deep/new", b"2"),
        "put folder": lambda: store.put("out/new/new", b"2"),
        "put blocks": lambda: store.put_blocks("out/new/new", [b"2"]),
        "delete": lambda: store.delete(["out/deep/file"]),
    }
    for call in calls.values():
        with pytest.raises(ObjectStoreError, match="symbolic link"):
            call()
    store.delete(["a/link"])  # the link itself
    assert [info.key for info in store.list("")] == ["a/file"]
    assert store.folders("") == ["a"]
    assert contents(tmp_path / "outside").keys() == {str(tmp_path / "outside/deep/file")}
    assert not (tmp_path / "outside/new").exists()


@pytest.mark.parametrize("call", ["put", "delete"])
def test_folder_that_becomes_a_link_leads_nowhere_else(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two steps of a call."""
    store = FolderStore(tmp_path / "root")
    store.put("a/b/file", b"1")
    (tmp_path / "outside/b").mkdir(parents=True)

    def swapping(do: Callable[..., None]) -> Callable[..., None]:
        def at_once(*given: Any, **options: Any) -> None:
            monkeypatch.undo()
            if call == "delete":
                do(*given, **options)
            (tmp_path / "root/a").rename(tmp_path / "root/moved")
            (tmp_path / "root/a").symlink_to(tmp_path / "outside")
            if call == "put":
                do(*given, **options)

        return at_once

    if call == "put":
        monkeypatch.setattr(store_module, "make_folder", swapping(store_module.make_folder))
        with pytest.raises(ObjectStoreError):
            store.put("a/c/d/file", b"2")
    else:
        monkeypatch.setattr(os, "unlink", swapping(os.unlink))
        store.delete(["a/b/file"])
    assert [at.name for at in (tmp_path / "outside").rglob("*")] == ["b"]
