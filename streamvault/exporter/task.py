"""The task of an export: move one range from the segment to objects, and leave a row."""

from __future__ import annotations

from dataclasses import dataclass

from streamvault.layouts.layout import Compression, LayoutName, StoredRange, open_layout
from streamvault.layouts.object_keys import GenerationSpan
from streamvault.layouts.place import Place, PlaceAddress
from streamvault.manifests.archive.rows import FinishedSpan, RangeEntry, leave_row
from streamvault.reading.ranges import read_range
from streamvault.reading.reader import LargeEventReader, RunReader
from streamvault.reading.spans import SegmentSpan
from streamvault.streamstore.model import SegmentId


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTask(SegmentSpan):
    """Arguments of a task that moves one range: its span, and where it is written.

    Attributes:
        archive: address of the archive.
        generation: the plan's generation.
        attempt: the plan's attempt.
        layout: the plan's layout.
        compression: the plan's compression.
        window: maximum data buffered in memory (bytes).
    """

    archive: PlaceAddress
    generation: int
    attempt: int
    layout: LayoutName
    compression: Compression
    window: int


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of a task.

    Attributes:
        segment: the range's segment.
        row: the finished range; None if no event begins in the span, or the guess was wrong.
        read: what the task itself has read of the source. The row may be another one's, which was first.
    """

    segment: SegmentId
    row: FinishedSpan | None
    read: tuple[RangeEntry, ...] = ()


def export_range(task: ExportTask) -> Exported:
    """Move one range. Repeated and concurrent calls write the same objects.

    Raises:
        NotEvents: a range that begins at a known boundary does not consist of events.
        InvalidCut: the segment's end in this generation is inside an event.
    """
    place = task.archive.open_data()
    with task.source.lend() as source:
        row = read_range(source, task, lambda run: _write(place, task, run))
    if row is None:
        return Exported(task.segment, None)
    generation = GenerationSpan.of(task.generation)
    left = leave_row(task.archive.open(), generation, task.segment, row, attempt=task.attempt)
    return Exported(task.segment, left, row.ranges)


def _write(place: Place, task: ExportTask, run: RunReader | LargeEventReader) -> RangeEntry:
    layout = open_layout(task.layout, task.compression)
    if isinstance(run, LargeEventReader):
        event = StoredRange(task.segment, run.start, run.start + run.length)
        written = layout.write_large(place, event, run.data(), task.window)
    else:
        written = layout.write_run(place, task.segment, run.blocks(), task.window)
    return RangeEntry(start=run.start, end=run.end, events=run.count, digest=run.digest, **written._asdict())
