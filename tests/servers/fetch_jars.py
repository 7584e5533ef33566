# /// script
# requires-python = ">=3.11"
# dependencies = ["jgo==3.2.0"]
# ///
"""Fetches jars from the Java package registry without Maven: ``uv run --script fetch_jars.py LIST FOLDER``.

Not a module of the tests: it runs in an environment of its own, which has the Maven client written in Python. What it
fetches stays in Maven's own local repository too.
"""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jgo.maven import MavenContext  # type: ignore[import-not-found]  # only there when run as the script it is

AT_ONCE = 8


def main(list_file: str, folder: str) -> None:
    """Put every jar of the list (lines of SHA-256 and coordinates; ``#`` starts a comment) into the folder."""
    maven = MavenContext(timeout=60)

    def fetch(coordinates: str) -> None:
        group, artifact, version, *classifier = coordinates.split(":")
        jar = maven.project(group, artifact).at_version(version).artifact(*classifier)
        shutil.copy(jar.resolve(), folder)

    lines = [line.split() for line in Path(list_file).read_text().splitlines() if not line.startswith("#")]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        # the list is short, and going through the results raises what a thread raised
        list(threads.map(fetch, [coordinates for _, coordinates in lines]))


if __name__ == "__main__":
    main(*sys.argv[1:])
