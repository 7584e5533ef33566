"""What an unfinished target holds, and whether only runs of its own import can have changed it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from streamvault.importer.plan import RestorePlan, check_filler
from streamvault.importer.target import OTHER_NAME, TargetTaken, has_data, matching, renamed
from streamvault.streamstore.arithmetic.counterparts import counterparts
from streamvault.streamstore.arithmetic.cuts import is_before, segments_between
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import is_own

T = TypeVar("T")

LOOKS = 10
"""How often a stream is looked at if it is truncated meanwhile."""


def look_again(look: Callable[[], T], *changed: type[Exception]) -> T:
    """Return what a look finds; look again if an error shows that the stream has changed meanwhile."""
    for _ in range(LOOKS - 1):
        with suppress(*changed):
            return look()
    return look()


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What an unfinished target holds at one moment.

    Look at it before the source: whatever runs of the same work have appended, the source has.

    Attributes:
        stream: the target.
        described: its description.
        ends: its segment → the segment's end (bytes), of those that are not truncated.
    """

    stream: OpenStream
    described: StreamDescription
    ends: Mapping[SegmentId, int]

    @classmethod
    def find(cls, stream: OpenStream) -> Unfinished | None:
        """Look at a target; None if it does not exist, or is a user's stream."""
        return look_again(lambda: cls._find(stream), NoSuchSegment)

    @classmethod
    def _find(cls, stream: OpenStream) -> Unfinished | None:
        try:
            described = stream.describe()
            if not is_own(described.configuration):
                return None
            live = segments_between(described, described.head, described.tail)
            ends = {info.segment: info.write_offset for info in stream.store.segment_info(stream.name, list(live))}
        except (NoSuchStream, NoSuchScope):
            return None
        return cls(stream, described, ends)

    def check(self, plan: RestorePlan) -> Mapping[SegmentId, SegmentId]:
        """Check that only runs of the same work can have changed the target, as far as its shape shows.

        Args:
            plan: its final content.

        Returns:
            The plan's segment → the target's.

        Raises:
            TargetTaken: it was sealed, scaled, truncated or written to.
        """
        where = self.stream.uri
        if self.described.sealed:
            raise TargetTaken("the unfinished stream was sealed", where=where, todo=OTHER_NAME)
        segments = matching(self.described.epochs, plan)
        if segments is None:
            if not has_data(self.described):
                return {}  # it only uses up numbers, and will be created again
            raise TargetTaken("the unfinished stream was scaled by another process", where=where, todo=OTHER_NAME)
        checked = {segments[old] for old in segments if plan.segments[old].spans}
        if segments.keys() >= plan.head.offsets.keys():
            head = StreamCut(self.described.name, renamed(plan.head.offsets, segments))
            if not is_before(self.described, self.described.head, head):
                raise TargetTaken(
                    "the unfinished stream was truncated by another process", where=where, todo=OTHER_NAME
                )
            if is_before(self.described, head, self.described.tail):  # else it is behind the source's head
                checked = set(segments_between(self.described, head, self.described.tail))
        for old, new in segments.items():
            end = plan.segments[old].end
            if new in checked and self.ends.get(new, 0) > end:
                what = f"the unfinished stream was written to by another process; the source has {end} bytes"
                where = f"{self.stream.store.uri}/{new.in_stream(self.described.name)} offset {end}"
                raise TargetTaken(what, where=where, todo=OTHER_NAME)
        return segments


def check_missing_filler(plan: RestorePlan, limit: int, unfinished: Unfinished | None) -> None:
    """Check how much filler a target still needs.

    Args:
        plan: its final content.
        limit: see `TargetOptions.filler_limit`.
        unfinished: what it holds already; None if it does not exist.

    Raises:
        Usage: it is more than the limit.
    """
    held: Mapping[SegmentId, int] = {}
    if unfinished is not None:
        segments = counterparts(plan.replay.epochs, unfinished.described.epochs) or {}
        held = {old: unfinished.ends.get(new, plan.segments[old].end) for old, new in segments.items()}
    check_filler(plan, limit, held)
