# /// script
# requires-python = ">=3.11"
# dependencies = ["jgo==3.2.0"]
# ///
"""Fetches one file from the Java package registry: ``uv run --script fetch_file.py GROUP NAME VERSION KIND FOLDER``.

As `fetch_jars.py`, for what is no jar.
"""

from __future__ import annotations

import shutil
import sys

from jgo.maven import MavenContext  # type: ignore[import-not-found]  # only there when run as the script it is


def main(group: str, artifact: str, version: str, kind: str, folder: str) -> None:
    """Put the file into the folder."""
    found = MavenContext(timeout=60).project(group, artifact).at_version(version).artifact(packaging=kind)
    shutil.copy(found.resolve(), folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
