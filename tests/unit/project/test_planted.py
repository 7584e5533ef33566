"""Modules named like all that is installed, in the folders of a shared machine: no child Python imports one."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from streamvault.runner import session as jvm
from streamvault.runner.runner import Master, SparkFailed
from streamvault.runner.settings import import_folder, settings_for

FOLDERS = {"TMPDIR": "temp", "HOME": "home", "XDG_CACHE_HOME": "cache", "PWD": "here"}
IMPORTING = {**os.environ, "PYTHONPATH": str(import_folder())}

DECODER = """
import io
import pyarrow as pa, pyarrow.parquet as pq
from streamvault.layouts.isolated import NotDecodable, decoded
file = io.BytesIO()
pq.write_table(pa.table({"a": [1]}), file)
try:
    list(decoded(file, {"stored": None}))
except NotDecodable as error:
    assert "has no column" in str(error), error
"""

REGISTERING = """
import sys
from streamvault.spark.sources import _package_of
from streamvault.runner.settings import import_folder
assert _package_of(sys.executable) == str(import_folder())
"""

DEMO = """
from urllib.request import urlopen
from streamvault.demo.tour import s3_server
with s3_server() as endpoint:
    assert urlopen(endpoint).status == 200
"""

TASKS = """
import sys
from streamvault.runner.opening import open_runner
def see(_):
    import os, obstore, zstandard, mmh3, pyarrow
    return [entry for entry in sys.path if entry in ("", os.getcwd())]
with open_runner("local[1]", [see]) as runner:
    [(_, found)] = runner.run(see, [0])
assert found == [], found
"""

OPERATOR = """
import sys
from unittest.mock import patch
from streamvault.airflow.submit import StreamvaultSubmitHook
with patch.object(StreamvaultSubmitHook, "_resolve_connection", lambda self: {"master": "inline", "deploy_mode": None}):
    hook = StreamvaultSubmitHook(conn_id="spark", variables={}, distributed=False)
outcome = hook.run(["ls", f"file://{sys.argv[1]}"])
assert outcome.code == 0, outcome
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders in which a module named like each installed one, and like each of Python's own, leaves a mark."""
    folder = tmp_path_factory.mktemp("planted")
    names = {name for name in {*packages_distributions(), *sys.stdlib_module_names} if name.isidentifier()}
    for place in FOLDERS.values():
        (folder / place).mkdir()
        for name in names - {"streamvault"}:
            (folder / place / f"{name}.py").write_text(
                f"open({str(folder / 'ran')!r}, 'a').write('{place} {name}, ')\n"
            )
    return folder


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(DECODER, id="decoder"),
        pytest.param(REGISTERING, id="registering"),
        pytest.param(DEMO, id="demo"),
        pytest.param(OPERATOR, id="operator"),
        pytest.param(TASKS, id="tasks", marks=pytest.mark.spark),
    ],
)
def test_child_imports_nothing_planted(program: str, planted: Path, tmp_path: Path) -> None:
    ran = planted / "ran"
    ran.unlink(missing_ok=True)
    # an empty part of the path is the working folder; of this process, too, if it had it from the start
    paths = f"import os; os.environ['PYTHONPATH'] = {f':{import_folder()}'!r}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{paths}\n{program}", str(tmp_path)],
        cwd=planted / "here",
        env={**IMPORTING, **{name: str(planted / place) for name, place in FOLDERS.items()}},
        check=False,
        capture_output=True,
        text=True,
    )
    assert not ran.exists(), ran.read_text()
    assert done.returncode == 0, done.stderr


def test_module_on_the_command_line_imports_no_library_planted(tmp_path: Path) -> None:
    for name in packages_distributions().keys() - {"streamvault"}:
        (tmp_path / f"{name}.py").write_text("raise SystemExit(f'imported {__name__}')\n")
    command = [sys.executable, "-m", "streamvault", "ls", tmp_path.as_uri()]
    done = subprocess.run(command, cwd=tmp_path, env=IMPORTING, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"no archives below {tmp_path.as_uri()}\n"), done.stderr


def test_spark_s_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: dict[str, str] = {}

    def popen(*_: object, env: dict[str, str], **__: object) -> None:
        told.update(env)
        raise OSError("enough")

    monkeypatch.setenv("PYTHONPATH", f":{tmp_path}")
    monkeypatch.setattr(jvm.subprocess, "Popen", popen)
    with pytest.raises(SparkFailed):
        jvm.Jvm().start({}, {})
    assert (told["PYTHONSAFEPATH"], told["PYTHONPATH"]) == ("1", str(tmp_path))


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077", "k8s://https://host", "yarn"])
def test_spark_tells_executors(master: str, tmp_path: Path) -> None:
    assert settings_for(Master.parse(master), tmp_path)["spark.executorEnv.PYTHONSAFEPATH"] == "1"
