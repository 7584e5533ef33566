"""The task that joins several small chunks; a module of its own, so that tasks import little."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from streamvault.exporter.archived_events import verified_events
from streamvault.layouts.keys import GenerationSpan
from streamvault.layouts.layout import Compression, LayoutName, open_layout
from streamvault.layouts.place import PlaceAddress
from streamvault.manifests.archive.merging import MergeSpan
from streamvault.manifests.archive.rows import FinishedSpan, RangeEntry, leave_row
from streamvault.streamstore.arithmetic.splitting import EventBlock


@dataclass(frozen=True, slots=True)
class JoinTask:
    """Specification of a task that joins several chunks.

    Attributes:
        archive: the archive.
        layout: their layout.
        join: the ranges.
        compression: compression of old and new chunks.
        span: the merged generations.
        window: maximum data buffered in memory (bytes).
    """

    archive: PlaceAddress
    layout: LayoutName
    join: MergeSpan
    compression: Compression
    span: GenerationSpan
    window: int


def join_ranges(task: JoinTask) -> RangeEntry:
    """Join several chunks into one. Repeated or concurrent calls write the same object.

    Raises:
        Damaged: a chunk's bytes do not match its manifest; nothing is written.
    """
    join, place = task.join, task.archive.open()
    digest = hashlib.sha256()

    def blocks() -> Iterator[EventBlock]:
        for row in join.rows:
            for block in verified_events(place, task.layout, row, task.window):
                digest.update(block.data)
                yield block

    data = task.archive.open_data()
    frames = open_layout(task.layout, task.compression).write_run(data, join.segment, blocks(), task.window)
    joined = RangeEntry(start=join.start, end=join.end, events=join.events, digest=digest.hexdigest(), frames=frames)
    row = FinishedSpan(start=join.start, end=join.end, ranges=(joined,))
    left = leave_row(place, task.span, join.segment, row).ranges[0]
    return left if left.end == join.end else joined  # a row of other bounds says nothing about this chunk
