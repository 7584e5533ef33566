"""Reader groups of an archive or a source, created on the stream that was made of it.

A group's state names its stream and segments, so it is not copied: the group is created again, under its name, at the
cut that corresponds to its position. A group that is there already is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal
from uuid import UUID, uuid5

from streamvault.common.errors import Usage
from streamvault.common.report import CarriedGroup
from streamvault.importer.from_archive import Selection
from streamvault.importer.plan import NoCounterpart, RestorePlan, TargetPositions
from streamvault.importer.target import first_segment_id
from streamvault.sources.reader_groups import SourceGroup
from streamvault.streamstore.cuts import earlier_of, later_of
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription, StreamName
from streamvault.streamstore.store import ReaderGroup
from streamvault.streamstore.uri import OpenStream


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedGroup:
    """A reader group to be created on a target, with its cuts in the target's segments; a ledger can hold it.

    Attributes:
        name: its name.
        position: segment → offset, where it goes on; None if that cannot be told.
        problem: why it cannot be created; empty if it can.
        note: why it goes on elsewhere than where it was; empty if it does not.
        id: identifies it: the group and the target that it was made for (text of a UUID).
        start: where it began in the source, see `ReaderGroup.starts`.
        end: where it ends, see `ReaderGroup.ends`.
        settings: its refresh and checkpoint intervals, checkpoints at once, and retention, see `ReaderGroup`.
    """

    name: str
    position: Mapping[str, int] | None = None
    problem: str = ""
    note: str = ""
    id: str = ""
    start: Mapping[str, int] | None = None
    end: Mapping[str, int] | None = None
    settings: Sequence[int] = ()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> NotedGroup:
        """Build from `to_json`; what another release has written besides is left out."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in document.items() if name in known})

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def on(self, stream: StreamName) -> ReaderGroup:
        """Return the group to create in a target's scope."""
        refresh, checkpoint, most, retention = self.settings
        return ReaderGroup(
            scope=stream.scope,
            name=self.name,
            starts={stream: _cut(stream, self.start)},
            ends={stream: _cut(stream, self.end)},
            refresh_millis=refresh,
            checkpoint_millis=checkpoint,
            most_checkpoints=most,
            retention=retention,
            id=UUID(self.id),
        )

    def left_out(self, why: str, stream: StreamName) -> CarriedGroup:
        """Return the report of a group that was not created, with its position in the target if it is known."""
        position = None if self.position is None else _full(stream, self.position)
        return CarriedGroup(name=self.name, outcome="left out", position=position, reason=why)


def noted_groups(
    groups: Sequence[SourceGroup], source: StreamDescription, positions: TargetPositions
) -> tuple[NotedGroup, ...]:
    """Translate reader groups into those of a target.

    Args:
        groups: the groups, seen before the source was described.
        source: the source; what it has truncated since, no group has to read.
        positions: finds positions in the target.
    """
    return tuple(_noted(one, source, positions) for one in groups)


def _noted(one: SourceGroup, source: StreamDescription, positions: TargetPositions) -> NotedGroup:
    if one.group is None or one.cut is None:
        return NotedGroup(name=one.name, problem=one.problem)
    group, stream = one.group, one.cut.stream
    try:
        position = positions.cut(later_of(source, one.cut, source.head))
        end = group.ends.get(stream)
        ended = None if end is None else positions.cut(end)
    except NoCounterpart as error:
        return NotedGroup(name=one.name, problem=error.what)
    start = group.starts[stream]
    begun = None if start is None else position  # in place of a start that is not there any more
    if start is not None:
        with suppress(NoCounterpart):
            begun = positions.cut(start)
    target = positions.described
    return NotedGroup(
        name=one.name,
        position=_plain(position),
        problem=one.problem,
        note=one.note,
        id=_target_id(group, target),
        start=None if begun is None else _plain(begun),
        end=None if ended is None else _plain(ended),
        settings=(group.refresh_millis, group.checkpoint_millis, group.most_checkpoints, group.retention),
    )


