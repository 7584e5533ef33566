"""Cuts between events: looked up in the archive's listing before anything is made."""

from __future__ import annotations

from importer.plan import Part, RestorePlan
from objectstore.layouts import Stored, open_layout
from objectstore.store import ObjectStore
from problems import Damaged
from streamstore.errors import InvalidCut
from streamstore.model import SegmentId

__all__ = ["check_cuts"]


def check_cuts(plan: RestorePlan, objects: ObjectStore, prefix: str) -> None:
    """Raise `InvalidCut` if a range would be restored from, or up to, an offset inside an event.

    Costs a listing or two for each range that is not restored whole.
    """
    for segment, part in plan.parts:
        for offset in {part.start, part.end} - {part.row.start, part.row.end}:
            around = _event_around(objects, prefix, segment, part, offset)
            if around is not None:
                raise InvalidCut(
                    f"the stream cut lies inside an event (of {around.length} bytes at {around.offset})",
                    where=f"offset {offset} of {segment.in_stream(plan.source)}",
                )


def _event_around(objects: ObjectStore, prefix: str, segment: SegmentId, part: Part, offset: int) -> Stored | None:
    layout = open_layout(part.layout)
    place = (objects, prefix, segment.epoch, segment.number)
    try:
        next(layout.list_range(*place, offset, part.row.end))
    except Damaged:
        # no object begins there: inside an event, unless the archive is damaged, which the walk says itself
        walk = layout.list_range(*place, part.row.start, part.row.end)
        return next((stored for stored in walk if stored.offset < offset < stored.offset + stored.length), None)
    return None
