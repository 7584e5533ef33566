"""Reads the events of an archived range and verifies its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from common.errors import Damaged
from layouts.layout import open_layout
from layouts.place import Place
from manifests.model import Layout
from manifests.range_row import RangeRow
from streamstore.splitting import EventBlock, EventSplitter

__all__ = ["proved_blocks", "proved_data"]


def proved_blocks(
    place: Place,
    layout: Layout,
    row: RangeRow,
    window: int,
    *,
    part: tuple[int, int] | None = None,
) -> Iterator[EventBlock]:
    """Yield a range's events; the digest is verified after the last block.

    Args:
        place: the archive.
        layout: the range's layout.
        row: the range.
        window: maximum data buffered in memory (bytes).
        part: start and end of the part to yield (bytes, both event boundaries); None for all. The whole range is read
            and verified in any case, since only it has a digest.

    Raises:
        Damaged: the bytes differ from the manifest.
    """
    start, end = part or (row.start, row.end)
    bounds = [row.start, *sorted({start, end} - {row.start, row.end}), row.end]
    splitters = [EventSplitter(offset, str(row.segment)) for offset in bounds[:-1]]
    digest, count, at = hashlib.sha256(), 0, row.start
    for block in open_layout(layout).read_range(place, row.extent, row.start, row.end, window):
        digest.update(block)
        view = memoryview(block)
        for splitter, low, high in zip(splitters, bounds, bounds[1:], strict=False):
            for events in splitter.feed(view[max(low - at, 0) : max(high - at, 0)]):
                count += events.count
                if start <= low < end:
                    yield events
        at += len(view)
    for splitter in splitters:
        splitter.finish()
    if digest.hexdigest() != row.digest or count != row.events:
        raise _damaged(place, row)


def proved_data(place: Place, layout: Layout, row: RangeRow, window: int) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a range that is one large event; arguments and errors as for `proved_blocks`."""
    digest = hashlib.sha256()
    for block in open_layout(layout).read_range(place, row.extent, row.start, row.end, window):
        digest.update(block)
        yield block
    if digest.hexdigest() != row.digest:
        raise _damaged(place, row)


def _damaged(place: Place, row: RangeRow) -> Damaged:
    return Damaged(
        "the archive's bytes differ from its manifest",
        where=f"{place.at(place.prefix)}{row.segment} bytes {row.start} to {row.end}",
        todo="Run 'streamvault check --read-data' on the archive.",
    )
