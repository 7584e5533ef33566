"""Cuts between events: looked up in the archive before anything is made."""

from __future__ import annotations

from importer.plan import RestorePlan
from objectstore.layouts import open_reader
from objectstore.store import ObjectStore
from streamstore.errors import InvalidCut

__all__ = ["check_cuts"]


def check_cuts(plan: RestorePlan, objects: ObjectStore, prefix: str) -> None:
    """Raise `InvalidCut` if a range would be restored from, or up to, an offset inside an event.

    Costs a listing, or the reading of a range, for each range that is not restored whole.
    """
    for segment, part in plan.parts:
        for cut in {part.start, part.end} - {part.row.start, part.row.end}:
            offset, length = open_reader(part.layout).find_event(objects, prefix, part.row.extent, cut)
            if offset != cut:
                raise InvalidCut(
                    f"the stream cut lies inside an event (of {length} bytes at {offset})",
                    where=f"offset {cut} of {segment.in_stream(plan.source)}",
                )
