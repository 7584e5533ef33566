"""A finished copy and its source: whether it still is one, what it has, and how far the source has gone on.

Nothing is stored for this: segments correspond by their place in the history, and the last bytes of a few are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamvault.importer.fill import TargetSpan
from streamvault.importer.plan import Content, RestorePlan, SegmentPlan
from streamvault.importer.run import COMPARED_BYTES, SEGMENTS_TO_COMPARE
from streamvault.importer.target import OTHER_NAME, TargetTaken
from streamvault.reading.stream_source import parts_of
from streamvault.streamstore.arithmetic.counterparts import counterparts
from streamvault.streamstore.arithmetic.cuts import live_between, segments_between
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription, StreamName
from streamvault.streamstore.open_stream import OpenStream


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """What a copy has of a segment of its source, in bytes.

    Attributes:
        start: the copy's first offset.
        end: the copy's end.
        shift: how much lower offsets are in the copy; None if that can no longer be told.
    """

    start: int
    end: int
    shift: int | None


@dataclass(frozen=True, slots=True)
class Copied:
    """A finished copy.

    Attributes:
        described: the copy.
        segments: the source's segment → the copy's, of all epochs of the copy.
        ranges: the source's segment → what the copy has of it, of those that both still have.
        bytes: bytes that the copy has.
        behind: bytes that the source has and the copy does not have.
        read_back: whether all of it was read back and compared.
        warnings: what the user is to be warned of.
    """

    described: StreamDescription
    segments: Mapping[SegmentId, SegmentId]
    ranges: Mapping[SegmentId, CopiedRange]
    bytes: int
    behind: int
    read_back: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def shifts(self) -> Mapping[SegmentId, int]:
        """The source's segment → how much lower its offsets are in the copy, as far as that is known and not 0."""
        return {segment: held.shift for segment, held in self.ranges.items() if held.shift}

    def in_source(self, cut: StreamCut, source: StreamName) -> StreamCut:
        """Return a cut of the copy in the source's segments and offsets."""
        names = {new: old for old, new in self.segments.items()}
        offsets = {names[new]: offset for new, offset in cut.offsets.items()}
        return StreamCut(source, {old: offset + self.shifts.get(old, 0) for old, offset in offsets.items()})

    def plans(self, content: Content, source: OpenStream) -> dict[SegmentId, SegmentPlan]:
        """Return each of the source's segments with the spans of the copy whose bytes both still have.

        Args:
            content: the source's content.
            source: the source.
        """
        plans: dict[SegmentId, SegmentPlan] = {}
        for segment, held in self.ranges.items():
            if (shift := held.shift) is not None:
                low = max(held.start + shift, _source_range(content, segment)[0])
                parts = parts_of(source, segment, low, held.end + shift)
                spans = tuple(TargetSpan(part.start - shift, part.end - shift, part) for part in parts)
                plans[segment] = SegmentPlan(spans=spans)
        return plans


