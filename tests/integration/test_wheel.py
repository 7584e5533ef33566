"""The wheel, installed beside packages of a user's own that are called common, exporter, importer, lake and dags."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from testkit.servers.spark_cluster import python_without_the_project

ROOT = Path(__file__).parents[2]
OFTEN_USED = ("common", "dags", "exporter", "importer", "lake", "layouts", "manifests", "rotation")
ALERTS = "def alert(): return 'mine'\n"

PROVIDERS = """
import airflow
from airflow.providers_manager import ProvidersManager

manager = ProvidersManager()
assert "streamvault" in manager.providers, sorted(manager.providers)
assert manager.hooks["pravega"].hook_name == "Pravega"
from common.alerts import alert
import streamvault.exporter.export, streamvault.lake.handoff

print(alert(), streamvault.__file__)
"""

DAGS = """
import sys
from airflow.dag_processing.dagbag import DagBag

bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
print(*sorted(bag.dags))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, without_uv: dict[str, str]) -> Path:
    """What a release consists of, whose wheel was tried in an environment of its own."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([ROOT / "bin" / "release", folder], check=True, timeout=300, env=without_uv)
    return folder


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A user's own packages, which come first on the path."""
    for name in OFTEN_USED:
        (tmp_path / "beside" / name).mkdir(parents=True)
        (tmp_path / "beside" / name / "__init__.py").write_text("raise RuntimeError\n" if name != "common" else "")
        (tmp_path / "beside" / name / "alerts.py").write_text(ALERTS)
    return tmp_path / "beside"


def test_wheel_and_sdist_have_one_package_and_those_by_which_spark_finds_it(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert {re.sub(r"-.*(?=\.dist-info)", "", name.partition("/")[0]) for name in names} == {
        "streamvault",
        "streamvault.dist-info",
        "pyspark_streamvault",
        "pyspark_streamvault_pravega",
    }
    assert "streamvault/dags/archive_rotation.py" in names
    assert "streamvault/streamstore/pravega/controller_pb2.py" in names
    assert "streamvault/__init__.pyi" in names  # type checkers read it
    assert "streamvault/py.typed" in names
    (image,) = built.glob("*-image.tar.gz")
    with tarfile.open(image) as archive:
        sent = {name.split("/")[0] for name in archive.getnames()}
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sent == let_through | {".dockerignore", "Dockerfile"}
    (sdist,) = set(built.glob("*.tar.gz")) - {image}
    with tarfile.open(sdist) as archive:
        links = [member.name for member in archive.getmembers() if not member.isfile() and not member.isdir()]
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert links == []
    assert not tops & {"exporter", "importer", "manifests", "dags", "tests"}


def test_release_lists_what_it_brings_and_its_digests(built: Path) -> None:
    [listed] = built.glob("streamvault-*-sbom.json")
    found = json.loads(listed.read_text())
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.5")
    assert {"obstore", "pyspark", "pyarrow", "moto"} <= {component["name"] for component in found["components"]}
    done = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=built, check=True, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == len(list(built.glob("streamvault-*"))) == 4


def test_wheel_leaves_packages_of_the_user_alone(built: Path, beside: Path, tmp_path: Path) -> None:
    """Airflow imports its providers when it starts, so one that fails beside a user's folders fails all of Airflow."""
    python = python_without_the_project(tmp_path / "environment")
    (packages,) = (tmp_path / "environment" / "lib").glob("python3*/site-packages")
    (packages / "common").mkdir()
    (packages / "common" / "alerts.py").write_text(ALERTS)
    (wheel,) = built.glob("*.whl")
    subprocess.run(["uv", "pip", "install", "--quiet", "--no-deps", "--python", python, wheel], check=True, timeout=300)
    assert [file.name for file in (packages / "common").iterdir()] == ["alerts.py"]
    assert (packages / "common" / "alerts.py").read_text() == ALERTS

    home = tmp_path / "airflow"
    (home / "dags").mkdir(parents=True)
    environment = {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "PYTHONPATH": str(beside),
    }

    def run(*words: str | Path) -> str:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=300, env=environment, cwd=beside
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    mine, where = run(python, "-c", PROVIDERS).splitlines()[-1].split()
    assert (mine, Path(where)) == ("mine", packages / "streamvault" / "__init__.py")
    assert run(python, "-m", "streamvault", "--version").startswith("streamvault ")

    guide = (ROOT / "docs" / "guide" / "airflow.md").read_text()
    copying = next(line for line in guide.splitlines() if "streamvault.dags" in line)
    run("sh", "-c", copying)
    dags = "archive_rotation copy_via_file restore_on_demand standby"
    assert run(python, "-c", DAGS, home / "dags").splitlines()[-1] == dags
