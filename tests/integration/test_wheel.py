"""The wheel: what is in it, beside packages of a user's own, and on a machine that has nothing but Python.

The image, and the scripts of bin/ where there is no uv.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

import pytest

from bin.pages.cli import man_pages
from testkit.servers.buildah import BASE, Buildah
from testkit.servers.spark_cluster import python_without_the_project
from tests.pages import FENCED, blocks

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
    subprocess.run([ROOT / "bin" / "release", folder], check=True, timeout=600, env=without_uv)
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
    assert {re.sub(r"-.*(?=\.(dist-info|data))", "", name.partition("/")[0]) for name in names} == {
        "streamvault",
        "streamvault.dist-info",
        "streamvault.data",
        "pyspark_streamvault",
        "pyspark_streamvault_pravega",
    }
    assert "streamvault/dags/archive_rotation.py" in names
    assert "streamvault/streamstore/pravega/controller_pb2.py" in names
    assert "streamvault/__init__.pyi" in names  # type checkers read it
    assert "streamvault/py.typed" in names
    assert {name.rpartition("/")[2] for name in names if "/data/share/man/man1/" in name} == man_pages().keys()
    (image,) = built.glob("*-image.tar.gz")
    with tarfile.open(image) as archive:
        sent = {name.split("/")[0] for name in archive.getnames()}
        assert {"Dockerfile", "examples/compose/compose.yaml", "examples/compose/airflow.Dockerfile"} <= {
            *archive.getnames()
        }, "compose builds its images of it"
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sent == let_through | {".dockerignore", "Dockerfile"}
    (sdist,) = set(built.glob("*.tar.gz")) - {image}
    with tarfile.open(sdist) as archive:
        links = [member.name for member in archive.getmembers() if not member.isfile() and not member.isdir()]
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert links == []
    assert not tops & {"exporter", "importer", "manifests", "dags", "tests"}


NAMED = re.compile(r"(?<![\w/.-])(?:docs|examples|spec)/[\w./*-]*\w")
"""Files that a page names by their place in the repository."""


def test_pages_in_the_wheel_have_all_that_they_link_to_and_name(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path)
    (installed,) = tmp_path.glob("*.data/data/share/doc/streamvault")
    (installed / "bin").mkdir()
    shutil.copy(ROOT / "bin" / "links.py", installed / "bin")
    done = subprocess.run([sys.executable, installed / "bin" / "links.py"], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("", 0)
    for_users = {"README.md", "SECURITY.md", "docs/guide", "docs/runbooks", "docs/tutorial", "docs/reference", "spec"}
    for page in sorted(installed.rglob("*.md")):
        name = page.relative_to(installed).as_posix()
        if name in for_users or name.rpartition("/")[0] in for_users:
            missing = [named for named in NAMED.findall(page.read_text()) if not list(installed.glob(named))]
            assert missing == [], name


def test_release_lists_what_it_brings_and_its_digests(built: Path) -> None:
    [listed] = built.glob("streamvault-*-sbom.json")
    found = json.loads(listed.read_text())
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.5")
    assert {"obstore", "pyspark", "pyarrow", "moto"} <= {component["name"] for component in found["components"]}
    assert [component["name"] for component in found["components"] if not component["licenses"]] == []
    references = {component["bom-ref"] for component in (*found["components"], found["metadata"]["component"])}
    assert {ref for one in found["dependencies"] for ref in (one["ref"], *one["dependsOn"])} <= references
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


# --- the container image, built from the Dockerfile and used


HOME = "/home/streamvault"
EVENTS = 500


def context(folder: Path) -> Path:
    """The files that `docker build` would send: those that .dockerignore includes."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    folder.mkdir(exist_ok=True)
    for name in (line[1:] for line in lines if line.startswith("!")):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "controller_pb2*"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def test_docker_build_gets_every_package(tmp_path: Path) -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    sent = {path.name for path in context(tmp_path).iterdir()}
    assert set(wheel["packages"]) <= sent
    assert not sent & {".git", ".venv", "tests", "benchmarks"}


