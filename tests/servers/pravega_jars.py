"""The jars of a standalone Pravega server, from the Java package registry: by Maven, or without it."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from tests.servers.availability import Unavailable
from tests.servers.cache import cached
from tests.servers.process import run_tool

__all__ = ["pravega_jars"]

VERSION = "0.13.0"
HERE = Path(__file__).parent
POM = HERE / "pravega-pom.xml"
JARS = HERE / "pravega-jars.txt"
FETCH_TIMEOUT = 900.0


def pravega_jars() -> Path:
    """The folder with the server's jars (188 files, 82 MB).

    Raises:
        Unavailable: they can't be fetched, or are not the ones of the list.
    """
    return cached(f"pravega-{VERSION}", _fetch)


def _fetch(folder: Path) -> None:
    if shutil.which("mvn"):
        run_tool(
            [
                "mvn",
                "--batch-mode",
                "--quiet",
                f"--file={POM}",
                "dependency:copy-dependencies",
                "-DincludeScope=runtime",
                f"-DoutputDirectory={folder}",
            ],
            timeout=FETCH_TIMEOUT,
        )
    else:
        run_tool(
            [
                *("uv", "run", "--quiet", "--python", sys.executable, "--script", str(HERE / "fetch_jars.py")),
                *(str(JARS), str(folder)),
            ],
            timeout=FETCH_TIMEOUT,
        )
    _check(folder)


def _check(folder: Path) -> None:
    wanted = dict(_listed())
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    if found != wanted:
        wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise Unavailable(f"Pravega's jars are not those of {JARS.name}: {', '.join(wrong[:5])} ({len(wrong)} in all)")


def _listed() -> list[tuple[str, str]]:
    """File name and SHA-256 of every jar of the list."""
    jars = []
    for line in JARS.read_text().splitlines():
        if not line.startswith("#"):
            digest, coordinates = line.split()
            # artifact-version.jar, or artifact-version-classifier.jar
            jars.append(("-".join(coordinates.split(":")[1:]) + ".jar", digest))
    return jars
