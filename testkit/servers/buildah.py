"""Builds and runs container images as root, with no daemon, bridge or registry of images: Debian's buildah, in chroots.

The base image is Debian's own Python under the name of Docker's, with this machine's settings for package registries.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Self

from testkit.servers.availability import Unavailable
from testkit.servers.cache import cached
from testkit.servers.debian import find_program
from testkit.servers.process import run_tool, temporary_folder

BASE = "docker.io/library/python:3.11-slim"
SUITE = "bookworm"
"""The Debian whose Python is 3.11."""
PACKAGES = "python3,python3-venv,ca-certificates"

SETTINGS = re.compile(r"(https?|no|all)_proxy|SSL_CERT_(FILE|DIR)|PIP_\w+|UV_(\w*INDEX\w*|NATIVE_TLS)", re.IGNORECASE)
"""Environment variables by which pip and uv reach a registry here, and in a build."""
FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf", "/etc/uv/uv.toml")
USERS_FILES = (".config/pip/pip.conf", ".pip/pip.conf", ".config/uv/uv.toml")
LIMIT = 600.0


class Buildah:
    """A store of images of its own, which has the base image. A context manager: the store goes at its end."""

    def __init__(self) -> None:
        self._folder = Path()

    def __enter__(self) -> Self:
        """Make the base image.

        Raises:
            Unavailable: it can't be made.
        """
        base = find_base()
        self._folder = temporary_folder("buildah")
        try:
            made = self._tool("from", "scratch")
            self._tool("add", made, str(base), "/")
            variables = {name: value for name, value in os.environ.items() if SETTINGS.fullmatch(name)}
            files = {file: Path(file) for file in (*FILES, *variables.values())}
            files |= {f"/root/{file}": Path.home() / file for file in USERS_FILES}
            for inside, file in files.items():
                if file.is_file():
                    self._tool("copy", made, str(file.resolve()), inside)
            for name, value in variables.items():
                self._tool("config", "--env", f"{name}={value}", made)
            self._tool("commit", "--rm", made, BASE)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _command(self, *words: str) -> list[str]:
        places = ("--root", str(self._folder / "images"), "--runroot", str(self._folder / "run"))
        return ["buildah", "--storage-driver", "vfs", *places, *words]

    def _tool(self, *words: str) -> str:
        return run_tool(self._command(*words), timeout=LIMIT).strip()

    def build(self, folder: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Build the image `name` of a folder with a Dockerfile."""
        how = ("--isolation", "chroot", "--network", "host", "--pull-never", "--layers=false")
        return self._call("bud", *how, *options, "--tag", name, str(folder))

    def container(self, image: str) -> str:
        """A new container of an image."""
        return self._tool("from", "--pull-never", image)

    def copy(self, file: Path, container: str, folder: str) -> None:
        """Put a file into a folder of a container, readable for all."""
        self._tool("copy", "--chmod", "644", container, str(file), f"{folder}/")

    def run(self, container: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a container as the image's user; the image's entry point has no part in it."""
        return self._call("run", "--isolation", "chroot", "--network", "host", container, *command)

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*words),
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
            stdin=subprocess.DEVNULL,
        )


def find_base() -> Path:
    """What the base image consists of, as a tar file.

    Raises:
        Unavailable: it is not in the cache and can't be made.
    """
    if os.geteuid() != 0:
        raise Unavailable("only root builds an image with buildah in a chroot")
    for program in ("buildah", "debootstrap"):
        find_program((program,), ("buildah", "debootstrap"))
    return cached(f"debian-{SUITE}-{PACKAGES.replace(',', '-')}", _bootstrap) / "base.tar"


def _bootstrap(folder: Path) -> None:
    # where this machine gets its Debian from
    mirrors = run_tool(
        ("apt-get", "indextargets", "--format", "$(REPO_URI)", f"Codename: {SUITE}", "Created-By: Packages"), timeout=60
    ).split()
    proxy = run_tool(("apt-config", "shell", "http_proxy", "Acquire::http::Proxy"), timeout=60)
    root = folder / "root"
    bootstrap = f'exec debootstrap --variant=minbase --include={PACKAGES} {SUITE} "$@"'
    run_tool(
        ("sh", "-c", f"{proxy}\nexport http_proxy\n{bootstrap}" if proxy else bootstrap, "sh", str(root), *mirrors[:1]),
        timeout=LIMIT,
    )
    run_tool(("tar", "-C", str(root), "-cf", str(folder / "base.tar"), "."), timeout=60)
    shutil.rmtree(root)
