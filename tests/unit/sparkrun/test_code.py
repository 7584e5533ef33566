"""The code that is sent to executors."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from sparkrun.code import PACKAGES, import_folders, zip_code


def test_zip_has_all_packages_and_can_be_imported(tmp_path: Path) -> None:
    code, again = tmp_path / "code.zip", tmp_path / "again.zip"
    zip_code(code)
    zip_code(again)
    assert code.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(code) as file:
        names = file.namelist()
    assert {name.partition("/")[0] for name in names} == set(PACKAGES)
    assert "streamstore/pravega/controller_pb2.py" in names
    script = "import common.errors, manifests.model, streamstore.pravega.controller_pb2 as stub; print(stub.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(code)!r}); {script}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert str(code) in done.stdout


def test_packages_lie_in_the_import_folders() -> None:
    assert all(any((folder / package).is_dir() for folder in import_folders()) for package in PACKAGES)
