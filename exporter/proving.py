"""An archived range's events, proved on the way."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from manifests.model import Layout
from manifests.range_row import RangeRow
from objectstore.layouts import open_layout
from objectstore.store import ObjectStore
from problems import Damaged
from streamstore.splitting import EventBlock, EventSplitter

__all__ = ["proved_blocks"]


def proved_blocks(store: ObjectStore, prefix: str, layout: Layout, row: RangeRow, window: int) -> Iterator[EventBlock]:
    """A range's events, proved before the last block is left.

    Args:
        store: the archive's root.
        prefix: the archive below it.
        layout: in which the range is stored.
        row: the range.
        window: bytes to hold in memory at most.

    Raises:
        Damaged: its bytes are not what the manifest says.
    """
    digest, splitter, count = hashlib.sha256(), EventSplitter(row.start, str(row.segment)), 0
    for block in open_layout(layout).read_range(store, prefix, row.extent, row.start, row.end, window):
        digest.update(block)
        for events in splitter.feed(block):
            count += events.count
            yield events
    splitter.finish()
    if digest.hexdigest() != row.digest or count != row.events:
        raise Damaged(
            "the archive's bytes are not what its manifest says",
            where=f"{store.uri}/{prefix}{row.segment} bytes {row.start} to {row.end}",
            todo="Run 'streamvault check --read-data' on it.",
        )
