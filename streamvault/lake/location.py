"""A table's location: its name in a catalog, its folder, and the access to it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import unquote

from streamvault.common.errors import Conflict, Damaged, Problem
from streamvault.lake.plan import TablePlan, files_of, find_plan, options_after, published_plan
from streamvault.lake.table import TableOptions, as_begun, find_options, fix_options, removed
from streamvault.layouts.isolated import NotDecodable
from streamvault.layouts.keys import PlaceAddress, is_table_folder, table_data, table_file_key, table_files
from streamvault.layouts.table import NotDescribed, read_facts
from streamvault.manifests.archive import TableArchive
from streamvault.manifests.history import Generation


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table, for a catalog.

    Attributes:
        database: Glue's database or Iceberg's namespace.
        options: the options that the table was begun with; see `as_of`.
        archive: its records.
        is_new: whether it is still to be begun, so that its folder is only a proposal.
    """

    database: str
    options: TableOptions
    archive: TableArchive
    is_new: bool = False

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

    def begun(self) -> TablePlace:
        """Record a new table's options, create-only, before any file is written; return the table that is there now.

        Raises:
            Overtaken: another run has begun the table in the meantime, with other options.
        """
        if not self.is_new:  # if it was removed, its folder must not get another one
            return self
        return self._begun_with(fix_options(self.archive, self.options))

    def joined(self) -> TablePlace | None:
        """Return the table that another run has begun in place of a new one; None if none has.

        Raises:
            Overtaken: it has other options.
        """
        found = find_options(self.archive) if self.is_new else None
        return None if found is None else self._begun_with(as_begun(self.archive, found, self.options))

    def _begun_with(self, options: TableOptions) -> TablePlace:
        return replace(self, options=options, archive=self.archive.in_folder(options.folder), is_new=False)

    @contextmanager
    def unless_removed(self) -> Iterator[None]:
        """Return a context in which a run works on the table, or looks where a new one will be.

        What a run of a table that was removed writes harms nobody, as it is in a folder of its own. But it has not done
        what it was asked to, and other errors would mislead.

        Raises:
            Overtaken: on leaving it: the table was removed in the meantime, or created again.
        """
        try:
            yield
        except Problem as problem:
            try:
                is_gone = self.is_removed()
            except Problem:
                raise problem from None
            if is_gone:
                raise removed(self.location) from None
            raise
        if self.is_removed():
            raise removed(self.location)

    def is_removed(self) -> bool:
        """Return whether a table that was begun is no longer there, or was made anew in another folder."""
        return not self.is_new and find_options(self.archive) != self.options

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
        """
        archive, manifest = self.archive, generation.manifest
        plan = published_plan(archive, manifest)
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


def check_records(place: TablePlace, todo: TablePlan) -> None:
    """Check that no table of this name has files but no records.

    Args:
        place: the table.
        todo: the plan that is carried out first.

    Raises:
        Conflict: one has: they were lost, or only they were removed.
    """
    if _lost(place, todo) and (lost := _lost(place, todo)):  # else another run has begun it between the two looks
        store = place.archive.store
        files = f"{store.uri}/{table_data(lost.prefix)}"
        raise Conflict(
            "the folder has files of a table, but the table's records are missing",
            where=files,
            todo=f"Restore {lost.uri} from a backup, or create another table (--table NAME). If the table was removed, "
            "remove its files, too.",
        )


def _lost(place: TablePlace, todo: TablePlan) -> TableArchive | None:
    """Return the table whose records are missing, while its folder has files; None if there is none.

    A table's options and first plan precede its files.
    """
    options = find_options(place.archive)
    records = place.archive.in_folder("" if options is None else options.folder)
    if options is not None and (todo.after or find_plan(records, 0) is not None):
        return None
    return records if any(map(is_table_folder, records.store.folders(table_data(records.prefix)))) else None
