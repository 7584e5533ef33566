"""Making the data sources known to a Spark session, and the code to those who run its tasks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from pyspark.sql import SparkSession

from sparkrun.code import import_folders, ship_code
from sparkrun.errors import SparkFailed
from streamvault.spark.archive_source import ArchiveSource
from streamvault.spark.pravega_source import PravegaSource

__all__ = ["register"]

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
"""Without it Spark refuses Python sources that can use a filter."""

SPARKS_DEFAULT = "python3"
"""What Spark starts for Python where ``PYSPARK_PYTHON`` does not say."""

_NEEDED = ("pyspark", "grpc", "mmh3", "numpy", "obstore", "pyarrow", "pydantic", "tenacity", "zstandard")

_ASK = """
import importlib, sys
for name in sys.argv[2:]:
    importlib.import_module(name)
version = "%d.%d" % sys.version_info[:2]
if version != sys.argv[1]:
    sys.exit(f"it is Python {version}, and the program's is {sys.argv[1]}")
try:
    from sparkrun.code import import_folders
except ImportError:
    sys.exit()
print(*import_folders(), sep="\\n")
"""
ASK_SECONDS = 120.0


def register(spark: SparkSession) -> None:
    """Make the formats ``pravega`` and ``streamvault`` known to a session.

    Sets the session's ``spark.sql.python.filterPushdown.enabled``, without which Spark refuses sources that can use
    filters, and sends the project's packages along with the jobs where they would not be found otherwise: to every
    cluster, and on this machine if they are not installed. Doing it again changes nothing.

    On this machine the sources run with the Python of this program unless ``PYSPARK_PYTHON`` names another.

    Args:
        spark: a session; sessions made of it know the formats too.

    Raises:
        SparkFailed: the Python that Spark would run the sources with cannot: it is not there, is of another version, or
            lacks a library.
    """
    spark.conf.set(PUSH_DOWN, "true")
    context: Any = spark.sparkContext
    here = context.master == "local" or str(context.master).startswith("local[")
    usual = context.pythonExec
    python = sys.executable if here and usual == SPARKS_DEFAULT and not os.environ.get("PYSPARK_PYTHON") else usual
    installed = _packages_of(python)
    # before the sources are registered, which remember what is shipped, and with which Python they run
    if not here or installed != [str(folder) for folder in import_folders()]:
        ship_code(context)
    context.pythonExec = python
    try:
        for source in (PravegaSource, ArchiveSource):
            spark.dataSource.register(source)
    finally:
        context.pythonExec = usual


def _packages_of(python: str) -> list[str]:
    """The folders from which a Python imports our packages; empty if it has none of them.

    Raises:
        SparkFailed: it cannot run the sources.
    """
    version = "{}.{}".format(*sys.version_info)
    program = shutil.which(python)
    said = "there is no such program"
    if program is not None:
        command = [program, "-c", _ASK, version, *_NEEDED]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=ASK_SECONDS, check=False, cwd=tempfile.gettempdir()
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = str(error)
        else:
            if done.returncode == 0:
                return done.stdout.splitlines()
            said = (done.stderr.strip().splitlines() or ["it fails"])[-1]
    raise SparkFailed(
        "the Python that Spark starts cannot run the data sources",
        where=f"{program or python}: {said}",
        todo=f"Set PYSPARK_PYTHON before Spark starts; this program runs with {sys.executable}.",
    )
