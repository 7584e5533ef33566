"""Reads the bytes of an archived range and verifies their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from streamvault.common.errors import Damaged
from streamvault.common.underway import task_progress
from streamvault.layouts.layout import open_reader
from streamvault.layouts.place import Place, PlaceAddress
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.objectstore.bulk import WINDOW_BYTES


class DigestMismatch(Damaged):
    """The bytes of a range differ from the manifest, although every object is there with the right size."""


def read_verified(
    place: Place, layout: str, row: ArchivedRange, window: int = WINDOW_BYTES
) -> Iterator[bytes | memoryview]:
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
    digest, done = hashlib.sha256(), task_progress()
    for block in open_reader(layout).read_range(place, row.stored, row.start, row.end, window):
        digest.update(block)
        done.read(len(block))
        yield block
    if digest.hexdigest() != row.digest:
        raise damaged_range(place, row)


def read_part(
    place: Place,
    layout: str,
    row: ArchivedRange,
    bounds: tuple[int, int],
    window: int = WINDOW_BYTES,
    *,
    verify: bool = False,
) -> Iterator[bytes | memoryview]:
    """Yield a range's bytes, or a part of them, for a reader that may stop early.

    Whoever reads a range to its end is told by an error after the last block if the digest differs. Only a whole range
    has a digest, so a part is verified only on request.

    Args:
        place: see `read_verified`.
        layout: see `read_verified`.
        row: see `read_verified`.
        bounds: start and end of what to yield (bytes).
        window: see `read_verified`.
        verify: read the whole range and compare its digest before the first block is yielded.

    Raises:
        DigestMismatch, Damaged: as `read_verified`.
    """
    if verify:
        for _ in read_verified(place, layout, row, window):
            pass
    if bounds == (row.start, row.end):
        yield from read_verified(place, layout, row, window)
    else:
        yield from open_reader(layout).read_range(place, row.stored, *bounds, window)


def damaged_range(place: Place, row: ArchivedRange) -> DigestMismatch:
    """Return the error for a range whose bytes do not match its manifest."""
    return DigestMismatch(
        "the archive's bytes do not match the manifest",
        where=f"{place.at(place.prefix)}{row.segment} bytes {row.start} to {row.end}",
        todo="Run 'streamvault check --read-data' on the archive.",
    )


@dataclass(frozen=True, slots=True)
class RangeBytes:
    """A `streamstore.arithmetic.byte_source.ByteSource` that is a range of an archive.

    Attributes:
        address: the archive.
        layout: name of the range's layout or table files.
        row: the range.
    """

    address: PlaceAddress
    layout: str
    row: ArchivedRange

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
        return self.address.open()

    def blocks(self, start: int, end: int, window: int) -> Iterator[bytes | memoryview]:
        """See `ByteSource.blocks`.

        Raises:
            DigestMismatch, Damaged: as `read_verified`.
        """
        return read_part(self.place, self.layout, self.row, (start, end), window)
