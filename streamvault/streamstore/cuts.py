"""Stream cuts: compared, given as options, made of reader groups' positions, and found in streams of the same history.

Two segments that share a key are never open at the same time, so at each key a stream is a sequence of segments ordered
by creation epoch. A cut is one position in each of these sequences, and cuts are compared key by key. Cost grows with
the number of segments ever created, not with the number of epochs.

A cut covers the key space once; a reader group's position need not. A group forgets a segment that it has read to its
end, and reads a successor only once it has read all of its predecessors. In between, no position of the group has the
keys of a predecessor that was read first.

A store numbers segments itself, and goes on numbering when a name is used again. So a stream that repeats another's
scales has the same epochs and key ranges, but its segments may have other numbers. Two segments correspond if they hold
the same key range in the same epoch; nothing needs to be stored to find them.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field, SkipValidation

from streamvault.common.options import CommandLine, load_file
from streamvault.streamstore.errors import InvalidCut, NoSuchSegment, UnreadableReaderGroup
from streamvault.streamstore.model import (
    KEY_SLACK,
    SEGMENT_END,
    EpochChange,
    Epochs,
    KeyRange,
    SegmentId,
    SegmentInfo,
    StreamCut,
    StreamDescription,
    StreamName,
    is_java_cut,
    is_pointer,
)
from streamvault.streamstore.store import GroupPosition, StreamStore

EndOf = Callable[[SegmentId], int]
"""Returns the end (bytes) of a sealed segment, and raises `no_end` for any other one."""

Ranges = Mapping[SegmentId, KeyRange]


def with_ends(cut: StreamCut, end_of: EndOf) -> StreamCut:
    """Replace each `SEGMENT_END` in a cut by the segment's end.

    Raises:
        InvalidCut: a segment is not sealed, or its end is not known.
    """
    offsets = {s: end_of(s) if offset == SEGMENT_END else offset for s, offset in cut.offsets.items()}
    return replace(cut, offsets=offsets)


def live_ends(store: StreamStore, stream: StreamName) -> EndOf:
    """Return what finds the ends of a stream's sealed segments."""

    def end_of(segment: SegmentId) -> int:
        try:
            info = store.segment_info(stream, [segment])[0]
        except NoSuchSegment:
            raise no_end(stream, segment, "does not exist, or was truncated") from None
        if not info.sealed:
            raise no_end(stream, segment, "is still open")
        return info.write_offset

    return end_of


def sealed_ends(store: StreamStore, stream: StreamName, segments: Sequence[SegmentId]) -> dict[SegmentId, int]:
    """Return sealed segment → its end; one that the store no longer has, whose end is unknown, is absent."""
    infos = infos_if_there(store, stream, segments)
    return {segment: info.write_offset for segment, info in infos.items() if info is not None}


def infos_if_there(
    store: StreamStore, stream: StreamName, segments: Sequence[SegmentId]
) -> Mapping[SegmentId, SegmentInfo | None]:
    """Return each segment's state; None for one that is gone."""
    try:
        return {info.segment: info for info in store.segment_info(stream, segments)}
    except NoSuchSegment:
        return {segment: info_of(store, stream, segment) for segment in segments}


def info_of(store: StreamStore, stream: StreamName, segment: SegmentId) -> SegmentInfo | None:
    """Return a segment's state; None if it is gone."""
    with suppress(NoSuchSegment):
        return store.segment_info(stream, [segment])[0]
    return None


def no_end(stream: StreamName, segment: SegmentId, why: str) -> InvalidCut:
    """Return the error for `SEGMENT_END` at a segment whose end is not known."""
    return InvalidCut(
        f"offset {SEGMENT_END} in the stream cut stands for the end of a sealed segment, but this one {why}",
        where=segment.in_stream(stream),
    )


def validate_cut(description: StreamDescription, cut: StreamCut) -> None:
    """Check that a cut has exactly one position per key, between the stream's head and tail.

    A description does not tell where segments of earlier epochs end, so offsets beyond their ends are accepted.

    Raises:
        InvalidCut: names the wrong segment or offset.
    """
    ranges = description.ranges()
    _check_shape(description, ranges, cut)
    _check_lineage(description, cut)
    below = _first_beyond(ranges, description.head, cut)
    if below is not None:
        head, segment = below
        raise InvalidCut(
            f"the stream cut lies before the stream's head (offset {description.head.offsets[head]} of {head})",
            where=_place(cut, segment),
            todo="The data there has been truncated.",
        )
    beyond = _first_beyond(ranges, cut, description.tail)
    if beyond is not None:
        segment, tail = beyond
        raise InvalidCut(
            f"the stream cut lies beyond the stream's tail (offset {description.tail.offsets[tail]} of {tail})",
            where=_place(cut, segment),
        )


