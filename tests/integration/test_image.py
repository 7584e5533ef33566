"""The container image's steps, run into a folder: no container engine is needed to test them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FILL = """
import sys
from streamvault.streamstore.arithmetic.framing import frame_many
from streamvault.streamstore.model import StreamConfiguration
from streamvault.streamstore.uri import parse_stream

place, name = parse_stream(sys.argv[1])
with place.open() as store:
    store.create_scope(name.scope)
    store.create_stream(name, StreamConfiguration())
    [segment] = store.describe(name).tail.offsets
    with store.appender(name, segment) as appender:
        for block in frame_many(b"event %d" % number for number in range(100)):
            appender.append(block)
"""


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
@pytest.mark.timeout(900)
def test_image_works_on_its_own(tmp_path: Path) -> None:
    source, image, home = context(tmp_path / "source"), tmp_path / "image", tmp_path / "home"
    home.mkdir()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SPARK_", "JAVA_"))
    }
    subprocess.run([source / "bin" / "image", image], check=True, timeout=600, env=environment)
    # everything that the image must not need is removed now
    shutil.rmtree(source)
    program = image / "bin" / "streamvault"
    bare = {
        "HOME": str(home),
        "PATH": _tools_without_java(tmp_path / "tools"),
        "LANG": "C.UTF-8",
    }

    shown = subprocess.run([program, "--version"], check=True, capture_output=True, text=True, env=bare)
    assert shown.stdout.startswith("streamvault ")

    stream, vault = f"local://{tmp_path}/streams/shop/orders", tmp_path / "vault"
    vault.mkdir()
    subprocess.run([image / "bin" / "python", "-c", FILL, stream], check=True, env=bare)
    for command in (
        ["export", stream, vault.as_uri()],
        ["check", f"{vault.as_uri()}/shop/orders", "--read-data"],
        ["import", f"{vault.as_uri()}/shop/orders", f"{stream}-restored"],
    ):
        shown = subprocess.run(
            [program, *command, "--json", "--master", "local[2]"],
            check=False,
            capture_output=True,
            text=True,
            env=bare,
            timeout=300,
        )
        assert (shown.returncode, shown.stderr) == (0, "")
        assert json.loads(shown.stdout)["events"] == 100
    assert {path.name for path in (home / ".cache" / "streamvault").iterdir()}, "Java was not the bundled one"

    megabytes = sum(file.lstat().st_size for file in image.rglob("*")) / 1e6
    assert megabytes < 1100, "the image has grown: look at what bin/image leaves in"


def _tools_without_java(folder: Path) -> str:
    """A PATH with the system's tools but no Java."""
    folder.mkdir()
    for place in ("/usr/bin", "/bin"):
        for tool in Path(place).iterdir():
            if not tool.name.startswith(("java", "jre", "python")) and not (folder / tool.name).exists():
                (folder / tool.name).symlink_to(tool)
    return str(folder)
