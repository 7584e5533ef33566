"""Catalogs, which tell query engines of a table and its generations.

A generation is registered after all its files are written, in one atomic step of the catalog: a query sees all of a
generation or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from streamvault.common.errors import Conflict, Failed, Usage
from streamvault.common.waiting import pauses
from streamvault.lake.location import TablePlace
from streamvault.lake.reports import TableFormat
from streamvault.layouts.keys import is_table_folder
from streamvault.manifests.files import one_line
from streamvault.manifests.history import Generation

__all__ = ["Catalog", "CatalogFailed", "check_follows", "check_known", "check_location", "open_catalog", "while_busy"]

BUSY_SECONDS = 60.0
"""How long to try again while other processes change a table at the same time."""


class CatalogFailed(Failed):
    """The catalog rejects a request or cannot be reached. Written files are kept; the next run resumes."""


class Catalog(Protocol):
    """A catalog, for tables of one format."""

    def identity(self, place: TablePlace) -> str:
        """Return which catalog it is, the same for each way to name it and without credentials.

        Raises:
            CatalogFailed: the catalog cannot be reached.
        """

    def missing(self, place: TablePlace, generations: Sequence[int]) -> list[int]:
        """Return the table's generations that are not registered, in order. Nothing is changed.

        Args:
            place: the table.
            generations: the table's generations, ascending.

        Raises:
            Conflict: the name belongs to another table, the registered one was renamed or dropped, or registered
                generations are not this table's.
            CatalogFailed: the catalog cannot be read.
        """

    def claim(self, place: TablePlace) -> None:
        """Record which table of the catalog was registered, if the catalog has it and tables there have an identity.

        `publish` does so for a table that it creates; a run that was killed in between leaves it to the next one.

        Raises:
            Conflict: it is not the one that was registered.
            CatalogFailed: the catalog cannot be read.
        """

    def check_columns(self, place: TablePlace, ours: pa.Schema) -> None:
        """Check that generations can be added to the catalog's table, whose columns its users may have changed.

        Args:
            place: the table.
            ours: the columns of the next generation; the catalog's table grows by those that it does not know.

        Raises:
            Conflict: its columns or partitions no longer fit the table's files.
            CatalogFailed: the catalog cannot be read.
        """

    def publish(self, place: TablePlace, generation: Generation) -> bool:
        """Register a generation whose files are written; with the first one, also the table.

        Columns that the generation is the first to have, or to have wider, are added to the table or widened before or
        in the same step. None is dropped or narrowed.

        Returns:
            False if it was registered in the meantime.

        Raises:
            Conflict: the name belongs to another table, the registered one was renamed or dropped, its columns no
                longer fit, or the generation before is not registered.
            Damaged: files of the generation are missing.
            CatalogFailed: the catalog rejected the request or did not answer; it may be retried.
        """


def while_busy(place: TablePlace) -> Iterator[float]:
    """Yield for each attempt at a change that fails if another process changes the table at the same time.

    Raises:
        CatalogFailed: others keep changing it.
    """
    yield from pauses(BUSY_SECONDS, first=0.1, longest=5.0, jitter=True)
    todo = "Run the same command again."
    raise CatalogFailed("other processes keep changing the table", where=place.name, todo=todo)


def is_of_removed(ours: str, found: str) -> bool:
    """Return whether a URI is that of another folder of a table's name, or in one, given the URI of the table's."""
    folder, _, own = ours.rstrip("/").rpartition("/")
    below = found.rstrip("/").removeprefix(folder).lstrip("/").partition("/")[0]
    return is_table_folder(own) and f"{found}/".startswith(f"{folder}/") and below != own


def check_location(name: str, ours: str, found: str) -> None:
    """Check that a catalog's table is the one of a name, given the URI of its folder.

    Raises:
        Conflict: it is another one.
    """
    ours, found = ours.rstrip("/"), found.rstrip("/")
    if found == ours:
        return
    what, todo = "is a table at another location", "Give the table another name"
    if is_of_removed(ours, found):
        what, todo = "is a table that was removed here", "Drop it in the catalog, or give the table another name"
    what, todo = f"{name} in the catalog {what}", f"{todo} (--table DATABASE.NAME)."
    raise Conflict(what, where=one_line(found) or "no location", todo=todo)


def check_known(generations: Sequence[int], registered: int, place: TablePlace) -> None:
    """Check that the newest registered generation (0 for none) is one of the table's.

    Raises:
        Conflict: it is not.
    """
    if registered and registered not in generations:
        ours = f"its own records up to {generations[-1]}" if generations else "its own records have none"
        what = f"the catalog has the table up to generation {registered}, {ours}"
        if generations and registered < generations[-1]:
            what = f"the catalog has the table up to generation {registered}, which its own records lack"
        todo = f"Restore {place.archive.uri} from a backup, or create another table (--table NAME)."
        raise Conflict(what, where=place.name, todo=todo)


def check_follows(number: int, registered: int, place: TablePlace) -> None:
    """Check that the generation before is registered; without it, rows would be missing for good.

    Raises:
        Conflict: the catalog's table was changed in the meantime.
    """
    before = max((found for found in place.archive.generations() if found < number), default=0)
    if registered < before:
        what = f"the catalog's table has lost generations: it ends at {registered}, not at {before}"
        raise Conflict(what, where=place.name, todo="Run the same command again: it adds what is missing.")


def open_catalog(text: str, kind: TableFormat, *, projection: bool = False) -> Catalog:
    """Return a catalog; it is not contacted yet.

    Args:
        text: ``glue``; for Iceberg also ``rest:URI``, ``sql:URI`` (in SQLAlchemy's notation), or the name of a catalog
            in PyIceberg's configuration.
        kind: the table's format.
        projection: for Parquet in Glue: partitions by projection instead of one entry each.

    Raises:
        Usage: the catalog does not support this format, has no valid URI, or a library for it is not installed.
    """
    if kind == "parquet":
        if text != "glue":
            todo = "Use --catalog glue, or `streamvault ddl` for another catalog."
            raise Usage("Parquet tables can be registered only in Glue", where=repr(text), todo=todo)
        from streamvault.lake.catalogs.glue import GlueTables  # noqa: PLC0415  (it imports boto3; tasks do without)

        return GlueTables(projection=projection)
    if projection:
        raise Usage("Iceberg tables have no partition projection", todo="Use it with --format parquet.")
    kind_of_catalog, colon, uri = text.partition(":")
    if colon and kind_of_catalog in {"rest", "sql"} and not uri.partition("://")[1]:
        todo = "Use for example rest:http://127.0.0.1:8181 or sql:sqlite:////FILE."
        raise Usage(f"--catalog {kind_of_catalog} requires a URI", todo=todo)  # what was given may contain a password
    try:
        from streamvault.lake.catalogs.iceberg import IcebergTables  # noqa: PLC0415  (an extra)
    except ImportError as error:
        todo = "pip install 'streamvault[lake]'"
        raise Usage("Iceberg tables require a library that is not installed", where=str(error), todo=todo) from None

    return IcebergTables(text)
