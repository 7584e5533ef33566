# /// script
# requires-python = ">=3.11"
# dependencies = ["jgo==3.2.0"]
# ///
"""Fetches files from the Java package registry without Maven: ``uv run --script fetch_files.py FOLDER COORDINATES...``.

Not a module of the tests: it runs in an environment of its own, which has the Maven client written in Python. What it
fetches stays in Maven's own local repository too. Coordinates are GROUP:NAME:VERSION or GROUP:NAME:VERSION:CLASSIFIER;
``@KIND`` follows those of a file that is no jar.
"""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

from jgo.maven import MavenContext  # type: ignore[import-not-found]  # only there when run as the script it is

AT_ONCE = 8


def main(folder: str, *coordinates: str) -> None:
    """Put the files into the folder."""
    maven = MavenContext(timeout=60)

    def fetch(one: str) -> None:
        name, _, kind = one.partition("@")
        group, artifact, version, *classifier = name.split(":")
        found = maven.project(group, artifact).at_version(version).artifact(*classifier, packaging=kind or "jar")
        shutil.copy(found.resolve(), folder)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        # going through the results raises what a thread raised
        list(threads.map(fetch, coordinates))


if __name__ == "__main__":
    main(*sys.argv[1:])
