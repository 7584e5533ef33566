"""Register the data sources with a Spark session, and ship their code to the executors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

from pyspark.sql import SparkSession

from streamvault.common.children import SAFE, start_python
from streamvault.common.errors import Usage
from streamvault.spark.sources import FORMATS, check_pyspark, source
from streamvault.sparkrun.code import import_folder, ship_code
from streamvault.sparkrun.errors import SparkFailed

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
"""Setting without which Spark rejects Python sources that use filters."""

SPARKS_DEFAULT = "python3"
"""The Python that Spark starts if ``PYSPARK_PYTHON`` is not set."""

_NEEDED = ("pyspark", "grpc", "mmh3", "numpy", "obstore", "pyarrow", "pydantic", "tenacity", "zstandard")

_ASK = """
import importlib, sys
for name in sys.argv[2:]:
    importlib.import_module(name)
version = "%d.%d" % sys.version_info[:2]
if version != sys.argv[1]:
    sys.exit(f"it is Python {version}, but the program runs Python {sys.argv[1]}")
try:
    from streamvault.sparkrun.code import import_folder
except ImportError:
    sys.exit()
print(import_folder())
"""
ASK_SECONDS = 120.0


def register(spark: SparkSession) -> None:
    """Register the formats ``pravega`` and ``streamvault`` with a session.

    Sets the session's ``spark.sql.python.filterPushdown.enabled``, without which Spark rejects sources that use
    filters. Ships the package `streamvault` with the jobs, to a cluster always, on this machine if it is not installed.
    A repeated call changes nothing.

    On this machine the sources run with this program's Python unless ``PYSPARK_PYTHON`` names another.

    Args:
        spark: a session. Others of the program, such as ``spark.newSession()``, find the formats only where
            Streamvault is installed.

    Raises:
        SparkFailed: Spark's Python cannot run the sources: it does not exist, has another version, or lacks a library.
            Or PySpark is too old.
        Usage: it is a session of Spark Connect, to which nothing can be shipped.
    """
    check_pyspark()
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        raise Usage(
            "Spark Connect cannot ship code",
            todo=f"Install Streamvault for the server's Python, which then has the formats, and set {PUSH_DOWN}=true.",
        )
    spark.conf.set(PUSH_DOWN, "true")
    context: Any = spark.sparkContext
    here = context.master == "local" or str(context.master).startswith("local[")
    usual = context.pythonExec
    python = sys.executable if here and usual == SPARKS_DEFAULT and not os.environ.get("PYSPARK_PYTHON") else usual
    installed = _package_of(python)
    # before the sources are registered, as these remember the shipped code, the Python to run and its environment
    if not here or installed != str(import_folder()):
        ship_code(context)
    context.pythonExec = python
    before = dict(context.environment)
    context.environment[SAFE] = "1"
    try:
        for name in FORMATS:
            spark.dataSource.register(source(name))
    finally:
        context.pythonExec = usual
        context.environment = before


def _package_of(python: str) -> str:
    """Return the folder from which a Python imports `streamvault`; empty if it cannot.

    Raises:
        SparkFailed: the Python cannot run the sources.
    """
    version = "{}.{}".format(*sys.version_info)
    program = shutil.which(python)
    reason = "the program does not exist"
    if program is not None:
        # without -P, which Pythons that are too old do not know: they are to say so
        command = [program, "-c", _ASK, version, *_NEEDED]
        try:
            with start_python(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                try:
                    found, said = process.communicate(timeout=ASK_SECONDS)
                finally:
                    process.kill()
        except (OSError, subprocess.SubprocessError) as error:
            reason = str(error)
        else:
            if process.returncode == 0:
                return str(found).strip()
            reason = (said.strip().splitlines() or ["it failed"])[-1]
    raise SparkFailed(
        "Spark's Python cannot run the data sources",
        where=f"{program or python}: {reason}",
        todo=f"Set PYSPARK_PYTHON before Spark starts; this program runs with {sys.executable}.",
    )
