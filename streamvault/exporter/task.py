"""The task of an export: move one range from the segment to objects, and leave a row."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamvault.layouts.extent import Compression, Extent
from streamvault.layouts.keys import GenerationSpan
from streamvault.layouts.layout import LayoutName, open_layout
from streamvault.layouts.place import Place, PlaceAddress
from streamvault.manifests.archive.rows import FinishedSpan, RangeEntry, leave_row
from streamvault.objectstore.store import ObjectStore
from streamvault.reading.ranges import read_range
from streamvault.reading.reader import LargeEventReader, PieceReader
from streamvault.reading.spans import Span
from streamvault.streamstore.model import LARGEST_EVENT_BYTES, ContentKind, SegmentId, StreamName
from streamvault.streamstore.uri import StoreAddress


@dataclass(frozen=True, slots=True)
class ExportTask:
    """Arguments of a task that moves one range.

    Attributes:
        source: address of the stream's store.
        stream: the stream.
        segment: the range's segment.
        segment_end: the segment's end in this generation (bytes).
        archive: the archive.
        generation: the plan's generation.
        attempt: the plan's attempt.
        layout: the plan's layout.
        compression: the plan's compression.
        window: maximum data buffered in memory (bytes).
        span: the range's span; if its start is not known to be an event boundary, the task guesses one.
        storage_class: storage class of the data objects; empty for the bucket's default.
        largest: maximum payload of an event (bytes), where event boundaries are known.
        content: the plan's content.
    """

    source: StoreAddress
    stream: StreamName
    segment: SegmentId
    segment_end: int
    archive: PlaceAddress
    generation: int
    attempt: int
    layout: LayoutName
    compression: Compression
    window: int
    span: Span
    storage_class: str = ""
    largest: int = LARGEST_EVENT_BYTES
    content: ContentKind = "events"


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of a task.

    Attributes:
        segment: the range's segment.
        row: the finished range; None if no event begins in the span, or the guess was wrong.
    """

    segment: SegmentId
    row: FinishedSpan | None


def export_range(task: ExportTask) -> Exported:
    """Move one range. Repeated and concurrent calls write the same objects.

    Raises:
        NotEvents: a range that begins at a known boundary does not consist of events.
        InvalidCut: the segment's end in this generation is inside an event.
    """
    data = replace(task.archive.root, storage_class=task.storage_class).open()
    with task.source.lend() as source:
        row = read_range(
            source,
            task.stream,
            task.segment,
            span=task.span,
            segment_end=task.segment_end,
            largest=task.largest,
            take=lambda piece: _write(data, task, piece),
            content=task.content,
        )
    if row is None:
        return Exported(task.segment, None)
    generation = GenerationSpan.of(task.generation)
    left = leave_row(task.archive.open(), generation, task.segment, row, attempt=task.attempt)
    return Exported(task.segment, left)


def _write(objects: ObjectStore, task: ExportTask, piece: PieceReader | LargeEventReader) -> RangeEntry:
    layout, place = open_layout(task.layout, task.compression), Place(objects, task.archive.prefix)
    if isinstance(piece, LargeEventReader):
        event = Extent(task.segment, piece.start, piece.start + piece.length)
        written = layout.write_large(place, event, piece.data(), task.window)
    else:
        written = layout.write_run(place, task.segment, piece.blocks(), task.window)
    return RangeEntry(start=piece.start, end=piece.end, events=piece.count, digest=piece.digest, frames=written.frames)
