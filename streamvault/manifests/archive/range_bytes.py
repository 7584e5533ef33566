"""Reads the bytes of an archived range and verifies their digest."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from streamvault.common.errors import Damaged
from streamvault.common.underway import task_progress
from streamvault.layouts.layout import open_reader
from streamvault.layouts.place import Place, PlaceAddress
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.objectstore.bulk import WINDOW_BYTES
from streamvault.streamstore.model import MAX_EVENT_BYTES

BESIDES = MAX_EVENT_BYTES
"""How much larger (bytes) than the window a range may be that is buffered: it ends with the event at its edge."""

AHEAD = 16 * 1024 * 1024
"""Data read ahead (bytes) of a range that is buffered whole."""


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
    verify: bool = True,
) -> Iterator[bytes | memoryview]:
    """Yield a range's bytes, or a part of them, once the whole range has been compared with its digest.

    A range that fits into the window is buffered; a larger one is read twice.

    Args:
        place: see `read_verified`.
        layout: see `read_verified`.
        row: see `read_verified`.
        bounds: start and end of what to yield (bytes).
        window: maximum data buffered in memory (bytes), besides an event of 8 MiB and what is read ahead.
        verify: False: yield the bytes as they are read. The digest is compared after the last block of a whole range;
            that of a part is not.

    Raises:
        DigestMismatch, Damaged: as `read_verified`.
    """
    whole = (row.start, row.end)
    if verify and bounds[0] < bounds[1]:
        held = row.end - row.start <= window + BESIDES
        blocks = deque[bytes | memoryview]()
        for block in read_verified(place, layout, row, min(window, AHEAD) if held else window):
            if held:
                blocks.append(block)
        if held:
            yield from _within(blocks, row.start, bounds)
            return
    if bounds == whole:
        yield from read_verified(place, layout, row, window)
    else:
        yield from open_reader(layout).read_range(place, row.stored, *bounds, window)


def _within(blocks: deque[bytes | memoryview], at: int, bounds: tuple[int, int]) -> Iterator[bytes | memoryview]:
    """Yield the part of blocks that lies within bounds, and let go of each."""
    while blocks:
        block = blocks.popleft()
        low, high = max(bounds[0] - at, 0), min(bounds[1] - at, len(block))
        at += len(block)
        if low < high:
            yield block if high - low == len(block) else memoryview(block)[low:high]


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
        """See `ByteSource.blocks`. Nothing is yielded of a range that does not have its digest.

        Raises:
            DigestMismatch, Damaged: as `read_verified`.
        """
        return read_part(self.place, self.layout, self.row, (start, end), window)
