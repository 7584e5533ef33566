"""Making the data sources known to a Spark session, and the code to those who run its tasks."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from sparkrun.code import import_folders, zip_code
from streamvault.spark.archive_source import ArchiveSource
from streamvault.spark.pravega_source import PravegaSource

__all__ = ["register"]

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
"""Without it Spark refuses Python sources that can use a filter."""

CODE = "streamvault-code.zip"


def register(spark: SparkSession) -> None:
    """Make the formats ``pravega`` and ``streamvault`` known to a session.

    Sets the session's ``spark.sql.python.filterPushdown.enabled``, without which Spark refuses sources that can use
    filters, and sends the project's packages along with the jobs where they would not be found otherwise: to every
    cluster, and on this machine if they are not installed. Doing it again changes nothing.

    Args:
        spark: a session; sessions made of it know the formats too.
    """
    spark.conf.set(PUSH_DOWN, "true")
    for source in (PravegaSource, ArchiveSource):
        spark.dataSource.register(source)
    context = spark.sparkContext
    here = context.master == "local" or str(context.master).startswith("local[")
    if not (here and _is_installed()):
        _ship(spark)


def _ship(spark: SparkSession) -> None:
    context = spark.sparkContext
    if any(name.endswith(f"/{CODE}") for name in map(str, context.listFiles)):
        return
    # executors get it from there for as long as the program runs
    folder = Path(tempfile.mkdtemp(prefix="streamvault-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    zip_code(folder / CODE)
    path = list(sys.path)
    context.addPyFile(str(folder / CODE))
    # this process has the code already
    sys.path[:] = path


def _is_installed() -> bool:
    """Whether the Python that tasks run with finds the same packages by itself."""
    python = os.environ.get("PYSPARK_PYTHON") or sys.executable
    asked = "import sparkrun.code as code; print(*code.import_folders(), sep='\\n')"
    try:
        found = subprocess.run(
            [python, "-c", asked], capture_output=True, text=True, timeout=60, check=False, cwd=tempfile.gettempdir()
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return found.stdout.splitlines() == [str(folder) for folder in import_folders()]
