"""Files are replaced whole, by several threads at once, too."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamvault.inspect.write import replace_file


def test_two_threads_that_replace_a_file_at_once_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, replace = tmp_path / "metrics.prom", Path.replace

    def meanwhile(made: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        replace_file(file, "the other's")
        assert made.read_text() == "one's"
        return replace(made, target)

    monkeypatch.setattr(Path, "replace", meanwhile)
    replace_file(file, "one's")
    assert file.read_text() == "one's"
    assert list(tmp_path.iterdir()) == [file]


def test_device_stays_one(tmp_path: Path) -> None:
    """Root may put a file in the place of /dev/null, or of /dev/stdout."""
    device, pipe = tmp_path / "device", tmp_path / "pipe"
    device.symlink_to("/dev/null")
    replace_file(device, "text")
    assert device.is_char_device()
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as threads:
        read = threads.submit(pipe.read_text)
        replace_file(pipe, "text")
        assert read.result(timeout=10) == "text"
    assert pipe.is_fifo()


def test_link_to_a_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    for _ in range(2):  # at first, the file does not exist
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / "there" / "file")
        replace_file(link, "text")
        assert link.is_symlink()
        assert link.read_text() == "text"
