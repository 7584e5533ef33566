"""The jars of a standalone Pravega server, from the Java package registry: by Maven, or without it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.servers.cache import cached
from tests.servers.listed_jars import FETCH_TIMEOUT, check_listed, fetch_listed
from tests.servers.process import run_tool

VERSION = "0.13.0"
HERE = Path(__file__).parent
POM = HERE / "pravega-pom.xml"
JARS = HERE / "pravega-jars.txt"


def pravega_jars() -> Path:
    """The folder with the server's jars (188 files, 82 MB).

    Raises:
        Unavailable: they can't be fetched, or are not the ones of the list.
    """
    return cached(f"pravega-{VERSION}", _fetch)


def _fetch(folder: Path) -> None:
    if not shutil.which("mvn"):
        fetch_listed(JARS, folder)
        return
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
    check_listed(JARS, folder)