def create_groups(noted: Sequence[NotedGroup], target: OpenStream) -> tuple[CarriedGroup, ...]:
    """Create reader groups on a target, those that an earlier run has created excepted.

    Of a group whose position the target does not have, nothing is created. A group of the same name stays as it is,
    even if it is created at the same time.
    """
    if not noted:
        return ()
    described = target.describe()
    segments = {segment: segment for segment in described.ranges()}
    positions = TargetPositions(target.store, described, segments)
    return tuple(_create(one, target, positions) for one in noted)


def _create(one: NotedGroup, target: OpenStream, positions: TargetPositions) -> CarriedGroup:
    if one.problem or one.position is None:
        return one.left_out(one.problem, target.name)
    groups, group = target.store.reader_groups(), one.on(target.name)
    position = StreamCut(target.name, {SegmentId.parse(segment): at for segment, at in one.position.items()})
    try:
        positions.cut(position)
    except NoCounterpart as error:
        return replace(one.left_out(error.what, target.name), position=None)
    found = groups.find(group.scope, group.name)
    if found is not None and found.id == group.id and groups.position(found, target.name) is not None:
        return CarriedGroup(name=one.name, outcome="present", position=position.to_json(), reason=one.note)
    if found is None or found.id == group.id:
        found = groups.create(group, position)
    if found.id != group.id:
        return one.left_out(_taken(target.name), target.name)
    return CarriedGroup(name=one.name, outcome="created", position=position.to_json(), reason=one.note)


def planned_groups(groups: Sequence[SourceGroup], target: OpenStream) -> tuple[CarriedGroup, ...]:
    """Return the report of a dry run, when there need not be a target yet."""
    described, there, name = target.find(), target.store.reader_groups(), target.name
    planned = []
    for one in groups:
        problem = one.problem
        found = None if problem or one.group is None else there.find(name.scope, one.name)
        if one.group is not None and found is not None:
            ours = described is not None and str(found.id) == _target_id(one.group, described)
            problem = "" if ours else _taken(name)
        outcome: Literal["left out", "noted"] = "left out" if problem else "noted"
        planned.append(CarriedGroup(name=one.name, outcome=outcome, reason=problem or one.note))
    return tuple(planned)


def check_keeps_offsets(offsets: str) -> None:
    """Check that a target's reader groups can go on at the source's offsets.

    Raises:
        Usage: offsets are shifted.
    """
    if offsets != "keep":
        todo = "A reader's position is an offset. Keep offsets, or create the groups yourself."
        raise Usage("--reader-groups requires --offsets keep", todo=todo)


def recorded_groups(documents: Sequence[Mapping[str, Any]] | None, stream: StreamName) -> tuple[CarriedGroup, ...]:
    """Return the report of the groups that a ledger has; None for none."""
    return tuple(
        replace(one.left_out(one.problem, stream), outcome="left out" if one.problem else "noted")
        for one in map(NotedGroup.from_json, documents or ())
    )


def group_warnings(groups: Sequence[CarriedGroup]) -> tuple[str, ...]:
    """Return a warning for each group that was left out, or goes on elsewhere than where it was."""
    return tuple(
        f"the reader group {one.name} was not created: {one.reason}"
        if one.outcome == "left out"
        else f"the reader group {one.name}: {one.reason}"
        for one in groups
        if one.reason
    )


def _target_id(group: ReaderGroup, target: StreamDescription) -> str:
    """Return the id of the group that is created for a source's group on this very target."""
    return str(uuid5(group.id, f"{target.name} {first_segment_id(target)}"))


def _taken(stream: StreamName) -> str:
    return f"the scope {stream.scope} already has a reader group of that name, which is left unchanged"


def _plain(cut: StreamCut) -> dict[str, int]:
    return {str(segment): offset for segment, offset in cut.offsets.items()}


def _full(stream: StreamName, offsets: Mapping[str, int]) -> dict[str, int]:
    return {f"{stream}/{segment}": offset for segment, offset in offsets.items()}


def _cut(stream: StreamName, offsets: Mapping[str, int] | None) -> StreamCut | None:
    return None if offsets is None else StreamCut.from_json(_full(stream, offsets), stream)


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
    for start, end in sorted([*selection.source.history.gaps(segment), *selection.lost_of(segment)]):
        if start <= at < end:
            at = end
    return min(at, described.tail.offsets.get(segment, at))
