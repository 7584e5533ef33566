"""The data sources by the names of their formats, where the installed PySpark can run them."""

from __future__ import annotations

import re
from importlib import import_module
from typing import NoReturn

import pyspark
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from streamvault.sparkrun.errors import SparkFailed

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

    def reader(self, schema: StructType) -> NoReturn:  # noqa: ARG002
        """As `schema`."""
        self.schema()

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002
        """As `schema`."""
        self.schema()

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: ARG002, N802  (Spark's name)
        """As `schema`."""
        self.schema()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002, N802
        """As `schema`."""
        self.schema()
