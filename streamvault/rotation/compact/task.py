"""The task that joins several small chunks; a module of its own, so that tasks import little."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from streamvault.exporter.archived_events import verified_events, write_again
from streamvault.layouts.layout import Compression, LayoutName, StoredRange, open_layout
from streamvault.layouts.object_keys import GenerationSpan
from streamvault.layouts.place import PlaceAddress
from streamvault.manifests.archive.merging import MergeSpan
from streamvault.manifests.archive.rows import FinishedSpan, RangeEntry, leave_row


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
    events = chain.from_iterable(verified_events(place, task.layout, row, task.window) for row in join.rows)
    to = StoredRange(join.segment, join.start, join.end)
    joined = write_again(task.archive.open_data(), open_layout(task.layout, task.compression), to, events, task.window)
    row = FinishedSpan(start=join.start, end=join.end, ranges=(joined,))
    left = leave_row(place, task.span, join.segment, row).ranges[0]
    return left if left.end == join.end else joined  # a row of other bounds says nothing about this chunk
