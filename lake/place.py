"""Where a table is: its name in a catalog, its folder, and how that is reached."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from lake.options import TableOptions
from manifests.archive import Archive
from manifests.history import Generation
from objectstore.access import S3Access
from objectstore.keys import table_file_key, table_files
from objectstore.layouts.table import file_of

__all__ = ["TablePlace", "fingerprint"]


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table, for a catalog.

    Attributes:
        database: the catalog's (Glue's database, Iceberg's namespace).
        options: the table's. archive: the copy of the archive that its folder is.
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
        """The folder's URI, without a slash at its end."""
        return self.archive.uri

    def partition(self, generation: int) -> str:
        """The URI of the folder with a generation's files, with a slash at its end."""
        return f"{self.location}/{table_files(generation)}"

    def files(self, generation: Generation) -> Iterator[str]:
        """The URIs of a complete generation's files, but for those without a row."""
        store, prefix, number = self.archive.store, self.archive.prefix, generation.manifest.generation
        rows = (row for segment in sorted(generation.rows) for row in generation.rows[segment])
        for key in dict.fromkeys(file_of(store, prefix, number, row.extent) for row in rows):
            yield f"{self.location}/{table_file_key(*key)}"


def fingerprint(generation: Generation) -> str:
    """A digest over all that the manifest says of a generation."""
    return hashlib.sha256(generation.manifest.encode()).hexdigest()
