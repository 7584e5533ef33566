"""The folder store: order and memory of listings, kills, full and read-only disks, foreign files."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamvault.objectstore import folder as folder_listing
from streamvault.objectstore.folder import FolderStore, walk
from streamvault.objectstore.store import AlreadyExists, NoSuchBucket, ObjectStoreError
from testkit.servers.availability import is_required

ROOT = Path(__file__).resolve().parents[3]

names = st.text(st.sampled_from("a0-./_~"), min_size=1, max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(st.sets(names, max_size=25), names, st.integers(1, 5))
def test_listing_is_in_byte_order_with_any_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: set[str], after: str, window: int
) -> None:
    monkeypatch.setattr(folder_listing, "MAX_NAMES", window)
    root = tmp_path / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    paths = set()
    for name in wanted:
        parts = name.split("/")
        if all(part not in {"", ".", ".."} for part in parts):
            try:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(b"x")
            except OSError:
                continue  # a file where a folder is needed, or the other way round
            paths.add(name)
    expected = sorted(paths, key=str.encode)
    assert [path for path, _ in walk(str(root), "", "")] == expected
    assert [path for path, _ in walk(str(root), "", after)] == [path for path in expected if path > after]
    for folder in {path.rpartition("/")[0] + "/" for path in paths if "/" in path}:
        inside = [path for path in expected if path.startswith(folder) and path > after]
        assert [path for path, _ in walk(str(root), folder, after)] == inside


def test_listing_leaves_out_staging_files_broken_links_and_empty_folders(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a/b", b"x")
    (tmp_path / "a" / "b#1-1").write_bytes(b"a staging file")
    (tmp_path / "a" / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "staged").mkdir()
    (tmp_path / "staged" / "b#1-1").write_bytes(b"")
    assert [entry.key for entry in store.list("")] == ["a/b"]
    assert list(store.folders("")) == ["a"]


def test_listing_includes_names_that_are_no_keys(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a", b"")
    (tmp_path / "\u00fc").write_bytes(b"12")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_bytes(b"1")
    assert [(entry.key, entry.size) for entry in store.list("")] == [("a", 0), ("\u00fc", 2), ("\\xff", 1)]


def test_put_refuses_a_key_with_a_file_or_folder_in_the_way(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a/b", b"x")
    with pytest.raises(ObjectStoreError, match="an unrelated file is in the way"):
        store.put("a/b/c", b"x")
    with pytest.raises(ObjectStoreError, match="a folder is in the way"):
        store.put("a", b"x")


def test_root_that_is_a_file_is_no_such_bucket(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("")
    store = FolderStore(tmp_path / "root")
    for ask in (
        lambda: store.put("a", b""),
        lambda: store.get("a"),
        lambda: list(store.list("")),
        lambda: store.folders(""),
        lambda: store.delete(["a"]),
    ):
        with pytest.raises(NoSuchBucket, match="a file is in the place of a folder"):
            ask()


def test_deleting_removes_empty_folders_but_never_the_root(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "root")
    store.put("a/b/c", b"")
    store.put("a/d", b"")
    store.delete(["a/b/c"])
    assert sorted(path.name for path in (tmp_path / "root" / "a").iterdir()) == ["d"]
    store.delete(["a/d"])
    assert list((tmp_path / "root").iterdir()) == []


WRITER = """
import sys, itertools
from pathlib import Path
from streamvault.objectstore.folder import FolderStore
store = FolderStore(Path(sys.argv[1]), unnamed_files=sys.argv[2] == "True")
for number in itertools.count():
    key = f"a/{number:06d}"
    store.put(key, bytes([number % 256]) * 300_000)
    print(key, flush=True)
