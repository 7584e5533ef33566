"""One range, moved by one task: from the segment's bytes to objects, and a row that says so."""

from __future__ import annotations

from dataclasses import dataclass, replace

from exporter.ranges import read_range
from exporter.reading import LargeEventReader, PieceReader
from exporter.spans import Span
from layouts.extent import Extent
from layouts.keys import GenerationSpan
from layouts.layout import open_layout
from layouts.place import Place
from manifests.model import Compression, Layout
from manifests.rows import FinishedRange, Piece, leave_row
from objectstore.store import ObjectStore
from objectstore.uri import RootAddress
from streamstore.model import LARGEST_EVENT_BYTES, SegmentId, StreamName
from streamstore.uri import StoreAddress

__all__ = ["ExportTask", "Exported", "export_range"]


@dataclass(frozen=True, slots=True)
class ExportTask:
    """All that a task needs to move one range.

    Attributes:
        source, stream, segment: where from. segment_end: where the segment ends for this generation (bytes).
        root, prefix: the archive. generation, attempt, layout, compression: of the plan.
        window: bytes to hold in memory at most, of what is on its way.
        storage_class: of the data's objects; empty for the bucket's own.
        span: where the range's events begin; if its low end is not known to be a boundary, the task has to guess.
        largest: the largest payload to accept (bytes), if it is known.
    """

    source: StoreAddress
    stream: StreamName
    segment: SegmentId
    segment_end: int
    root: RootAddress
    prefix: str
    generation: int
    attempt: int
    layout: Layout
    compression: Compression
    window: int
    span: Span
    storage_class: str = ""
    largest: int = LARGEST_EVENT_BYTES


@dataclass(frozen=True, slots=True)
class Exported:
    """What became of a task.

    Attributes:
        segment: which. row: the finished range; None if no event begins in the span, or the guess led nowhere.
    """

    segment: SegmentId
    row: FinishedRange | None


def export_range(task: ExportTask) -> Exported:
    """Move one range. Doing it twice, or in two places at once, writes the same objects.

    Raises:
        NotEvents: a range that begins at a known boundary is not made of events.
        InvalidCut: the segment's end for this generation lies inside an event.
    """
    data = replace(task.root, storage_class=task.storage_class).open()
    with task.source.lend() as source:
        row = read_range(
            source,
            task.stream,
            task.segment,
            span=task.span,
            segment_end=task.segment_end,
            largest=task.largest,
            take=lambda piece: _write(data, task, piece),
        )
    if row is None:
        return Exported(task.segment, None)
    left = leave_row(
        task.root.open(), task.prefix, GenerationSpan.of(task.generation), task.segment, row, attempt=task.attempt
    )
    return Exported(task.segment, left)


def _write(objects: ObjectStore, task: ExportTask, piece: PieceReader | LargeEventReader) -> Piece:
    layout, place = open_layout(task.layout, task.compression), Place(objects, task.prefix)
    if isinstance(piece, LargeEventReader):
        event = Extent(task.segment, piece.start, piece.start + piece.length)
        written = layout.write_large(place, event, piece.data(), task.window)
    else:
        written = layout.write_run(place, task.segment, piece.blocks(), task.window)
    return Piece(start=piece.start, end=piece.end, events=piece.count, digest=piece.digest, frames=written.frames)
