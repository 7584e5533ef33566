"""Catalogs: what tells query engines of a table and of the generations that belong to it.

A generation's files are all there before it is registered, and registering it is one step of the catalog: a query sees
all of a generation or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lake.options import TableFormat
from lake.place import TablePlace
from manifests.history import Generation
from problems import Failed, Usage

__all__ = ["Catalog", "CatalogFailed", "open_catalog"]


class CatalogFailed(Failed):
    """The catalog refuses, or cannot be reached. What was written stays; the next run goes on."""


class Catalog(Protocol):
    """One catalog, for tables of one format."""

    def missing(self, place: TablePlace, generations: Sequence[int]) -> list[int]:
        """Which of the generations it has not got, in order. Nothing is changed.

        Raises:
            Conflict: a table of this name is another one. CatalogFailed: it cannot be asked.
        """

    def publish(self, place: TablePlace, generation: Generation) -> bool:
        """Register a generation whose files are there, and the table with the first one.

        Returns:
            False if it had been registered meanwhile.

        Raises:
            Conflict: a table of this name is another one. CatalogFailed: it did not work, and may be tried again.
        """


def open_catalog(text: str, kind: TableFormat, *, projection: bool = False) -> Catalog:
    """The catalog that a text names; nothing is asked of it yet.

    Args:
        text: ``glue``; for Iceberg also ``rest:URI``, ``sql:URI`` (as SQLAlchemy writes it), or the name of a catalog
            in PyIceberg's own configuration.
        kind: the table's format.
        projection: for Parquet in Glue: partitions by projection instead of one entry each.

    Raises:
        Usage: there is no such catalog for this format, or what it needs is not installed.
    """
    if kind == "parquet":
        if text != "glue":
            todo = "Use --catalog glue, or --print-ddl for another one."
            raise Usage("tables of plain Parquet are registered in Glue", where=repr(text), todo=todo)
        from lake.catalogs.glue import GlueTables  # noqa: PLC0415  (it imports boto3; tasks do without)

        return GlueTables(projection=projection)
    if projection:
        raise Usage("Iceberg tables have no partition projection", todo="Use it with --format parquet.")
    try:
        from lake.catalogs.iceberg import IcebergTables  # noqa: PLC0415  (an extra)
    except ImportError as error:
        todo = "pip install 'streamvault[lake]'"
        raise Usage("Iceberg needs a library that is not installed", where=str(error), todo=todo) from None

    return IcebergTables(text)
