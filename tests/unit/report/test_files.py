"""Files are replaced whole, by several threads at once, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault.report.files import replace_file


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
