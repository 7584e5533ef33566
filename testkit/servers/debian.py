"""Programs of Debian's packages, installed where the machine is there for tests only."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Sequence

from testkit.servers.availability import Unavailable
from testkit.servers.cache import cache_folder
from testkit.servers.process import run_tool


def find_program(names: Sequence[str], packages: Sequence[str]) -> str:
    """The path of the first of the programs; in `CI`, the packages are installed if there is none.

    Raises:
        Unavailable: there is none.
    """
    install = ("apt-get", "install", "--yes", "--no-install-recommends", *packages)
    if found := _found(names):
        return found
    if not (os.environ.get("CI") and shutil.which("apt-get") and os.geteuid() == 0):
        raise Unavailable(f"no {names[0]}: {' '.join(install)}")
    # parts of the tests run beside each other, and apt-get fails while another one installs
    with (cache_folder() / "apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if found := _found(names):
            return found
        for command in (("apt-get", "update"), install):
            run_tool(command, timeout=600)
    if found := _found(names):
        return found
    raise Unavailable(f"apt-get has installed no {names[0]}")


def _found(names: Sequence[str]) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)
