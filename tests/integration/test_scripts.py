"""The scripts of bin/ on a machine without uv."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = {
    "bench": ["--help"],
    "check": ["--size"],
    "demo": ["--help"],
    "docs": ["build"],
    "prove": ["--help"],
    "setup": [],
    "test": ["--collect-only", "-q", "tests/unit/project/test_packages.py"],
}
"""What each does here: all that needs uv, and little else."""
ELSEWHERE = {"release": "test_wheel.py", "image": "test_image.py", "figures": "test_figures.py"}
"""Scripts that other tests run: without uv, or, as for the figures, in Python alone."""

CALLS = """
. "$(dirname -- "$0")/lib.sh"
before=$1 after=$2
set >"$before"
find_uv
find_python >&2
have_java || :
install dev
set >"$after"
"""


def test_every_script_is_tried() -> None:
    names = {path.name for path in (ROOT / "bin").iterdir() if os.access(path, os.X_OK) and path.is_file()}
    assert names == SCRIPTS.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_runs_without_uv(name: str, without_uv: Mapping[str, str]) -> None:
    done = subprocess.run(
        [ROOT / "bin" / name, *SCRIPTS[name]], env=without_uv, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert list(Path(without_uv["STREAMVAULT_CACHE"]).glob("uv-*/bin/uv"))


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_what_scripts_share_sets_no_variable_of_theirs(
    shell: str, without_uv: Mapping[str, str], tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    subprocess.run([shell, "-c", CALLS, ROOT / "bin" / "any", before, after], env=without_uv, check=True, timeout=300)
    changed = set(after.read_text().splitlines()) - set(before.read_text().splitlines())
    names = {line.partition("=")[0] for line in changed}
    assert names <= {"PATH", "_", "PIPESTATUS", "BASH_LINENO", "FUNCNAME", "BASH_ARGC", "BASH_ARGV", "LINENO"}
