"""Jars from the Java package registry, as lists beside this file name them: one by one, each with its digest."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from tests.servers.availability import Unavailable
from tests.servers.process import run_tool

HERE = Path(__file__).parent
FETCH_TIMEOUT = 900.0


def fetch_listed(jars: Path, folder: Path) -> None:
    """Put the jars of a list into a folder, without Maven.

    Raises:
        Unavailable: they can't be fetched, or are not the ones of the list.
    """
    script = ("uv", "run", "--quiet", "--python", sys.executable, "--script", str(HERE / "fetch_jars.py"))
    run_tool([*script, str(jars), str(folder)], timeout=FETCH_TIMEOUT)
    check_listed(jars, folder)


def check_listed(jars: Path, folder: Path) -> None:
    """See that a folder holds the jars of a list and no others.

    Raises:
        Unavailable: it does not.
    """
    wanted = dict(_listed(jars))
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    if found != wanted:
        wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise Unavailable(f"the jars are not those of {jars.name}: {', '.join(wrong[:5])} ({len(wrong)} in all)")


def _listed(jars: Path) -> list[tuple[str, str]]:
    """File name and SHA-256 of every jar of the list."""
    found = []
    for line in jars.read_text().splitlines():
        if not line.startswith("#"):
            digest, coordinates = line.split()
            # artifact-version.jar, or artifact-version-classifier.jar
            found.append(("-".join(coordinates.split(":")[1:]) + ".jar", digest))
    return found