def is_before(description: StreamDescription, earlier: StreamCut, later: StreamCut) -> bool:
    """Return whether one cut is at or before another for every key. This is a partial order.

    Raises:
        InvalidCut: a cut is not one of the stream, or does not cover the key space once.
    """
    ranges = description.ranges()
    _check_shape(description, ranges, earlier)
    _check_shape(description, ranges, later)
    return _first_beyond(ranges, earlier, later) is None


def later_of(description: StreamDescription, one: StreamCut, other: StreamCut) -> StreamCut:
    """Return the cut at the later of two cuts' positions for every key.

    If neither cut names both a segment and one of its successors, neither does the result.

    Raises:
        InvalidCut: a cut is not one of the stream, or does not cover the key space once.
    """
    return _choose(description, one, other, max)


def earlier_of(description: StreamDescription, one: StreamCut, other: StreamCut) -> StreamCut:
    """Return the cut at the earlier of two cuts' positions for every key, as `later_of`.

    Raises:
        InvalidCut: as `later_of`; also if a cut names both a segment and one of its successors.
    """
    earlier = _choose(description, one, other, min)
    _check_lineage(description, one)
    _check_lineage(description, other)
    return earlier


def _choose(description: StreamDescription, one: StreamCut, other: StreamCut, choose: Callable[..., Any]) -> StreamCut:
    ranges = description.ranges()
    _check_shape(description, ranges, one)
    _check_shape(description, ranges, other)
    offsets: dict[SegmentId, int] = {}
    for mine, theirs in _overlaps(ranges, _by_key(ranges, one.offsets), _by_key(ranges, other.offsets)):
        segment, offset = choose((mine, one.offsets[mine]), (theirs, other.offsets[theirs]))
        offsets[segment] = offset
    return StreamCut(one.stream, offsets)


def segments_between(
    description: StreamDescription, from_cut: StreamCut, to_cut: StreamCut
) -> dict[SegmentId, tuple[int, int | None]]:
    """Return the byte range of each segment between two cuts, in the stream's order.

    A segment in ``from_cut`` starts at its offset there, a segment in ``to_cut`` ends at its offset there, and segments
    between them are whole. Segments named by a cut are included even if their range is empty.

    Returns:
        Segment → (first offset, end offset); the end is None for "up to its sealed end", which a description does not
        contain.

    Raises:
        InvalidCut: a cut is not one of the stream or does not cover the key space once, or ``from_cut`` is after
            ``to_cut``.
    """
    ranges = description.ranges()
    for cut in (from_cut, to_cut):
        _check_shape(description, ranges, cut)
        _check_lineage(description, cut)
    after = _first_beyond(ranges, from_cut, to_cut)
    if after is not None:
        raise InvalidCut(
            f"the first cut lies after the second ({_place(to_cut, after[1])})", where=_place(from_cut, after[0])
        )
    low, earliest = _epochs_by_key(ranges, from_cut)
    low_to, latest = _epochs_by_key(ranges, to_cut)
    between: dict[SegmentId, tuple[int, int | None]] = {}
    begun, open_till = _open_in(description, from_cut)
    ended, _ = _open_in(description, to_cut)
    for segment, held, first, last in description.epochs.lives:
        if first > ended or (begun <= open_till and last < begun):
            continue  # opened after all of the second cut, or sealed before all of the first was open at a time
        # Neither cut names an ancestor of another of its segments, so one key represents all keys of the segment.
        key, epoch = held.low, segment.epoch
        if earliest[bisect_right(low, key) - 1] <= epoch <= latest[bisect_right(low_to, key) - 1]:
            between[segment] = from_cut.offsets.get(segment, 0), to_cut.offsets.get(segment)
    return between


def live_between(
    store: StreamStore, description: StreamDescription, from_cut: StreamCut, to_cut: StreamCut
) -> dict[SegmentId, tuple[int, int]]:
    """As `segments_between`, with the ends of sealed segments too, which the stream's store knows.

    Raises:
        InvalidCut: as `segments_between`.
        NoSuchSegment: one of them was truncated meanwhile.
    """
    between = segments_between(description, from_cut, to_cut)
    sealed = [segment for segment, (_, end) in between.items() if end is None]
    infos = store.segment_info(description.name, sealed) if sealed else ()
    ends = {info.segment: info.write_offset for info in infos}
    return {segment: (start, ends[segment] if end is None else end) for segment, (start, end) in between.items()}


def _open_in(description: StreamDescription, cut: StreamCut) -> tuple[int, int]:
    """Return the epoch in which the last of a cut's segments was opened, and the last one before any was sealed."""
    lives = [description.epochs.life(segment) for segment in cut.offsets]
    return max(life.first for life in lives), min(life.last for life in lives)


