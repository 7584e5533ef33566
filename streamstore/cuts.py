"""Stream cuts against each other, and against the history of their stream.

Two segments that own a common key never live at the same time, so at each key a stream is one sequence of segments, in
order of their creation epochs. A cut is one position in each of these sequences; all here follows from comparing the
positions key by key. Costs grow with the number of segments that ever were, not with that of epochs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, pairwise

from streamstore.errors import InvalidCut
from streamstore.model import KeyRange, SegmentId, StreamCut, StreamDescription

__all__ = ["is_before", "later_of", "segments_between", "validate_cut"]

Ranges = Mapping[SegmentId, KeyRange]


def validate_cut(description: StreamDescription, cut: StreamCut) -> None:
    """Check that a cut can be meant: one position for each key, between the stream's head and its tail.

    A description does not say where segments of earlier epochs end, so an offset beyond such an end passes.

    Raises:
        InvalidCut: says which segment or offset is wrong.
    """
    ranges = description.ranges()
    _check_shape(description, ranges, cut)
    _check_lineage(ranges, cut)
    below = _first_beyond(ranges, description.head, cut)
    if below is not None:
        head, segment = below
        raise InvalidCut(
            f"the stream cut lies before the stream's head (offset {description.head.offsets[head]} of {head})",
            where=_place(cut, segment),
            todo="What lies there is truncated.",
        )
    beyond = _first_beyond(ranges, cut, description.tail)
    if beyond is not None:
        segment, tail = beyond
        raise InvalidCut(
            f"the stream cut lies beyond the stream's tail (offset {description.tail.offsets[tail]} of {tail})",
            where=_place(cut, segment),
        )


def is_before(description: StreamDescription, earlier: StreamCut, later: StreamCut) -> bool:
    """Whether one cut lies at or before another for every key.

    Of two cuts neither need be before the other.

    Raises:
        InvalidCut: a cut is not one of the stream, or does not cover the key space once.
    """
    ranges = description.ranges()
    _check_shape(description, ranges, earlier)
    _check_shape(description, ranges, later)
    return _first_beyond(ranges, earlier, later) is None


def later_of(description: StreamDescription, one: StreamCut, other: StreamCut) -> StreamCut:
    """The cut that lies at the later of two cuts' positions for every key.

    Of two cuts none of which names a segment and one that came out of it, neither does this one.

    Raises:
        InvalidCut: a cut is not one of the stream, or does not cover the key space once.
    """
    ranges = description.ranges()
    _check_shape(description, ranges, one)
    _check_shape(description, ranges, other)
    offsets: dict[SegmentId, int] = {}
    ordered = (sorted(cut.offsets, key=lambda segment: ranges[segment].low) for cut in (one, other))
    for mine, theirs in _overlaps(ranges, *ordered):
        if mine == theirs:
            offsets[mine] = max(one.offsets[mine], other.offsets[mine])
        elif mine.epoch > theirs.epoch:
            offsets[mine] = one.offsets[mine]
        else:
            offsets[theirs] = other.offsets[theirs]
    return StreamCut(one.stream, offsets)


def segments_between(
    description: StreamDescription, from_cut: StreamCut, to_cut: StreamCut
) -> dict[SegmentId, tuple[int, int | None]]:
    """What of which segment lies between two cuts, in the stream's order.

    A segment that ``from_cut`` names starts at its offset there, one that ``to_cut`` names ends at its offset there,
    one that lies between them is whole. Segments with nothing between the cuts are there too if a cut names them.

    Returns:
        Segment → first offset, end offset; None for "to its sealed end", which a description does not know.

    Raises:
        InvalidCut: a cut is not one of the stream or does not cover the key space once, or ``from_cut`` does not lie
            before ``to_cut``.
    """
    ranges = description.ranges()
    for cut in (from_cut, to_cut):
        _check_shape(description, ranges, cut)
        _check_lineage(ranges, cut)
    after = _first_beyond(ranges, from_cut, to_cut)
    if after is not None:
        raise InvalidCut(
            f"the first cut lies after the second ({_place(to_cut, after[1])})", where=_place(from_cut, after[0])
        )
    first, last = _Lookup(ranges, from_cut.offsets), _Lookup(ranges, to_cut.offsets)
    between: dict[SegmentId, tuple[int, int | None]] = {}
    for segment, held in ranges.items():
        # Neither cut names an ancestor of another of its segments, so one key speaks for all keys of the segment.
        if first.at(held.low).epoch <= segment.epoch <= last.at(held.low).epoch:
            between[segment] = from_cut.offsets.get(segment, 0), to_cut.offsets.get(segment)
    return between


class _Lookup:
    """Which of some segments that cover the key space owns a key."""

    def __init__(self, ranges: Ranges, segments: Iterable[SegmentId]) -> None:
        self.segments = sorted(segments, key=lambda segment: ranges[segment].low)
        self.lows = [ranges[segment].low for segment in self.segments]

    def at(self, key: float) -> SegmentId:
        return self.segments[bisect_right(self.lows, key) - 1]


def _place(cut: StreamCut, segment: SegmentId) -> str:
    return f"offset {cut.offsets[segment]} of {segment.in_stream(cut.stream)}"


def _check_shape(description: StreamDescription, ranges: Ranges, cut: StreamCut) -> None:
    """Refuse foreign segments, and what does not cover the key space exactly once."""
    if cut.stream != description.name:
        raise InvalidCut(f"a stream cut of {cut.stream} says nothing of {description.name}")
    for segment, offset in cut.offsets.items():
        if segment not in ranges:
            raise InvalidCut("the stream cut names a segment that the stream never had", where=_place(cut, segment))
        if offset < 0:
            raise InvalidCut("the stream cut has a negative offset", where=_place(cut, segment))
    whole = description.epochs[0].segments.values()
    low, high = min(r.low for r in whole), max(r.high for r in whole)
    ordered = sorted(cut.offsets, key=lambda segment: ranges[segment].low)
    for before, after in pairwise(ordered):
        if ranges[after].low < ranges[before].high:
            raise InvalidCut(
                f"the stream cut names two segments for the same keys: {before} and {after}", where=str(cut.stream)
            )
    ends = [low, *(ranges[segment].high for segment in ordered)]
    starts = [*(ranges[segment].low for segment in ordered), high]
    for end, start in zip(ends, starts, strict=True):
        if end < start:
            raise InvalidCut(
                f"the stream cut names no segment for the keys from {end!r} to {start!r}", where=str(cut.stream)
            )


def _check_lineage(ranges: Ranges, cut: StreamCut) -> None:
    """Refuse a cut that names a segment and one that came out of it: events between the two would be on both sides.

    Their key ranges need not meet: [0, ½) can be merged into [0, 1), which is split again and leaves [½, 1).
    """
    behind: dict[SegmentId, SegmentId] = {}  # successors of the cut's segments, near and far → whose
    for before, after in _successions(ranges):
        ancestor = before if before in cut.offsets else behind.get(before)
        if ancestor is None:
            continue
        if after in cut.offsets:
            raise InvalidCut(
                f"the stream cut names {ancestor} and {after}, which came out of it", where=str(cut.stream)
            )
        behind[after] = ancestor


def _successions(ranges: Ranges) -> Iterator[tuple[SegmentId, SegmentId]]:
    """Each segment with each of its successors, in order of the successors' creation.

    Args:
        ranges: of all segments, in order of (epoch, number).
    """
    current: list[SegmentId] = []
    lows: list[float] = []
    for _, created in groupby(ranges, key=lambda segment: segment.epoch):
        opened = sorted(created, key=lambda segment: ranges[segment].low)
        for run in _neighbours(ranges, opened):
            begin = max(bisect_right(lows, ranges[run[0]].low) - 1, 0)
            end = bisect_left(lows, ranges[run[-1]].high)
            yield from _overlaps(ranges, current[begin:end], run)
            current[begin:end] = run
            lows[begin:end] = [ranges[segment].low for segment in run]


def _neighbours(ranges: Ranges, ordered: list[SegmentId]) -> Iterator[list[SegmentId]]:
    """Runs of segments each of which begins where the one before it ends."""
    run: list[SegmentId] = []
    for segment in ordered:
        if run and ranges[run[-1]].high != ranges[segment].low:
            yield run
            run = []
        run.append(segment)
    if run:
        yield run


def _overlaps(ranges: Ranges, left: list[SegmentId], right: list[SegmentId]) -> Iterator[tuple[SegmentId, SegmentId]]:
    """Each pair out of two lists, ordered by key, that own a common key."""
    i = j = 0
    while i < len(left) and j < len(right):
        if ranges[left[i]].overlaps(ranges[right[j]]):
            yield left[i], right[j]
        if ranges[left[i]].high <= ranges[right[j]].high:
            i += 1
        else:
            j += 1


def _first_beyond(ranges: Ranges, cut: StreamCut, limit: StreamCut) -> tuple[SegmentId, SegmentId] | None:
    """The first segment (by key) at which a cut lies beyond another, with the other's segment for that key."""
    ordered = (sorted(c.offsets, key=lambda segment: ranges[segment].low) for c in (cut, limit))
    for segment, other in _overlaps(ranges, *ordered):
        if segment == other:
            if cut.offsets[segment] > limit.offsets[other]:
                return segment, other
        elif segment.epoch > other.epoch:
            return segment, other
    return None
