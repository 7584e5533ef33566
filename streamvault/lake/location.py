"""A table's location: its name in a catalog, its folder, and the access to it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

from streamvault.common.errors import Conflict, Damaged
from streamvault.lake.plan import TablePlan, files_of, find_plan, options_after, published_plan
from streamvault.lake.table import TableOptions, find_options, fix_options
from streamvault.layouts.isolated import NotDecodable
from streamvault.layouts.keys import PlaceAddress, parse_table_file, table_data, table_file_key, table_files
from streamvault.layouts.table import NotDescribed, read_facts
from streamvault.manifests.archive import Archive
from streamvault.manifests.history import Generation


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table, for a catalog.

    Attributes:
        database: Glue's database or Iceberg's namespace.
        options: the options that the table was begun with; see `as_of`.
        archive: the copy of the archive that the table is.
    """

    database: str
    options: TableOptions
    archive: Archive

    @property
    def name(self) -> str:
        """``DATABASE.TABLE``."""
        return f"{self.database}.{self.options.table}"

    @property
    def location(self) -> str:
        """The URI of the folder with its files, without a trailing slash, as query engines take it."""
        uri = self.archive.store.uri
        root = unquote(uri) if uri.startswith("file:") else uri  # engines do not decode a path
        return f"{root}/{self.folder.prefix}".rstrip("/")

    @property
    def folder(self) -> PlaceAddress:
        """The folder with its files."""
        return PlaceAddress(self.archive.root, table_data(self.archive.prefix))

    def as_of(self, generation: int) -> TablePlace:
        """Return the table with the columns that a generation has; 0 for those that the table was begun with.

        Raises:
            Damaged: the generation's plan is missing or cannot be read.
        """
        if not generation or self.options.decode == "none":
            return self
        last = self.archive.manifest(generation)
        return replace(self, options=options_after(self.archive, self.options, last))

    def partition(self, generation: int) -> str:
        """Return the URI of the folder with a generation's files, with a trailing slash."""
        return f"{self.location}/{table_files(generation)}"

    def files(self, generation: Generation) -> list[str]:
        """Return the URIs of a published generation's files, except those without rows.

        Raises:
            Damaged: a file is missing in the table's folder.
            Conflict: there is another one, whose rows queries of the folder would see.
        """
        archive, manifest = self.archive, generation.manifest
        plan = published_plan(archive, manifest, self.options)
        begins = {segment: [row.start for row in rows] for segment, rows in generation.rows.items()}
        planned = {
            table_file_key(plan.generation, ranges[0].segment, ranges[0].start, plan.file_id): any(
                _has_any(begins.get(one.segment, ()), one.start, one.end) for one in ranges
            )
            for ranges in files_of(plan.planned(), self.options.target_size)
        }
        keys = [key for key, has_rows in planned.items() if has_rows]
        folder = self.folder.prefix
        files = archive.store.list(folder + table_files(manifest.generation)) if keys else ()
        there = {found.key for found in files}
        gone = next((key for key in keys if folder + key not in there), None)
        if gone is not None:
            raise Damaged(
                f"a file of generation {manifest.generation}, which is not registered yet, is missing",
                where=f"{self.location}/{gone}",
                todo="Create another table (--table NAME).",
            )
        for key in sorted(key.removeprefix(folder) for key in there):
            found = parse_table_file(key)
            if found is not None and found.file_id == plan.file_id and key not in planned:
                what = f"generation {manifest.generation} has a file that it was not planned with"
                todo = "A run for a table that was removed wrote it; create another table (--table NAME)."
                raise Conflict(what, where=f"{self.location}/{key}", todo=todo)
        return [f"{self.location}/{key}" for key in keys]

    def check_readable(self, files: Sequence[str]) -> None:
        """Check the metadata of files in a process of its own: a catalog's library reads them in this one.

        Args:
            files: URIs, as from `files`.

        Raises:
            Conflict: an earlier release wrote a file with values that the library does not take.
            Damaged: those of a file cannot be read.
        """
        for file in files:
            try:
                read_facts(self.archive.store, self.folder.prefix + file.removeprefix(f"{self.location}/"))
            except NotDescribed as error:
                raise not_taken(file, error) from None
            except NotDecodable as error:
                todo = "Create another table (--table NAME)."
                raise Damaged(f"not a readable table file: {error}", where=file, todo=todo) from None


def not_taken(where: str, reason: Exception) -> Conflict:
    """Return the error for a file, written by an earlier release, with values that no Iceberg table can have."""
    what = f"an earlier release wrote values that cannot be registered: {reason}"
    return Conflict(what, where=where, todo="Create another table (--table NAME).")


def _has_any(numbers: Sequence[int], low: int, high: int) -> bool:
    """Return whether one of some ascending numbers lies in ``[low, high)``."""
    return bisect_left(numbers, low) < bisect_left(numbers, high)


def begin_table(place: TablePlace, todo: TablePlan) -> TablePlace:
    """Record the table's options, create-only, before any file is written; return the table with those in force.

    Args:
        place: the table.
        todo: the plan that is carried out first.

    Raises:
        Conflict: the table was created with other options, or it has files but no records.
    """
    archive = place.archive

    def is_lost() -> bool:
        return find_options(archive) is None or (not todo.after and find_plan(archive, 0, None) is None)

    if (
        is_lost()
        and any(name.startswith("generation=") for name in archive.store.folders(place.folder.prefix))
        and is_lost()  # else another run has begun it in the meantime: options and plan precede the files
    ):
        raise Conflict(
            "the folder has files of a table, but the table's records are missing",
            where=place.location,
            todo=f"Restore {archive.uri} from a backup, or create another table (--table NAME).",
        )
    return replace(place, options=fix_options(archive, place.options))
