"""What the scripts of `bin/` say and install, with a uv that is made up, and offline."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

UV = """#!/bin/sh
case $1 in
--version) exit 0 ;;
export) echo '{packages}' > "$8" ;;
esac
for argument do case $argument in
*known.json) printf '%s' '{known}' > "$argument" ;;
*packages.json) printf '%s' '{found}' > "$argument"; exit {code} ;;
esac; done
"""
VULNERABLE = '{"dependencies": [{"name": "x", "version": "1", "vulns": [{"id": "PYSEC-1"}]}]}'
SOUND = '{"dependencies": [{"name": "x", "version": "1", "vulns": []}]}'
SKIPPED = '{"dependencies": [{"name": "x", "skip_reason": "not found"}]}'


@pytest.mark.parametrize(
    ("known", "found", "code", "exit_code", "said"),
    [
        (VULNERABLE, SOUND, 0, 0, "ok      audit: no known vulnerability in 1 packages"),
        (VULNERABLE, VULNERABLE, 1, 1, "WRONG   audit"),
        (VULNERABLE, SKIPPED, 0, 2, "NOT DONE  audit: some of the packages"),
        (VULNERABLE, "", 1, 2, "NOT DONE  audit: some of the packages"),
        (SKIPPED, SOUND, 0, 2, "NOT DONE  audit: no database"),
        (SOUND, SOUND, 0, 2, "NOT DONE  audit: no database"),
        ("", SOUND, 0, 2, "NOT DONE  audit: no database"),
    ],
)
def test_audit_that_saw_nothing_is_no_success(
    known: str, found: str, code: int, exit_code: int, said: str, tmp_path: Path
) -> None:
    uv = tmp_path / "uv"
    uv.write_text(UV.format(packages="x==1", known=known, found=found, code=code))
    uv.chmod(0o755)
    variables = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "STREAMVAULT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([ROOT / "bin/check", "--audit"], env=variables, check=False, capture_output=True, text=True)
    assert (done.returncode, said in done.stderr) == (exit_code, True), done.stderr


@pytest.mark.parametrize("is_ours", [True, False])
def test_uv_is_installed_by_its_digest(is_ours: bool, tmp_path: Path) -> None:
    """A script beside copies of lib.sh and uv.txt, of which the latter has the digest of a wheel that is made up."""
    wheel = tmp_path / "index/uv-9.9.9-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as file:
        program = zipfile.ZipInfo("uv-9.9.9.data/scripts/uv")
        program.external_attr = 0o100755 << 16
        file.writestr(program, "#!/bin/sh\necho uv 9.9.9\n")
        file.writestr("uv-9.9.9.dist-info/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 9.9.9\n")
        file.writestr("uv-9.9.9.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("uv-9.9.9.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes() if is_ours else b"another").hexdigest()
    scripts = tmp_path / "project/bin"
    scripts.mkdir(parents=True)
    (scripts / "lib.sh").write_bytes((ROOT / "bin/lib.sh").read_bytes())
    (scripts / "uv.txt").write_text(f"uv==9.9.9 \\\n    --hash=sha256:{digest}\n")
    (scripts / "try").write_text('#!/bin/sh\n. "$(dirname -- "$0")/lib.sh"\nfind_uv\nuv --version\n')
    python = tmp_path / "python3.11"  # without venv, which takes seconds
    python.write_text(f'#!/bin/sh\n[ "$2" != venv ] && exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "STREAMVAULT_CACHE": str(tmp_path / "cache"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheel.parent),
    }
    done = subprocess.run(["sh", scripts / "try"], env=variables, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == ((0, "uv 9.9.9\n") if is_ours else (1, "")), done.stderr
    assert is_ours or "uv could not be installed" in done.stderr
