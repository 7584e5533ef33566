"""Reads the events of archived ranges and verifies their digests; writes them again, as another range."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from streamvault.layouts.layout import Layout, StoredRange
from streamvault.layouts.place import Place
from streamvault.manifests.archive.range_bytes import damaged_range, read_verified
from streamvault.manifests.archive.rows import RangeEntry
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.streamstore.arithmetic.splitting import EventBlock, open_splitter


def verified_events(
    place: Place, layout: str, row: ArchivedRange, window: int, *, part: tuple[int, int] | None = None
) -> Iterator[EventBlock]:
    """Yield a range's events, or its bytes; the digest is verified after the last block.

    Args:
        place: see `read_verified`.
        layout: see `read_verified`.
        row: see `read_verified`.
        window: see `read_verified`.
        part: start and end of the part to yield (bytes; of events, both are boundaries); None for all. The whole
            range is read and verified in any case, since only it has a digest.

    Raises:
        Damaged: as for `read_verified`, or the number of events differs from the manifest.
    """
    start, end = part or (row.start, row.end)
    bounds = [row.start, *sorted({start, end} - {row.start, row.end}), row.end]
    splitters = [open_splitter(row.content, offset, str(row.segment)) for offset in bounds[:-1]]
    count, at = 0, row.start
    for block in read_verified(place, layout, row, window):
        view = memoryview(block)
        for splitter, low, high in zip(splitters, bounds, bounds[1:], strict=False):
            for events in splitter.feed(view[max(low - at, 0) : max(high - at, 0)]):
                count += events.count
                if start <= low < end:
                    yield events
        at += len(view)
    for splitter in splitters:
        splitter.finish()
    if count != row.events:
        raise damaged_range(place, row)


def write_again(place: Place, layout: Layout, to: StoredRange, events: Iterable[EventBlock], window: int) -> RangeEntry:
    """Write the events of archived ranges as one range; return its entry."""
    digest, count = hashlib.sha256(), 0

    def counted() -> Iterator[EventBlock]:
        nonlocal count
        for block in events:
            digest.update(block.data)
            count += block.count
            yield block

    written = layout.write_run(place, to.segment, counted(), window)
    return RangeEntry(start=to.start, end=to.end, events=count, digest=digest.hexdigest(), **written._asdict())