@dataclass(frozen=True, slots=True)
class Pair:
    """A finished copy and its source.

    Attributes:
        copy: the copy.
        copied: its description.
        source: the source.
        content: what a copy would have now.
        plan: its plan.
    """

    copy: OpenStream
    copied: StreamDescription
    source: OpenStream
    content: Content
    plan: RestorePlan

    def examine(self) -> Copied:
        """Compare the copy with its source.

        Raises:
            TargetTaken: the copy was written to since, or is of another stream.
            NoSuchSegment, SegmentTruncated: one of them was truncated meanwhile.
        """
        copied, segments = self.copied, self._segments()
        live = live_between(self.copy.store, copied, copied.head, copied.tail)
        names = {new: old for old, new in segments.items()}
        ranges: dict[SegmentId, CopiedRange] = {}
        compared = 0
        for new in sorted(live, reverse=True):
            old, (start, end) = names[new], live[new]
            if old not in self.content.parts:
                self._check_beyond(old, new, end)
                continue
            compare = end > start and compared < SEGMENTS_TO_COMPARE
            compared += compare
            ranges[old] = CopiedRange(start, end, self._shift(old, new, start, end, compare=compare))
        size = sum(end - start for start, end in live.values())
        behind = sum(self._behind(old, ranges, segments) for old in self.content.parts)
        return Copied(copied, segments, dict(sorted(ranges.items())), size, behind)

    def _segments(self) -> Mapping[SegmentId, SegmentId]:
        """Return the source's segment → the copy's."""
        source, copied, epochs = self.content.described, self.copied, self.plan.replay.epochs
        keep = self.plan.numbers == "keep"
        ours, theirs = (sorted(one.epochs[0].segments) for one in (copied, source))
        if keep and ours != theirs:
            what = f"the stream is a copy of another stream of the name {source.name}"
            if ours < theirs:
                what = "the source was deleted and created again since it was copied"
            raise TargetTaken(what, where=self.copy.uri, todo=OTHER_NAME)
        if len(copied.epochs) > len(epochs):
            raise self._written_since(f"{len(copied.epochs)} epochs instead of {len(epochs)}")
        segments = counterparts(epochs, copied.epochs)
        if segments is None or (keep and any(old != new for old, new in segments.items())):
            raise self._written_since("other scales than the source's")
        return segments

    def _check_beyond(self, old: SegmentId, new: SegmentId, end: int) -> None:
        """Check a segment that the source has truncated, or that follows the cut at which the copy ends."""
        source, tail = self.content.described, self.content.tail
        if end and tail != source.tail and old in segments_between(source, tail, source.tail):
            raise self._written_since(f"{new} has {end} bytes instead of 0")

    def _shift(self, old: SegmentId, new: SegmentId, start: int, end: int, *, compare: bool) -> int | None:
        """Return how much lower offsets are in the copy; with ``compare``, compare its last bytes."""
        content, high = self.content, _source_range(self.content, old)[1]
        # sealed segments and those at the cut where the copy ends have all that the source has
        ends_there = content.tail != content.described.tail and old in content.tail.offsets
        complete = new not in self.copied.tail.offsets or ends_there
        shifts = self._possible_shifts(old, end)
        fitting = [shift for shift in shifts if (end + shift == high if complete else end + shift <= high)]
        if not fitting:
            raise self._written_since(f"{new} has {end} bytes instead of {high - shifts[0]}")
        if not compare and len(shifts) == 1:
            return fitting[0]
        found = {shift: self._difference(old, new, start, end, shift) for shift in fitting}
        equal = [shift for shift, offset in found.items() if offset is None]
        if not equal and len(shifts) == 1:
            raise self._written_since(f"{new} has other bytes than the source from offset {found[fitting[0]]} on")
        return equal[0] if equal else None

    def _possible_shifts(self, segment: SegmentId, end: int) -> list[int]:
        """Return by how much offsets may be lower in the copy, likelier ones first.

        Shifted offsets begin where the source's did when the copy began. If the source was truncated since, that is 0
        or no longer known, unless nothing was written since.
        """
        if self.plan.offsets == "keep" or segment not in self.content.head.offsets:
            return [0]
        possible = (self.plan.segments[segment].shift, 0, _source_range(self.content, segment)[1] - end)
        return list(dict.fromkeys(shift for shift in possible if shift >= 0))

    def _difference(self, old: SegmentId, new: SegmentId, start: int, end: int, shift: int) -> int | None:
        """Return the copy's offset of the first byte that differs, among the last ones; None if they are equal."""
        low = max(start, end - COMPARED_BYTES, _source_range(self.content, old)[0] - shift)
        if low >= end:
            return None
        ours = self.copy.store.read_bytes(self.copy.name, new, low, end)
        theirs = self.source.store.read_bytes(self.source.name, old, low + shift, end + shift)
        pairs = enumerate(zip(ours, theirs, strict=True))
        return None if ours == theirs else low + next(at for at, (one, other) in pairs if one != other)

    def _behind(
        self, old: SegmentId, ranges: Mapping[SegmentId, CopiedRange], segments: Mapping[SegmentId, SegmentId]
    ) -> int:
        """Return how many bytes of a segment the source has more than the copy."""
        start, end = _source_range(self.content, old)
        if (held := ranges.get(old)) is not None:
            start = end if held.shift is None else max(start, held.end + held.shift)
        elif old in segments:
            start = end  # the copy had it, and has truncated it
        return max(0, end - start)

    def _written_since(self, what: str) -> TargetTaken:
        where = f"{self.copy.uri}: {what}"
        return TargetTaken("the copy was written to since", where=where, todo=OTHER_NAME)


def _source_range(content: Content, segment: SegmentId) -> tuple[int, int]:
    """Return the source's first offset and end of a segment between its cuts."""
    start, parts = content.head.offsets.get(segment, 0), content.parts[segment]
    return start, parts[-1].end if parts else start
