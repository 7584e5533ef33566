"""The cache of downloaded servers: each is built once, completely or not at all."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from testkit.servers.cache import cache_folder, cached


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STREAMVAULT_CACHE", str(tmp_path / "cache"))


def test_cached_builds_once(tmp_path: Path) -> None:
    builds: list[Path] = []

    def build(folder: Path) -> None:
        builds.append(folder)
        (folder / "program").write_text("content")

    first = cached("thing-1", build)
    assert cached("thing-1", build) == first == tmp_path / "cache" / "thing-1"
    assert (first / "program").read_text() == "content"
    assert len(builds) == 1


def test_cached_builds_once_for_concurrent_users() -> None:
    builds: list[Path] = []

    def build(folder: Path) -> None:
        builds.append(folder)
        time.sleep(0.3)
        (folder / "program").write_text("content")

    seen: list[str] = []
    # each call opens the lock file itself, so threads exclude each other as processes do
    threads = [
        threading.Thread(target=lambda: seen.append((cached("thing-1", build) / "program").read_text()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["content"] * 4
    assert len(builds) == 1


def test_failed_build_leaves_nothing_and_is_tried_again() -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise RuntimeError("no network")

    with pytest.raises(RuntimeError, match="no network"):
        cached("thing-1", fail)
    assert [path.name for path in cache_folder().iterdir()] == ["thing-1.lock"]
    assert list(cached("thing-1", lambda folder: (folder / "whole").touch()).iterdir()) == [
        cache_folder() / "thing-1" / "whole"
    ]


def test_files_of_a_killed_build_are_removed() -> None:
    left_over = cache_folder() / "thing-1.building-abc"
    (left_over / "half").mkdir(parents=True)
    cached("thing-1", lambda folder: (folder / "whole").touch())
    assert not left_over.exists()