@pytest.mark.long  # eight minutes of a slow core, most of it for what it installs
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_image_is_built_and_works_as_its_user(buildah: Buildah) -> None:
    """With the machine's cache of uv, which only saves downloads: the image has nothing of it."""
    kept = Path(subprocess.run(["uv", "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip())
    built = buildah.build(ROOT, "streamvault", "--volume", f"{kept}:/root/.cache/uv", "--build-arg", "UV_NO_CACHE=0")
    assert built.returncode == 0, built.stderr
    container = buildah.container("streamvault")

    def run(*command: str) -> str:
        shown = buildah.run(container, *command)
        assert shown.returncode == 0, (command, shown.stderr)
        return shown.stdout

    def report(*command: str) -> dict[str, object]:
        found = json.loads(run("streamvault", *command, "--json"))
        assert isinstance(found, dict)
        return found

    assert run("id", "-u").strip() == "10001"
    assert run("pwd").strip() == HOME
    assert run("streamvault", "--version").startswith("streamvault ")
    # its queries run on Spark, with the Java of the image and with credentials in the environment
    assert report("demo", "--events", str(EVENTS), "--keep", f"{HOME}/demo")["events"] == EVENTS
    stream, vault = f"local://{HOME}/demo/streams/demo/orders", f"file://{HOME}/vault"
    for command in (
        ("export", stream, vault, "--master", "local[2]"),
        ("check", f"{vault}/demo/orders", "--read-data"),
        ("import", f"{vault}/demo/orders", f"{stream}-restored"),
    ):
        assert report(*command)["events"] == EVENTS, command
    megabytes = int(run("du", "-sm", "/opt/streamvault").split()[0])
    assert megabytes < 1200, "the image has grown: look at what bin/image leaves in"


# --- a machine with Python 3.11 and nothing else


def steady(text: str) -> str:
    """The text without what differs from run to run: times and digests."""
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ|[0-9a-f]{64}|\d[\d.]* s\b", "…", text)


@pytest.mark.long  # two minutes, most of them for what it installs
@pytest.mark.timeout(1200)
def test_bare_machine_gets_from_the_wheel_to_an_archive(built: Path, buildah: Buildah) -> None:
    """An ordinary user types what README.md says, from the installation to the end of the tour, and sees what it shows.

    With ``pytest -s``, the seconds after each command are shown.
    """
    readme = (ROOT / "README.md").read_text()
    _, install = (block.lines for block in blocks(readme) if block.section == "Install")
    demo = "streamvault demo --keep ~/tour"
    assert f"`{demo}`" in readme
    tour = readme.partition("\n## A tour\n")[2].partition("\n## ")[0]
    outputs = [found["text"] for found in FENCED.finditer(tour) if (found["text"] or "").startswith("$ ")]
    shown = [line for block in blocks(readme) if block.section == "A tour" for line in block.lines]
    report = ("pip install --quiet 'streamvault[report]'", "streamvault report ~/tour/vault/demo/orders -o page.html")
    script = "cd && set -e\n" + "".join(
        f"echo {quote(f'$ {line}')}\n{line}\necho $SECONDS s: {quote(line)} >&2\n"
        for line in (*install, demo, *shown, *report)
    )
    container = buildah.container(BASE)
    (wheel,) = built.glob("*.whl")
    buildah.copy(wheel, container, "/home/ann")
    for command in (
        ("useradd", "--home-dir", "/home/ann", "--shell", "/bin/bash", "ann"),
        ("chown", "ann", "/home/ann"),
    ):
        assert buildah.run(container, *command).returncode == 0
    assert buildah.run(container, "sh", "-c", "command -v java || command -v pip || command -v uv").returncode != 0
    done = buildah.run(container, "su", "ann", "--command", script)
    print(*re.findall(r"^\d+ s: .*$", done.stderr, re.MULTILINE), sep="\n")
    assert done.returncode == 0, done.stdout
    assert steady("".join(outputs)) in steady(done.stdout)


# --- the scripts of bin/ on a machine without uv


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
ELSEWHERE = {
    "release": "test_wheel.py",
    "image": "test_wheel.py",
    "figures": "test_guides.py",
    "screenshots": "test_screenshots.py",
}
"""Scripts that other tests run: without uv, or, as for the pictures, in Python alone."""

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