def _epochs_by_key(ranges: Ranges, cut: StreamCut) -> tuple[list[float], list[int]]:
    """Return the lowest keys of a cut's segments, ascending, and the epochs in which they were opened."""
    ordered = _by_key(ranges, cut.offsets)
    return [ranges[segment].low for segment in ordered], [segment.epoch for segment in ordered]


def _by_key(ranges: Ranges, segments: Iterable[SegmentId]) -> list[SegmentId]:
    return sorted(segments, key=lambda segment: ranges[segment].low)


def _place(cut: StreamCut, segment: SegmentId) -> str:
    return f"offset {cut.offsets[segment]} of {segment.in_stream(cut.stream)}"


def _check_shape(description: StreamDescription, ranges: Ranges, cut: StreamCut) -> None:
    """Reject segments of other streams, and cuts that do not cover the key space exactly once."""
    if cut.stream != description.name:
        raise InvalidCut(f"the stream cut belongs to {cut.stream}, not to {description.name}")
    for segment, offset in cut.offsets.items():
        if segment not in ranges:
            raise InvalidCut("the stream cut names a segment that the stream never had", where=_place(cut, segment))
        if offset < 0:
            raise InvalidCut("the stream cut has a negative offset", where=_place(cut, segment))
    whole = list(description.epochs.changes[0].opens.values())
    low, high = whole[0].low, whole[-1].high
    ordered = _by_key(ranges, cut.offsets)
    for before, after in pairwise(ordered):
        if ranges[after].low < ranges[before].high:
            raise InvalidCut(
                f"the stream cut names two segments for the same keys: {before} and {after}", where=str(cut.stream)
            )
    ends = [low, *(ranges[segment].high for segment in ordered)]
    starts = [*(ranges[segment].low for segment in ordered), high]
    for end, start in zip(ends, starts, strict=True):
        if end < min(start, 1.0 - KEY_SLACK):  # the highest keys of one epoch may end below those of another
            raise InvalidCut(
                f"the stream cut names no segment for the keys from {end!r} to {start!r}", where=str(cut.stream)
            )


def _check_lineage(description: StreamDescription, cut: StreamCut) -> None:
    """Reject a cut that names a segment and one of its successors: events between them would be on both sides.

    Their key ranges need not overlap: [0, ½) can be merged into [0, 1), which is split again and leaves [½, 1). Of
    segments that were open at the same time, none is a successor of another.
    """
    first, last = _open_in(description, cut)
    if first <= last:
        return
    behind: dict[SegmentId, SegmentId] = {}  # direct and indirect successor → segment of the cut
    for before, after in successions(description):
        ancestor = before if before in cut.offsets else behind.get(before)
        if ancestor is None:
            continue
        if after in cut.offsets:
            raise InvalidCut(f"the stream cut names {ancestor} and its successor {after}", where=str(cut.stream))
        behind[after] = ancestor


def successions(description: StreamDescription) -> Iterator[tuple[SegmentId, SegmentId]]:
    """Yield each segment with each of its successors, in order of the successors' creation."""
    for change in description.epochs.changes:
        yield from _overlaps(description.ranges(), list(change.seals), list(change.opens))


def _overlaps(ranges: Ranges, left: list[SegmentId], right: list[SegmentId]) -> Iterator[tuple[SegmentId, SegmentId]]:
    """Yield the pairs from two lists, both ordered by key, that share a key."""
    i = j = 0
    while i < len(left) and j < len(right):
        if ranges[left[i]].overlaps(ranges[right[j]]):
            yield left[i], right[j]
        if ranges[left[i]].high <= ranges[right[j]].high:
            i += 1
        else:
            j += 1


def _first_beyond(ranges: Ranges, cut: StreamCut, limit: StreamCut) -> tuple[SegmentId, SegmentId] | None:
    """Return the first segment (by key) where a cut is beyond another, with the other's segment for that key."""
    for segment, other in _overlaps(ranges, _by_key(ranges, cut.offsets), _by_key(ranges, limit.offsets)):
        if segment == other:
            if cut.offsets[segment] > limit.offsets[other]:
                return segment, other
        elif segment.epoch > other.epoch:
            return segment, other
    return None


Cut = str | Mapping[str, int]
"""JSON, the Java client's text, or full segment name → offset (bytes).

-1 stands for the end of a sealed segment (`SEGMENT_END`).
"""


def parse_cut(cut: Cut | None, stream: StreamName, end_of: EndOf) -> StreamCut | None:
    """Parse a stream cut that a user gave; None if none was given.

    Args:
        cut: the cut; of a mapping with the cuts of several streams, only that of this one counts.
        stream: the stream it must belong to.
        end_of: finds the ends of the stream's sealed segments.

    Raises:
        InvalidCut: it is not a cut of the stream, or the end of a segment is not known.
    """
    if cut is None:
        return None
    if isinstance(cut, Mapping):
        cut = {name: offset for name, offset in cut.items() if name.rpartition("/")[0] == str(stream)} or cut
    return with_ends(StreamCut.from_json(cut, stream, ends=True), end_of)


