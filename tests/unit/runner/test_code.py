"""The code that is sent to executors."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from streamvault.runner.settings import import_folder, zip_code


def test_zip_has_all_packages_and_can_be_imported(tmp_path: Path) -> None:
    code, again = tmp_path / "code.zip", tmp_path / "again.zip"
    zip_code(code)
    zip_code(again)
    assert code.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(code) as file:
        names = file.namelist()
    assert {name.partition("/")[0] for name in names} == {"streamvault"}
    assert "streamvault/streamstore/pravega/controller_pb2.py" in names
    script = "from streamvault import show_archive; from streamvault.streamstore.pravega import controller_pb2"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(code)!r}); {script}; print(controller_pb2.__file__)",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert str(code) in done.stdout


def test_package_lies_in_the_import_folder() -> None:
    assert (import_folder() / "streamvault").is_dir()
