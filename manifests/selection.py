"""What of an archive lies between two stream cuts: for whoever reads it without restoring it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from layouts.layout import open_reader
from layouts.place import Place
from manifests.history import History
from manifests.range_row import RangeRow
from streamstore.cuts import segments_between, validate_cut
from streamstore.errors import InvalidCut
from streamstore.model import SegmentId, StreamCut, StreamName

__all__ = ["ArchivedPart", "check_boundaries", "select_parts"]


@dataclass(frozen=True, slots=True)
class ArchivedPart:
    """An archived range, or the part of it that lies between two cuts.

    Attributes:
        row: the range as its manifest has it. layout: of its generation.
        start, end: offsets in the segment (bytes), between events.
    """

    row: RangeRow
    layout: str
    start: int
    end: int

    @property
    def segment(self) -> SegmentId:
        """The segment of the archive's stream."""
        return self.row.segment


def select_parts(
    history: History, from_cut: StreamCut | None = None, to_cut: StreamCut | None = None
) -> list[ArchivedPart]:
    """The ranges between two cuts, in the stream's order; None for the archive's own head and tail.

    What the archive does not have (its declared gaps) is left out.

    Raises:
        InvalidCut: a cut is not one of the archive's stream, lies outside of it, or ``from_cut`` lies after ``to_cut``.
    """
    _check_inside(history, from_cut, to_cut)
    described = history.description
    parts = []
    between = segments_between(described, from_cut or history.head, to_cut or history.tail)
    for segment, (start, end) in between.items():
        for layout, row in history.ranges(segment):
            low, high = max(start, row.start), row.end if end is None else min(end, row.end)
            if low < high:
                parts.append(ArchivedPart(row, layout, low, high))
    return parts


def check_boundaries(place: Place, stream: StreamName, parts: Iterable[ArchivedPart]) -> None:
    """Raise `InvalidCut` if a part that is not the whole range begins or ends inside an event.

    Costs a listing, or the reading of a range, for each such part.
    """
    for part in parts:
        for cut in {part.start, part.end} - {part.row.start, part.row.end}:
            offset, length = open_reader(part.layout).find_event(place, part.row.extent, cut)
            if offset != cut:
                raise InvalidCut(
                    f"the stream cut lies inside an event (of {length} bytes at {offset})",
                    where=f"offset {cut} of {part.segment.in_stream(stream)}",
                )


def _check_inside(history: History, *cuts: StreamCut | None) -> None:
    """Refuse cuts that are not of the archive's stream, or that lie beyond what is archived of a segment.

    Raises:
        InvalidCut: says which.
    """
    described = history.description
    for cut in cuts:
        if cut is None:
            continue
        validate_cut(described, cut)
        for segment, offset in cut.offsets.items():
            end = history.end(segment)
            if end is not None and offset > end:
                raise InvalidCut(
                    f"the stream cut lies beyond the segment's end ({end})",
                    where=f"offset {offset} of {segment.in_stream(cut.stream)}",
                )
