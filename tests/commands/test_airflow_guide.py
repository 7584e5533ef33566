"""The trial of the guide to Airflow: its commands, all but the installation and Airflow itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from streamvault.airflow.lists import Rotations
from streamvault.streamstore.uri import open_stream

ROOT = Path(__file__).parents[2]
AIRFLOW = """#!/bin/sh
echo "airflow $*"
env | grep -E '^(AIRFLOW_HOME|AIRFLOW_CONN_SPARK_DEFAULT|STREAMVAULT_ROTATION_FILE)='
"""


def test_trial_declares_the_stream_that_the_demo_leaves(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guide" / "airflow.md").read_text()
    trial = guide.partition("## A trial in five minutes")[2].partition("\n## ")[0]
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", trial, re.MULTILINE | re.DOTALL)
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "trial").mkdir()
    for name, text in {"airflow": AIRFLOW, "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n'}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (programs / "streamvault").symlink_to(Path(sys.executable).with_name("streamvault"))
    done = subprocess.run(
        ["sh", "-e"],
        input=commands,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    *_, started, first, second, third = done.stdout.splitlines()
    assert started == "airflow standalone"
    variables = dict(line.split("=", 1) for line in (first, second, third))
    assert json.loads(variables["AIRFLOW_CONN_SPARK_DEFAULT"]) == {"conn_type": "spark", "host": "inline"}
    dags = {file.stem for file in Path(variables["AIRFLOW_HOME"], "dags").iterdir()}
    assert dags == {"archive_rotation", "restore_on_demand", "copy_via_file", "standby"}
    rotations = Rotations.read(None, variables["STREAMVAULT_ROTATION_FILE"])
    (rotation,) = rotations.arguments(lambda *_: [])
    assert rotation["root"] == f"file://{tmp_path}/trial/vault"
    with open_stream(rotation["stream"]) as stream:
        assert stream.exists()
