"""One range, moved by one task: from the segment's bytes to objects, and a row that says so."""

from __future__ import annotations

from dataclasses import dataclass, replace

from exporter.reading import TRUNCATED, PieceReader, RangeReader
from exporter.spans import Span
from manifests.model import Compression, Layout
from manifests.rows import FinishedRange, Gap, Piece, leave_row
from objectstore.layouts import open_layout
from objectstore.store import ObjectStore
from objectstore.uri import RootAddress
from problems import Failed, Problem
from streamstore.errors import InvalidCut, NoSuchSegment, SegmentTruncated
from streamstore.framing import NotAnEvent
from streamstore.model import SegmentId, StreamName
from streamstore.store import StreamStore
from streamstore.uri import StoreAddress
from streamstore.walking import find_start

__all__ = ["ExportTask", "Exported", "NotEvents", "export_range"]


class NotEvents(Failed):
    """A segment's bytes are not events, or the range was begun inside of one."""


@dataclass(frozen=True, slots=True)
class ExportTask:
    """All that a task needs to move one range.

    Attributes:
        source, stream, segment: where from. segment_end: where the segment ends for this generation (bytes).
        root, prefix: the archive. generation, layout, compression: of the plan.
        window: bytes to hold in memory at most, of what is on its way.
        storage_class: of the data's objects; empty for the bucket's own.
        span: where the range's events begin; if its low end is not known to be a boundary, the task has to guess.
    """

    source: StoreAddress
    stream: StreamName
    segment: SegmentId
    segment_end: int
    root: RootAddress
    prefix: str
    generation: int
    layout: Layout
    compression: Compression
    window: int
    span: Span
    storage_class: str = ""


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
    with task.source.lend() as source:
        objects = task.root.open()
        found = _start(source, task)
        if found is None or found.start >= task.span.high:
            return Exported(task.segment, None)
        reader = RangeReader(
            source,
            task.stream,
            task.segment,
            start=found.start,
            high=task.span.high,
            segment_end=task.segment_end,
        )
        try:
            data = replace(task.root, storage_class=task.storage_class).open()
            pieces = tuple(_write(data, task, piece) for piece in reader.pieces())
        except NotAnEvent as error:
            if not task.span.known:
                return Exported(task.segment, None)  # a wrong guess; the driver comes back with a proved boundary
            raise _not_events(task, error) from None
        row = FinishedRange(
            start=found.start,
            end=reader.end,
            pieces=tuple(piece for piece in pieces if piece.events),
            gaps=(*found.gaps, *reader.gaps),
        )
        return Exported(task.segment, _leave(objects, task, row))


def _write(objects: ObjectStore, task: ExportTask, piece: PieceReader) -> Piece:
    written = open_layout(task.layout, task.compression).write_run(
        objects, task.prefix, task.segment.epoch, task.segment.number, piece.blocks(), task.window
    )
    return Piece(start=piece.start, end=piece.end, events=piece.count, digest=piece.digest, frames=written.frames)


def _start(source: StreamStore, task: ExportTask) -> FinishedRange | None:
    """Where the range begins, as a row without content yet; None if that cannot be said."""
    if task.span.known:
        return FinishedRange(start=task.span.low, end=task.span.low, pieces=())
    try:
        start = find_start(source, task.stream, task.segment, task.span.low, task.segment_end)
    except SegmentTruncated as truncated:
        start = truncated.start_offset
        gap = Gap(start=task.span.low, end=start, reason=TRUNCATED)
        return FinishedRange(start=start, end=start, pieces=(), gaps=(gap,))
    except NoSuchSegment:
        return None  # the task that comes from the known boundary says what is gone
    return None if start is None else FinishedRange(start=start, end=start, pieces=())


def _leave(objects: ObjectStore, task: ExportTask, row: FinishedRange) -> FinishedRange:
    return leave_row(objects, task.prefix, task.generation, task.segment, row)


def _not_events(task: ExportTask, error: NotAnEvent) -> Problem:
    where = task.segment.in_stream(task.stream)
    if "cut" in error.what:
        return InvalidCut(f"the stream cut lies inside an event ({error.what})", where=where)
    return NotEvents(error.what, where=where, todo="A cut has to lie between events; byte streams cannot be archived.")
