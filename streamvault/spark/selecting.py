"""Select the parts of a stream's segments between two cuts, and detect data loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamvault.spark.reading import Reading
from streamvault.spark.segment_parts import DataLoss, SegmentPart
from streamvault.streamstore.arithmetic.cuts import is_before, segments_between
from streamvault.streamstore.errors import InvalidCut, NoSuchSegment
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamCut, StreamDescription, StreamName
from streamvault.streamstore.store import StreamStore


def as_cut(described: StreamDescription, requested: StreamCut | str) -> StreamCut:
    """Return a validated cut; for ``earliest`` and ``latest``, the current head and tail.

    Raises:
        InvalidCut: the cut is not of this stream, or lies beyond its tail.
    """
    if isinstance(requested, StreamCut):
        if not is_before(described, requested, described.tail):
            raise InvalidCut("the stream cut lies beyond the stream's tail", where=str(requested.to_json()))
        return requested
    return described.head if requested == "earliest" else described.tail


def readable_parts(
    reading: Reading, store: StreamStore, described: StreamDescription, start: StreamCut, end: StreamCut
) -> list[SegmentPart]:
    """Return what can be read of each segment between two cuts, in the stream's order.

    Raises:
        DataLoss: events were truncated, and the query fails if so.
        InvalidCut: ``start`` does not lie before ``end``, or a cut names an offset beyond a segment's end.
    """
    requested = segments_between(described, start, end)
    infos = infos_if_there(store, described.name, list(requested))
    found = []
    for segment, (low, high) in requested.items():
        info = infos[segment]
        first = _first(described, info, segment, low)
        if first is None or info is None:
            if reading.fail_on_data_loss and high != low:
                raise _gone(described.name, segment, "the segment was deleted")
            continue
        stop = info.write_offset if high is None else high
        if max(low, stop) > info.write_offset:
            where = f"offset {max(low, stop)} of {segment.in_stream(described.name)}"
            raise InvalidCut(f"the stream cut lies beyond the segment's end ({info.write_offset})", where=where)
        if reading.fail_on_data_loss and first > low and stop > low:
            raise _gone(described.name, segment, f"the segment now begins at {first}, not at {low}")
        if first < stop:
            found.append(SegmentPart(segment, first, stop, stop))
    return found


def infos_if_there(
    store: StreamStore, stream: StreamName, segments: Sequence[SegmentId]
) -> Mapping[SegmentId, SegmentInfo | None]:
    """Return information on each segment; None for a deleted one."""
    try:
        return {info.segment: info for info in store.segment_info(stream, segments)}
    except NoSuchSegment:
        return {segment: _info(store, stream, segment) for segment in segments}


def _info(store: StreamStore, stream: StreamName, segment: SegmentId) -> SegmentInfo | None:
    try:
        return store.segment_info(stream, [segment])[0]
    except NoSuchSegment:
        return None


def _first(described: StreamDescription, info: SegmentInfo | None, segment: SegmentId, low: int) -> int | None:
    """Return the first offset from ``low`` on that still exists; None if the segment lies before the stream's head."""
    if info is None:
        return None
    if segment in described.head.offsets:
        return max(low, info.start_offset, described.head.offsets[segment])
    ranges = described.ranges()
    held = ranges[segment]
    if any(other.epoch > segment.epoch and held.overlaps(ranges[other]) for other in described.head.offsets):
        return None
    return max(low, info.start_offset)


def _gone(stream: StreamName, segment: SegmentId, what: str) -> DataLoss:
    return DataLoss(
        f"events to be read were truncated: {what}",
        where=segment.in_stream(stream),
        todo="Start at 'earliest', or set failOnDataLoss to false to read the remaining events.",
    )
