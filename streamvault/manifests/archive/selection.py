"""Selects the part of an archive between two stream cuts, for reading without a restore."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamvault.layouts.layout import open_reader
from streamvault.layouts.place import Place
from streamvault.manifests.archive.history import History
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.streamstore.arithmetic.cuts import segments_between, validate_cut
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import SegmentId, StreamCut, StreamName


@dataclass(frozen=True, slots=True)
class RangePart:
    """An archived range, or the part of it between two cuts.

    Attributes:
        row: the range in the index.
        layout: the layout of its generation.
        start: offset of its first event (bytes).
        end: offset after its last event.
    """

    row: ArchivedRange
    layout: str
    start: int
    end: int

    @property
    def segment(self) -> SegmentId:
        """The range's segment."""
        return self.row.segment


def select_parts(
    history: History, from_cut: StreamCut | None = None, to_cut: StreamCut | None = None
) -> list[RangePart]:
    """Return the ranges between two cuts, in the stream's order; None for the archive's own head or tail.

    Gaps are left out.

    Raises:
        InvalidCut: a cut is not of the archive's stream or outside the archive, or ``from_cut`` is after ``to_cut``.
    """
    _check_inside(history, from_cut, to_cut)
    described = history.description
    parts = []
    between = segments_between(described, from_cut or history.head, to_cut or history.tail)
    for segment, (start, end) in between.items():
        for layout, row in history.ranges(segment):
            low, high = max(start, row.start), row.end if end is None else min(end, row.end)
            if low < high:
                parts.append(RangePart(row, layout, low, high))
    return parts


def check_boundaries(place: Place, stream: StreamName, parts: Iterable[RangePart]) -> None:
    """Raise `InvalidCut` if a part of a range begins or ends inside an event; bytes may be cut anywhere.

    For each part that is not a whole range, it lists or reads the range.
    """
    for part in (each for each in parts if each.row.content == "events"):
        for cut in {part.start, part.end} - {part.row.start, part.row.end}:
            offset, length = open_reader(part.layout).find_event(place, part.row.stored, cut)
            if offset != cut:
                raise InvalidCut(
                    f"the stream cut lies inside an event (of {length} bytes at {offset})",
                    where=f"offset {cut} of {part.segment.in_stream(stream)}",
                )


def _check_inside(history: History, *cuts: StreamCut | None) -> None:
    """Reject cuts that are not of the archive's stream, or beyond the archived end of a segment.

    Raises:
        InvalidCut: names the cut.
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
