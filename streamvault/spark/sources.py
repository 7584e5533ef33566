"""The data sources by the names of their formats, and how they are registered with a Spark session."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from typing import Any, NoReturn

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from streamvault.common.errors import Usage
from streamvault.common.processes import SAFE, start_python
from streamvault.runner.runner import SparkFailed
from streamvault.runner.settings import import_folder, ship_code

NEEDED = (4, 3)
"""The oldest PySpark with all that the data sources use; commands run with older ones."""

_CLASSES = {
    "streamvault": ("streamvault.spark.archive_source", "ArchiveDataSource"),
    "pravega": ("streamvault.spark.pravega_source", "PravegaDataSource"),
}
FORMATS = tuple(_CLASSES)
"""The names of the formats."""


def check_pyspark() -> None:
    """Check that the installed PySpark can run the data sources.

    Raises:
        SparkFailed: it is too old.
    """
    found = pyspark.__version__
    if tuple(int(number) for number in re.findall(r"\d+", found)[:2]) < NEEDED:
        oldest = "{}.{}".format(*NEEDED)
        raise SparkFailed(
            f"Streamvault's data sources need PySpark {oldest}",
            where=f"PySpark {found} is installed",
            todo="Upgrade Spark, or use the commands, which run with PySpark 4.0 or later.",
        )


def source(name: str) -> type[DataSource]:
    """Return the data source of a format; with a PySpark that is too old, one that says so when it is used.

    Spark imports the sources of all installed packages when it looks for one, so an import must not fail.
    """
    try:
        check_pyspark()
    except SparkFailed:
        return type("Unsupported", (_Unsupported,), {"name": classmethod(lambda _: name)})
    module, class_name = _CLASSES[name]
    found: type[DataSource] = getattr(import_module(module), class_name)
    return found


class _Unsupported(DataSource):
    """Stands for a data source that the installed PySpark cannot run."""

    def schema(self) -> NoReturn:
        """Say what is needed.

        Raises:
            SparkFailed: always.
        """
        check_pyspark()
        raise AssertionError("the installed PySpark is new enough")

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        self.schema()

    reader = writer = streamReader = streamWriter = _refuse  # noqa: N815  (Spark's names)


PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
"""Setting without which Spark rejects Python sources that use filters."""

HIDE = "SPARK_HIDE_TRACEBACK"
"""Variable with which Spark's Python ends with an error's message alone; empty for the traceback, too."""

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
    from streamvault.runner.settings import import_folder
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

    Errors are shown without a traceback, unless the variable ``SPARK_HIDE_TRACEBACK`` is set to nothing.

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
    context.environment |= {SAFE: "1", HIDE: os.environ.get(HIDE, "1")}
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
