"""Determine the end of the next micro-batch of a stream.

A batch never contains both a segment and one of its successors: Spark reads a batch in parallel, so events of one key
would arrive in any order. A successor begins after earlier batches have read the segments before it to their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from streamvault.streamstore.arithmetic.cuts import segments_between
from streamvault.streamstore.model import Epoch, SegmentId, SegmentInfo, StreamCut, StreamDescription

Infos = Callable[[Sequence[SegmentId]], Mapping[SegmentId, SegmentInfo | None]]


def advance(
    described: StreamDescription, infos: Infos, start: StreamCut, limit: StreamCut | None = None
) -> dict[SegmentId, int]:
    """Return the end of each segment in the next batch if nothing else limits it, which is a stream cut.

    Args:
        described: the stream now.
        infos: returns information on segments; None for a deleted one, which counts as read to its end.
        start: where the batch begins.
        limit: a cut to stop at, which may lie beyond the tail; None for no limit.

    Returns:
        Segment → offset to read up to. Segments that were read to their ends are replaced by their successors, which
        begin at 0.
    """
    between = {} if limit is None else segments_between(described, start, limit)
    front = dict(start.offsets)
    known = dict(infos(list(front)))
    for before, after in pairwise(described.epochs):
        for left, entered in _replaced(before, after):
            if not left <= front.keys() or not (limit is None or entered <= between.keys()):
                continue
            if all(_is_read(known[segment], front[segment]) for segment in left):
                for segment in left:
                    del front[segment]
                known |= infos(sorted(entered))
                front |= dict.fromkeys(entered, 0)
    limits = {segment: end for segment, (_, end) in between.items()}
    return {segment: _until(known[segment], offset, limits.get(segment)) for segment, offset in front.items()}


def share_out(available: Mapping[SegmentId, int], limit: int) -> dict[SegmentId, int]:
    """Limit the segments' bytes to ``limit`` in total, in proportion, but to no less than one byte each.

    Args:
        available: available bytes of each segment; segments without any are omitted from the result.
        limit: maximum total (bytes).
    """
    total = sum(available.values())
    if total <= limit:
        return {segment: size for segment, size in available.items() if size}
    return {segment: max(1, size * limit // total) for segment, size in available.items() if size}


def _replaced(before: Epoch, after: Epoch) -> list[tuple[set[SegmentId], set[SegmentId]]]:
    """Group the segments that a scale seals and opens by key range, so that each group is replaced at once."""
    sealed = [(segment, held) for segment, held in before.segments.items() if segment not in after.segments]
    opened = [(segment, held) for segment, held in after.segments.items() if segment not in before.segments]
    groups: list[tuple[set[SegmentId], set[SegmentId]]] = []
    reach = -1.0
    for old, (segment, held) in sorted(
        [(True, one) for one in sealed] + [(False, one) for one in opened], key=lambda item: (item[1][1].low, item[0])
    ):
        if held.low >= reach:
            groups.append((set(), set()))
        groups[-1][0 if old else 1].add(segment)
        reach = max(reach, held.high)
    return groups


def _is_read(info: SegmentInfo | None, offset: int) -> bool:
    return info is None or (info.sealed and offset >= info.write_offset)


def _until(info: SegmentInfo | None, offset: int, limit: int | None) -> int:
    end = offset if info is None else info.write_offset
    return max(offset, end if limit is None else min(end, limit))
