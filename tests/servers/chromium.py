"""A browser to look at pages with: Debian's Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess

from tests.servers.availability import Unavailable

NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL = ("apt-get", "install", "--yes", "--no-install-recommends", "chromium", "fonts-dejavu-core")


def find_chromium() -> str:
    """The path of a Chromium; on a machine for tests only (`CI`), Debian's package is installed if there is none.

    Raises:
        Unavailable: there is none.
    """
    if found := _found():
        return found
    if not (os.environ.get("CI") and shutil.which("apt-get") and os.geteuid() == 0):
        raise Unavailable(f"no Chromium: {' '.join(INSTALL)}")
    for command in (("apt-get", "update"), INSTALL):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            raise Unavailable(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
    if found := _found():
        return found
    raise Unavailable("apt-get has installed no Chromium")


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)