def load_cut(text: str, option: str) -> dict[str, int]:
    """Read a stream cut from JSON, from the Java client's text, or from a file that is named.

    A report of a promotion stands for its tail, that of a scope for those of all its streams.

    Args:
        text: the option's value.
        option: its name, for messages.

    Returns:
        Full segment name → offset (bytes).

    Raises:
        Usage: the file cannot be read, or holds no stream cut.
    """
    cuts = dict[str, int]()
    try:
        for each in _cuts(_source(text, option)):
            cuts |= StreamCut.from_json(each, ends=True).to_json()
    except InvalidCut as error:
        raise InvalidCut(error.what, where=f"{option}: {error.where or text}", todo=error.todo) from None
    return cuts


def load_position(text: str, option: str) -> Cut:
    """Read an event pointer, or a stream cut as `load_cut` does; either may be in a file that is named."""
    if is_pointer(text):
        return text
    pointer = _source(text, option).strip()
    return pointer if is_pointer(pointer) else load_cut(text, option)


def _source(text: str, option: str) -> str:
    if text.lstrip().startswith(("{", "[", '"')) or is_java_cut(text):
        return text
    return load_file(text, option, todo="Give a file's name or the cut itself, as JSON or as Java prints it.")


def _cuts(source: str) -> Sequence[object]:
    """Return the cuts that a text has: one, or the tails of a report."""
    try:
        found: Any = json.loads(source)
        reports = [each["result"] or {} for each in found["outcomes"]] if "outcomes" in found else [found]
        return [each["tail"] for each in reports if each.get("tail")] or [source]
    except (ValueError, KeyError, TypeError, AttributeError):
        return [source]


FromCut = Annotated[
    SkipValidation[Cut | None],
    Field(description="Start at this stream cut: a file name, JSON, or the Java client's text form."),
    CommandLine(name="--from", metavar="CUT", load=load_cut),
]
ToCut = Annotated[
    SkipValidation[Cut | None],
    Field(description="Stop at this stream cut: a file name, JSON, or the Java client's text form."),
    CommandLine(name="--to", metavar="CUT", load=load_cut),
]
CutRanges = Annotated[
    SkipValidation[Sequence[tuple[Cut, Cut]]],
    Field(
        description="Copy only the events between these two stream cuts. Repeat for several parts, copied one after "
        "the other."
    ),
    CommandLine(name="--range", metavar="FROM TO", load=load_cut, pair=True, environment=False),
]


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
    for predecessor, successor in successions(described):
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


NEAR = 1e-12
"""How far corresponding boundaries may lie apart: an import moves some by a few units in the last place."""


def counterparts(source: Epochs, target: Epochs) -> dict[SegmentId, SegmentId] | None:
    """Return source segment → target segment, for the epochs that both have.

    Returns:
        One entry for each segment of those epochs; None if they differ in more than segment numbers.
    """
    found: dict[SegmentId, SegmentId] = {}
    pairs = enumerate(zip(source.changes, target.changes, strict=False))
    return found if all(pair_changes(number, *pair, found) for number, pair in pairs) else None


def common_counterparts(source: Epochs, target: Epochs) -> dict[SegmentId, SegmentId]:
    """Return source segment → target segment, for the first epochs up to where the histories differ."""
    found: dict[SegmentId, SegmentId] = {}
    for number, pair in enumerate(zip(source.changes, target.changes, strict=False)):
        if not pair_changes(number, *pair, found):
            break
    return found


def pair_changes(number: int, ours: EpochChange, theirs: EpochChange, found: dict[SegmentId, SegmentId]) -> bool:
    """Pair the segments that two streams open in an epoch, and add them to those of earlier epochs.

    Returns:
        Whether the epochs differ in segment numbers only; if not, nothing is added.
    """
    if len(ours.opens) != len(theirs.opens) or {found[segment] for segment in ours.seals} != theirs.seals.keys():
        return False
    pairs = list(zip(ours.opens.items(), theirs.opens.items(), strict=True))
    if not all(_near(held, other_held) for (_, held), (_, other_held) in pairs):
        return False
    if any((segment.epoch == number) != (other.epoch == number) for (segment, _), (other, _) in pairs):
        return False
    found.update((segment, other) for (segment, _), (other, _) in pairs)
    return True


def _near(one: KeyRange, other: KeyRange) -> bool:
    return abs(one.low - other.low) <= NEAR and abs(one.high - other.high) <= NEAR
