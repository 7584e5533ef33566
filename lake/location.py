"""Where a table is: its name in a catalog, its folder, and how that is reached."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from common.errors import Conflict, Damaged
from lake.files import file_key, files_of
from lake.options import TableOptions, find_options, fix_options
from lake.plan import plan_of
from layouts.keys import archive_prefix, table_data, table_files
from manifests.archive import Archive
from manifests.history import Generation
from objectstore.s3.access import S3Access

__all__ = ["TablePlace", "begin_table"]


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table, for a catalog.

    Attributes:
        database: the catalog's (Glue's database, Iceberg's namespace).
        options: the table's. archive: the copy of the archive that it is.
        access: how the bucket is reached; None for a folder.
    """

    database: str
    options: TableOptions
    archive: Archive
    access: S3Access | None = None

    @property
    def name(self) -> str:
        """``DATABASE.TABLE``."""
        return f"{self.database}.{self.options.table}"

    @property
    def location(self) -> str:
        """The URI of the folder with its files, without a slash at its end, as query engines take it."""
        uri = self.archive.store.uri
        root = unquote(uri) if uri.startswith("file:") else uri  # engines take a path for what it is
        return f"{root}/{table_data(self.archive.prefix)}".rstrip("/")

    def partition(self, generation: int) -> str:
        """The URI of the folder with a generation's files, with a slash at its end."""
        return f"{self.location}/{table_files(generation)}"

    def files(self, generation: Generation) -> list[str]:
        """The URIs of a complete generation's files, but for those without a row.

        Raises:
            Damaged: one is not in the table's folder any more.
        """
        store, records, manifest = self.archive.store, self.archive.prefix, generation.manifest
        planned = files_of(plan_of(store, records, manifest).planned(), self.options.target_size)
        begins = {segment: [row.start for row in rows] for segment, rows in generation.rows.items()}
        wanted = [
            file_key(manifest.generation, ranges)
            for ranges in planned
            if any(_has_any(begins.get(one.segment, ()), one.start, one.end) for one in ranges)
        ]
        folder = table_data(records)
        there = {found.key for found in store.list(folder + table_files(manifest.generation))} if wanted else set()
        gone = next((key for key in wanted if folder + key not in there), None)
        if gone is not None:
            raise Damaged(
                f"a file of generation {manifest.generation} is gone, which the catalog has not got yet",
                where=f"{self.location}/{gone}",
                todo="Begin another table (--table NAME).",
            )
        return [f"{self.location}/{key}" for key in wanted]

    def before(self, number: int) -> int:
        """The table's generation before one of it; 0 if it begins with that."""
        return max((found for found in self.archive.generations() if found < number), default=0)


def _has_any(numbers: Sequence[int], low: int, high: int) -> bool:
    """Whether one of some ascending numbers lies in ``[low, high)``."""
    return bisect_left(numbers, low) < bisect_left(numbers, high)


def begin_table(place: TablePlace) -> None:
    """Fix what the table is, create-only; no file is there before that.

    Raises:
        Conflict: the table was begun with other options, or its files are there and its records are gone.
    """
    options, archive = place.options, place.archive
    prefix = archive_prefix(options.scope, options.stream)
    if (
        find_options(archive.store, prefix, options.table) is None
        and any(name.startswith("generation=") for name in archive.store.folders(table_data(archive.prefix)))
        and find_options(archive.store, prefix, options.table) is None  # else another run has begun it meanwhile
    ):
        raise Conflict(
            "the folder has files of a table, whose records are gone",
            where=place.location,
            todo=f"Restore {archive.uri} from a backup, or begin another table (--table NAME).",
        )
    fix_options(archive.store, prefix, options)