"""


@pytest.mark.parametrize("unnamed_files", [True, False])
def test_kill_leaves_whole_objects_only(tmp_path: Path, unnamed_files: bool) -> None:
    for attempt in range(5):
        root = tmp_path / str(attempt)
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root), str(unnamed_files)], stdout=subprocess.PIPE, cwd=ROOT, text=True
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(random.uniform(0, 0.2))
        writer.send_signal(signal.SIGKILL)
        acknowledged = 1 + len(writer.stdout.read().splitlines())
        writer.wait()
        store = FolderStore(root)
        found = list(store.list(""))
        assert len(found) in {acknowledged, acknowledged + 1}
        for number, entry in enumerate(found):
            assert entry.key == f"a/{number:06d}"
            assert store.get(entry.key) == bytes([number % 256]) * 300_000
        if unnamed_files:
            assert len(list((root / "a").iterdir())) == len(found)
        with pytest.raises(AlreadyExists):
            store.put(found[-1].key, b"")


LITTLE_DISK = """
import subprocess, sys
from pathlib import Path
from streamvault.objectstore.store import AccessDenied, OutOfSpace
from streamvault.objectstore.folder import FolderStore
disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
print("mounted", flush=True)
for unnamed_files in (True, False):
    store = FolderStore(disk / "root", unnamed_files=unnamed_files)
    store.put("a/1", b"x" * 300_000)
    try:
        store.put("a/2", b"x" * 900_000)
    except OutOfSpace as error:
        assert str(error) == f"the disk is full: {store.uri}/a/2. Free space and run this again.", error
    else:
        raise AssertionError("it fitted")
    assert [entry.key for entry in store.list("")] == ["a/1"]
    assert len(list((disk / "root" / "a").iterdir())) == 1
    store.put("a/2", b"x" * 300_000)
    store.delete(["a/1", "a/2"])
store.put("a/1", b"x")
subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
for ask in (lambda: store.put("a/2", b"x"), lambda: store.put("b/2", b"x"), lambda: store.delete(["a/1"])):
    try:
        ask()
    except AccessDenied as error:
        assert str(error).startswith("the file system is read-only: file://"), error
    else:
        raise AssertionError("it was written")
assert store.get("a/1") == b"x"
"""


def test_full_and_read_only_disks_are_named(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", sys.executable, "-c", LITTLE_DISK, str(tmp_path / "disk")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if "mounted" not in done.stdout:
        reason = f"no disk of its own can be mounted here: {done.stderr.strip().splitlines()[-1:]}"
        if is_required("mount", os.environ):
            pytest.fail(reason)
        pytest.skip(reason)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are flushed to disk."""
    seen: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            seen.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", noted)
    return seen


def test_refused_put_flushes_the_folder_of_the_existing_object(tmp_path: Path, flushed: list[str]) -> None:
    """Its process may have been killed between naming it and flushing the folder."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"x")
    with pytest.raises(AlreadyExists):
        FolderStore(tmp_path).put("a/b", b"x")
    assert str(tmp_path / "a") in flushed


def test_put_flushes_folders_that_another_process_made(tmp_path: Path, flushed: list[str]) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    store = FolderStore(tmp_path)
    store.put("a/b/c", b"x")
    assert flushed == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    store.put("a/b/d", b"x")
    assert flushed[3:] == [str(tmp_path / "a" / "b")]


def test_a_store_remembers_no_folder_that_is_gone(tmp_path: Path) -> None:
    """A program that archives for months makes and removes folders all the time."""
    store = FolderStore(tmp_path)
    store.put("stays/x", b"x")
    before = set(store._flushed)
    for number in range(3):
        store.put(f"work/{number}/rows/x", b"x")
        store.delete([f"work/{number}/rows/x"])
    assert set(store._flushed) == before


def test_staging_files_of_processes_with_the_same_id_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staged: list[str] = []
    link = os.link

    def noted(source: str, target: str) -> None:
        staged.append(source)
        link(source, target)

    monkeypatch.setattr(os, "link", noted)
    for name in ("a", "b"):
        FolderStore(tmp_path / name, unnamed_files=False).put("key", b"x")
    assert len({one.rpartition("#")[2] for one in staged}) == 2
