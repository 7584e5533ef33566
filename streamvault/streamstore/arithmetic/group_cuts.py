"""A reader group's position as a stream cut, which covers the key space once.

A group forgets a segment that it has read to its end, and reads a successor only once it has read all of its
predecessors. In between, no position of the group has the keys of a predecessor that was read first.
"""

from __future__ import annotations

from collections.abc import Callable

from streamvault.streamstore.arithmetic.cuts import later_of, successions
from streamvault.streamstore.errors import InvalidCut, UnreadableReaderGroup
from streamvault.streamstore.model import SEGMENT_END, SegmentId, SegmentInfo, StreamCut, StreamDescription
from streamvault.streamstore.reader_groups import GroupPosition

InfoOf = Callable[[SegmentId], SegmentInfo | None]
"""Returns a segment's state; None for one that is gone."""


def cut_of(
    position: GroupPosition,
    described: StreamDescription,
    info_of: InfoOf,
    *,
    bounded: bool = False,
    truncated: bool = False,
) -> StreamCut:
    """Return the latest cut at or before a group's position at every key, and at or after the stream's head.

    What was read to its end is named with that end. So are segments of a sealed stream that the group has forgotten,
    because there is nothing to read after them. If a scale has replaced several segments by several others, and the
    group has read some of the new ones while others wait, the cut is at the beginning of the new ones.

    Args:
        position: the position.
        described: the stream, described after the position was read.
        info_of: finds segments, asked after the stream was described.
        bounded: whether the group ends at a cut, so that it forgets segments in other places, too.
        truncated: also return a cut before the stream's head, unless it has the end of a segment that is gone.

    Raises:
        UnreadableReaderGroup: the position names segments of another stream, or does not account for every key.
    """
    offsets = _covering(position, described, forgets=described.sealed and not bounded)
    for segment, offset in offsets.items():
        info = info_of(segment)
        if info is None:
            truncated = truncated and offset != SEGMENT_END
            offsets[segment] = max(offset, 0)  # gone, so that the head is beyond it
        elif offset == SEGMENT_END and not info.sealed:
            raise UnreadableReaderGroup(f"the group has read {segment} to its end, but it is open")
        elif offset == SEGMENT_END:
            offsets[segment] = info.write_offset
    try:
        cut = StreamCut(position.stream, offsets)
        begun = later_of(described, cut, described.head)
    except InvalidCut as error:
        raise UnreadableReaderGroup(f"the group's position is not one of the stream's ({error})") from None
    return cut if truncated else begun


def _covering(position: GroupPosition, described: StreamDescription, *, forgets: bool) -> dict[SegmentId, int]:
    """Return segments that cover the key space once → the group's offset, or `SEGMENT_END`.

    Args:
        position: the position.
        described: the stream.
        forgets: whether the group has read what comes after no segment of its position.
    """
    ranges = described.ranges()
    if unknown := [s for s in (*position.offsets, *position.waiting) if s not in ranges]:
        raise UnreadableReaderGroup(f"the stream never had the segment {unknown[0]} that the group names")
    before: dict[SegmentId, list[SegmentId]] = {}
    unread = {*position.offsets, *position.waiting}
    for predecessor, successor in successions(ranges):
        before.setdefault(successor, []).append(predecessor)
        if predecessor in unread:
            unread.add(successor)
    forgotten = [segment for segment in described.epochs[-1].segments if forgets and segment not in unread]
    offsets = {**position.offsets, **dict.fromkeys(forgotten, SEGMENT_END)}
    done = [
        predecessor
        for successor, left in position.waiting.items()
        for predecessor in before.get(successor, ())
        if predecessor not in left
    ]
    seen: set[SegmentId] = set()
    while done:
        segment = done.pop()
        if segment in offsets or segment in seen:
            continue
        seen.add(segment)
        if any(s < segment and ranges[s].overlaps(ranges[segment]) for s in offsets):
            done += before.get(segment, ())  # an earlier segment has some of its keys: the others need one as early
            continue
        offsets[segment] = SEGMENT_END
        # a successor that was read already, although another one waits: back to where it begins
        for later in [s for s in offsets if s > segment and ranges[s].overlaps(ranges[segment])]:
            del offsets[later]
            done += before[later]
    return offsets
