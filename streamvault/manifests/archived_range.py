"""Reads an archived range and verifies its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from streamvault.common.errors import Damaged
from streamvault.layouts.layout import open_reader
from streamvault.layouts.place import Place
from streamvault.manifests.range_row import RangeRow
from streamvault.objectstore.bulk import WINDOW_BYTES
from streamvault.objectstore.uri import RootAddress

__all__ = ["ArchivedRange", "DigestMismatch", "damaged_range", "read_verified"]


class DigestMismatch(Damaged):
    """The bytes of a range differ from the manifest, although every object is there with the right size."""


def read_verified(place: Place, layout: str, row: RangeRow, window: int = WINDOW_BYTES) -> Iterator[bytes | memoryview]:
    """Yield a range's bytes, as blocks that may split events; the digest is verified after the last block.

    Args:
        place: the archive.
        layout: name of the range's layout or table files (see `layouts.layout.open_reader`).
        row: the range.
        window: maximum data buffered in memory (bytes).

    Raises:
        DigestMismatch: the bytes differ from the manifest.
        Damaged: an object is missing or has the wrong size; names it.
    """
    digest = hashlib.sha256()
    for block in open_reader(layout).read_range(place, row.extent, row.start, row.end, window):
        digest.update(block)
        yield block
    if digest.hexdigest() != row.digest:
        raise damaged_range(place, row)


def damaged_range(place: Place, row: RangeRow) -> DigestMismatch:
    """Return the error for a range whose bytes do not match its manifest."""
    return DigestMismatch(
        "the archive's bytes do not match the manifest",
        where=f"{place.at(place.prefix)}{row.segment} bytes {row.start} to {row.end}",
        todo="Run 'streamvault check --read-data' on the archive.",
    )


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """A `streamstore.byte_source.ByteSource` that is a range of an archive.

    Attributes:
        root: the archive's root.
        prefix: prefix of the archive's keys.
        layout: name of the range's layout or table files.
        row: the range.
    """

    root: RootAddress
    prefix: str
    layout: str
    row: RangeRow

    @property
    def start(self) -> int:
        """See `ByteSource`."""
        return self.row.start

    @property
    def end(self) -> int:
        """See `ByteSource`."""
        return self.row.end

    @property
    def digest(self) -> str:
        """See `ByteSource`; always known."""
        return self.row.digest

    @property
    def place(self) -> Place:
        """The archive."""
        return Place(self.root.open(), self.prefix)

    def blocks(self, start: int, end: int, window: int) -> Iterator[bytes | memoryview]:
        """See `ByteSource.blocks`.

        Raises:
            DigestMismatch, Damaged: as `read_verified`.
        """
        if (start, end) == (self.start, self.end):
            return read_verified(self.place, self.layout, self.row, window)
        return open_reader(self.layout).read_range(self.place, self.row.extent, start, end, window)
