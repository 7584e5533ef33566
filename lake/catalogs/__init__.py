"""Catalogs: what tells query engines of a table and of the generations that belong to it.

A generation's files are all there before it is registered, and registering it is one step of the catalog: a query sees
all of a generation or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from common.errors import Conflict, Failed, Usage
from lake.handoff_options import TableFormat
from lake.location import TablePlace
from manifests.history import Generation

__all__ = ["Catalog", "CatalogFailed", "check_follows", "check_known", "open_catalog"]


class CatalogFailed(Failed):
    """The catalog refuses, or cannot be reached. What was written stays; the next run goes on."""


class Catalog(Protocol):
    """One catalog, for tables of one format."""

    def missing(self, place: TablePlace, generations: Sequence[int]) -> list[int]:
        """Which of the table's generations it has not got, in order. Nothing is changed.

        Args:
            place: the table.
            generations: all that it has, ascending.

        Raises:
            Conflict: a table of this name is another one, or what it has got is not of this table's generations.
            CatalogFailed: it cannot be asked.
        """

    def publish(self, place: TablePlace, generation: Generation) -> bool:
        """Register a generation whose files are there, and the table with the first one.

        Returns:
            False if it had been registered meanwhile.

        Raises:
            Conflict: a table of this name is another one, or has not got the generation before.
            Damaged: files of the generation are gone.
            CatalogFailed: it did not work, and may be tried again.
        """


def check_known(generations: Sequence[int], registered: int, place: TablePlace) -> None:
    """Refuse a catalog whose newest generation of a table (0: it has none) is none of the table's.

    Raises:
        Conflict: it is not.
    """
    if registered and registered not in generations:
        ours = f"its own records have {generations[-1]} as the newest" if generations else "its own records have none"
        what = f"the catalog has the table up to generation {registered}, {ours}"
        if generations and registered < generations[-1]:
            what = f"the catalog has the table up to generation {registered}, which its own records do not know"
        todo = f"Restore {place.archive.uri} from a backup, or begin another table (--table NAME)."
        raise Conflict(what, where=place.name, todo=todo)


def check_follows(number: int, registered: int, place: TablePlace) -> None:
    """Refuse to register a generation where the one before it is not: rows would be missing for ever.

    Raises:
        Conflict: somebody has changed the catalog's table meanwhile.
    """
    before = place.before(number)
    if registered < before:
        what = f"the catalog's table has lost generations: it ends at {registered}, not at {before}"
        raise Conflict(what, where=place.name, todo="Run the same command again: it adds what is missing.")


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
            todo = "Use --catalog glue, or `streamvault ddl` for another one."
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
