"""Reader groups that an archive has noted, for the stream that is restored from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from streamvault.common.errors import Usage
from streamvault.common.report import CarriedGroup
from streamvault.importer.from_archive import Selection
from streamvault.importer.plan import RestorePlan
from streamvault.importer.positions import TargetPositions
from streamvault.importer.reader_groups import check_keeps_offsets, create_groups, noted_groups, planned_groups
from streamvault.reading.reader_groups import SourceGroup
from streamvault.streamstore.arithmetic.cuts import earlier_of, later_of
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription
from streamvault.streamstore.open_stream import OpenStream

BEYOND = "it has read more than is restored; it continues at the end"
BEFORE = "what it has not read begins before what is restored; it continues at the beginning"
MISSING = "what it would have read next is missing in what is restored; it continues after that"


@dataclass
class ArchivedGroups:
    """The reader groups that the newest restored generation has noted.

    Attributes:
        groups: each at its place in what is restored, in the source's segments; none if they were not asked for.
        described: the source, from where the target begins.
        target: the restored stream.
        reported: what became of them.
    """

    groups: tuple[SourceGroup, ...]
    described: StreamDescription
    target: OpenStream
    reported: tuple[CarriedGroup, ...] = field(default=())

    @classmethod
    def of(cls, selection: Selection, plan: RestorePlan, target: OpenStream, *, wanted: bool) -> ArchivedGroups:
        """Return what is to be created with a target, if it is wanted; changes nothing.

        Raises:
            Usage: the generation has noted none, or offsets are shifted.
            ReaderGroupsNotOffered: the target's store does not support reader groups.
        """
        history = selection.source.history
        described = replace(history.description, head=plan.head, tail=selection.to_cut or history.tail)
        if not wanted:
            return cls((), described, target)
        check_keeps_offsets(plan.offsets)
        target.store.reader_groups()
        if history.newest.reader_groups is None:
            raise Usage(
                f"generation {history.generation} was archived without --reader-groups",
                where=selection.source.archive.uri,
                todo="Omit --reader-groups, or give the --generation of one with reader groups, which 'streamvault "
                "timeline' shows.",
            )
        groups = (SourceGroup.of_entry(entry, history.stream) for entry in history.newest.reader_groups)
        return cls(tuple(_restored(one, described, selection) for one in groups), described, target)

    def create(self, segments: Mapping[SegmentId, SegmentId]) -> None:
        """Create the groups that are not there yet, once, given the source's segment → the target's."""
        if not self.groups or self.reported:
            return
        positions = TargetPositions(self.target.store, self.target.describe(), segments)
        self.reported = create_groups(noted_groups(self.groups, self.described, positions), self.target)

    def plan(self) -> None:
        """Only report what would be done."""
        if self.groups:
            self.reported = planned_groups(self.groups, self.target)


def _restored(one: SourceGroup, described: StreamDescription, selection: Selection) -> SourceGroup:
    """Return a group with its position moved into what is restored, and why it was moved."""
    if one.cut is None:
        return one
    try:
        ended = earlier_of(described, one.cut, described.tail)
        begun = later_of(described, ended, described.head)
    except InvalidCut as error:
        return replace(one, cut=None, problem=f"its position is not one of the stream's ({error})")
    offsets = {segment: _after_gaps(segment, at, described, selection) for segment, at in begun.offsets.items()}
    cut = StreamCut(begun.stream, offsets)
    notes = {BEYOND: ended != one.cut, BEFORE: begun != ended, MISSING: cut != begun}
    return replace(one, cut=cut, note="; ".join(note for note, holds in notes.items() if holds))


def _after_gaps(segment: SegmentId, at: int, described: StreamDescription, selection: Selection) -> int:
    """Return the first offset from a position on that is in no gap: what fills a gap is no event of the source."""
    for start, end in sorted(_gaps(segment, selection)):
        if start <= at < end:
            at = end
    return min(at, described.tail.offsets.get(segment, at))


def _gaps(segment: SegmentId, selection: Selection) -> Iterable[tuple[int, int]]:
    yield from selection.source.history.gaps(segment)
    yield from ((hole.start, hole.end) for hole in selection.lost if hole.segment == segment)
