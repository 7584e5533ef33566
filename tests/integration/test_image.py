"""The container image, built from the Dockerfile and used."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from testkit.servers.buildah import Buildah

ROOT = Path(__file__).parents[2]
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
