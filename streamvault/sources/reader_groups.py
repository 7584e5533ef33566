"""The reader groups of a source, and where each of them is.

A group's position is read before the end of the stream is, up to which the stream is copied then. So what a group has
read is always there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Self
from uuid import UUID

from streamvault.common.errors import Usage
from streamvault.common.report import CarriedGroup
from streamvault.manifests.files import one_line
from streamvault.manifests.manifest import GroupEntry
from streamvault.streamstore.cuts import cut_of, info_of, is_before
from streamvault.streamstore.errors import InvalidCut, UnreadableReaderGroup
from streamvault.streamstore.model import SEGMENT_END, StreamCut, StreamDescription, StreamName
from streamvault.streamstore.store import GroupPosition, ReaderGroup, StreamStore


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """A reader group that reads a stream, at one moment.

    Attributes:
        name: its name.
        group: what the store says of it; None if the store does not know it.
        cut: where it would go on in the stream if all of its readers were lost; None if that cannot be told.
        problem: why it cannot be created on another stream; empty if it can.
        note: why it goes on elsewhere on another stream than where it was; empty if it does not.
    """

    name: str
    group: ReaderGroup | None
    cut: StreamCut | None
    problem: str = ""
    note: str = ""

    @classmethod
    def of_entry(cls, entry: GroupEntry, stream: StreamName) -> Self:
        """Return a group of a stream as a manifest has it."""
        if entry.position is None:
            return cls(entry.name, None, None, entry.problem)
        group = ReaderGroup(
            scope=stream.scope,
            name=entry.name,
            starts={stream: entry.start},
            ends={stream: entry.end},
            id=UUID(entry.id),
            **_settings_of(entry),
        )
        return cls(entry.name, group, entry.position, entry.problem)

    def entry(self, described: StreamDescription) -> GroupEntry:
        """Return what a manifest has of it, given its stream, described after its position was read."""
        if self.group is None or self.cut is None:
            return GroupEntry(name=self.name, problem=one_line(self.problem))
        group, start, end = self.group, self.group.starts[described.name], self.group.ends.get(described.name)
        if start is not None and SEGMENT_END in start.offsets.values():
            start = self.cut  # an end is not known any more when the group is created again
        try:
            is_before(described, self.cut, self.cut)  # raises if it is not a cut of the stream
            end = end and StreamCut.from_json(end.to_json())
        except InvalidCut as error:  # the stream was made anew meanwhile, or the end is "the end of the segment"
            return GroupEntry(name=self.name, problem=one_line(f"its position or its end is not known: {error}"))
        return GroupEntry(
            name=self.name,
            position=self.cut,
            problem=one_line(self.problem),
            id=str(group.id),
            start=start,
            end=end,
            **_settings_of(group),
        )


def _settings_of(held: GroupEntry | ReaderGroup) -> dict[str, int]:
    names = ("refresh_millis", "checkpoint_millis", "most_checkpoints", "retention")
    return {name: getattr(held, name) for name in names}


def reported_groups(entries: Iterable[GroupEntry] | None) -> tuple[CarriedGroup, ...]:
    """Return the report of the groups that a manifest has."""
    return tuple(
        CarriedGroup(
            name=one.name,
            outcome="left out" if one.problem else "noted",
            position=None if one.position is None else one.position.to_json(),
            reason=one.problem,
        )
        for one in entries or ()
    )


def source_groups(
    store: StreamStore, stream: StreamName, *, strict: bool = False, truncated: bool = False
) -> tuple[SourceGroup, ...]:
    """Return the reader groups of a stream's scope that read the stream, sorted.

    Args:
        store: the stream's store.
        stream: the stream.
        strict: raise an error if a group's position cannot be told: the stream will not be there later.
        truncated: the stream's archive may have what the stream has truncated, see `group_cuts.cut_of`.

    Raises:
        ReaderGroupsNotOffered: the stream's store does not support reader groups.
        UnreadableReaderGroup: `strict` is given, and a group's state is of a client that is not known here.
    """
    groups = store.reader_groups()
    found = []
    for name in groups.names(stream.scope):
        group = groups.find(stream.scope, name)
        if group is None:
            found.append(SourceGroup(name, None, None, "Pravega's controller does not know what the group reads"))
        elif stream in group.starts:
            found.append(_look(store, stream, group, strict=strict, truncated=truncated))
    return tuple(found)


def _look(store: StreamStore, stream: StreamName, group: ReaderGroup, *, strict: bool, truncated: bool) -> SourceGroup:
    others = ", ".join(str(name) for name in group.starts if name != stream)
    problem = f"the group reads other streams, too: {others}" if others else ""
    try:
        return SourceGroup(group.name, group, position_of(store, stream, group, truncated=truncated), problem)
    except UnreadableReaderGroup as error:
        if strict:
            raise
        return SourceGroup(group.name, group, None, error.what)


def look_at_group(store: StreamStore, stream: StreamName, name: str) -> StreamCut:
    """Return where one of a stream's reader groups would go on if all of its readers were lost now.

    Raises:
        ReaderGroupsNotOffered: the stream's store does not support reader groups.
        Usage: there is no such group, or it does not read the stream.
        UnreadableReaderGroup: its state is of a client that is not known here.
    """
    group = store.reader_groups().find(stream.scope, name)
    if group is None:
        raise Usage("no such reader group", where=f"{store.uri}/{stream.scope}/{name}")
    if stream not in group.starts:
        raise Usage(f"the reader group {name} does not read the stream", where=f"{store.uri}/{stream}")
    return position_of(store, stream, group)


def position_of(store: StreamStore, stream: StreamName, group: ReaderGroup, *, truncated: bool = False) -> StreamCut:
    """Return where a group goes on in one of its streams; the offset of a segment that it has read is its end.

    Raises:
        UnreadableReaderGroup: as `look_at_group`.
    """
    position = store.reader_groups().position(group, stream)
    described = store.describe(stream)  # after the position was read
    if position is None:
        start = group.starts[stream] or described.head
        position = GroupPosition(stream, start.offsets)
    try:
        bounded = group.ends.get(stream) is not None
        return cut_of(position, described, partial(info_of, store, stream), bounded=bounded, truncated=truncated)
    except UnreadableReaderGroup as error:
        raise UnreadableReaderGroup(error.what, where=f"{store.uri}/{group}") from None
