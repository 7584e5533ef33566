"""The files of a Trino server with its Hive and Iceberg connectors, from the Java package registry."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from testkit.servers.availability import Unavailable
from testkit.servers.cache import cached
from testkit.servers.java import java_home
from testkit.servers.listed_jars import FETCH_TIMEOUT, fetch_files
from testkit.servers.process import run_tool

VERSION = "476"
OLDEST_JAVA = 24
SERVER = ("io.trino", "trino-server-core", "tar.gz")
PLUGINS = (("io.trino", "trino-hive", "zip"), ("io.trino", "trino-iceberg", "zip"))
# What a server on one machine does without: 600 of 830 MB are file systems and metastores of other clouds.
LEFT_OUT = ("exchange-filesystem", "functions-python", "geospatial", "spooling-filesystem", "resource-group-managers",
            "session-property-managers", "password-authenticators")  # fmt: skip


def trino_files() -> Path:
    """The folder with the server (``lib``, ``plugin``).

    Raises:
        Unavailable: it can't be fetched.
    """
    return cached(f"trino-{VERSION}", _fetch)


def trino_java() -> Path:
    """A ``java`` that Trino runs on: the product's own, or another that is installed where Linux keeps them.

    Raises:
        Unavailable: none is new enough.
    """
    for program in _javas():
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
        version = re.search(r'version "([0-9]+)', said)
        if version and int(version[1]) >= OLDEST_JAVA:
            return program
    raise Unavailable(f"Trino needs a Java of version {OLDEST_JAVA} or later")


def _javas() -> Iterator[Path]:
    yield java_home() / "bin" / "java"
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"), reverse=True)


def _fetch(folder: Path) -> None:
    downloads = folder / "downloads"
    downloads.mkdir()
    for group, artifact, packaging in (SERVER, *PLUGINS):
        _download(group, artifact, packaging, downloads)
    with tarfile.open(downloads / f"{SERVER[1]}-{VERSION}.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # there is none before Python 3.11.4
        archive.extractall(folder)
    (folder / f"{SERVER[1]}-{VERSION}").rename(folder / "server")
    plugins = folder / "server" / "plugin"
    for name in LEFT_OUT:
        shutil.rmtree(plugins / name, ignore_errors=True)
    for _, artifact, _ in PLUGINS:
        with zipfile.ZipFile(downloads / f"{artifact}-{VERSION}.zip") as archive:
            archive.extractall(plugins)
    shutil.rmtree(downloads)


def _download(group: str, artifact: str, packaging: str, folder: Path) -> None:
    if shutil.which("mvn"):
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
        coordinates = f"-Dartifact={group}:{artifact}:{VERSION}:{packaging}"
        command = ["mvn", "--batch-mode", "--quiet", copy, coordinates, f"-DoutputDirectory={folder}"]
        run_tool(command, timeout=FETCH_TIMEOUT)
    else:
        fetch_files(folder, f"{group}:{artifact}:{VERSION}@{packaging}")
    if not (folder / f"{artifact}-{VERSION}.{packaging}").is_file():
        raise Unavailable(f"{artifact} {VERSION} did not arrive")
