"""Jars from the Java package registry, as lists beside this file name them: one by one, each with its digest."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from testkit.servers.availability import Unavailable
from testkit.servers.process import run_tool

HERE = Path(__file__).parent
FETCH_TIMEOUT = 900.0


def fetch_files(folder: Path, *coordinates: str) -> None:
    """Put files of the registry into a folder, without Maven.

    Args:
        folder: the folder.
        coordinates: GROUP:NAME:VERSION, then :CLASSIFIER if it has one, then @KIND of one that is no jar.

    Raises:
        Unavailable: they can't be fetched.
    """
    script = ("uv", "run", "--quiet", "--python", sys.executable, "--script", str(HERE / "fetch_files.py"))
    run_tool([*script, str(folder), *coordinates], timeout=FETCH_TIMEOUT)


def fetch_listed(jars: Path, folder: Path) -> None:
    """Put the jars of a list into a folder, without Maven.

    Raises:
        Unavailable: they can't be fetched, or are not the ones of the list.
    """
    fetch_files(folder, *_listed(jars))
    check_listed(jars, folder)


def check_listed(jars: Path, folder: Path) -> None:
    """See that a folder holds the jars of a list and no others.

    Raises:
        Unavailable: it does not.
    """
    # artifact-version.jar, or artifact-version-classifier.jar
    wanted = {"-".join(each.split(":")[1:]) + ".jar": digest for each, digest in _listed(jars).items()}
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    if found != wanted:
        wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise Unavailable(f"the jars are not those of {jars.name}: {', '.join(wrong[:5])} ({len(wrong)} in all)")


def _listed(jars: Path) -> dict[str, str]:
    """Coordinates → SHA-256, of every jar of the list."""
    lines = [line.split() for line in jars.read_text().splitlines() if not line.startswith("#")]
    return {coordinates: digest for digest, coordinates in lines}
