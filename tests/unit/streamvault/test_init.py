"""The package's public interface: its functions, its version, and the origin of the packages it imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import streamvault

ROOT = Path(streamvault.__file__).parents[1]


def test_dir_lists_every_function() -> None:
    assert {*streamvault.__all__, "__version__"} == set(dir(streamvault))
    assert all(callable(getattr(streamvault, name)) for name in streamvault.__all__)


def test_import_refuses_another_package_of_the_same_name(tmp_path: Path) -> None:
    other = tmp_path / "manifests"
    other.mkdir()
    (other / "__init__.py").touch()
    paths = [str(tmp_path), str(ROOT)]
    program = f"import sys; sys.path[:0] = {paths!r}; import streamvault"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 1
    assert f"Streamvault's package 'manifests' is shadowed by {other / '__init__.py'}" in run.stderr
