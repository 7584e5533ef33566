"""The reader groups of a source, and where each of them is.

A group's position is read before the end of the stream is, up to which the stream is copied then. So what a group has
read is always there.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamvault.common.errors import Usage
from streamvault.streamstore.arithmetic.cuts import info_of
from streamvault.streamstore.arithmetic.group_cuts import cut_of
from streamvault.streamstore.errors import UnreadableReaderGroup
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamCut, StreamName
from streamvault.streamstore.reader_groups import GroupPosition, ReaderGroup
from streamvault.streamstore.store import StreamStore


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """A reader group that reads a stream, at one moment.

    Attributes:
        name: its name.
        group: what the store says of it; None if the store does not know it.
        cut: where it would go on in the stream if all of its readers were lost; None if that cannot be told.
        problem: why it cannot be created on another stream; empty if it can.
    """

    name: str
    group: ReaderGroup | None
    cut: StreamCut | None
    problem: str = ""


def source_groups(store: StreamStore, stream: StreamName, *, strict: bool = False) -> tuple[SourceGroup, ...]:
    """Return the reader groups of a stream's scope that read the stream, sorted.

    Args:
        store: the stream's store.
        stream: the stream.
        strict: raise an error if a group's position cannot be told: the stream will not be there later.

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
            found.append(_look(store, stream, group, strict=strict))
    return tuple(found)


def _look(store: StreamStore, stream: StreamName, group: ReaderGroup, *, strict: bool) -> SourceGroup:
    others = ", ".join(str(name) for name in group.starts if name != stream)
    problem = f"the group reads other streams, too: {others}" if others else ""
    try:
        return SourceGroup(group.name, group, position_of(store, stream, group), problem)
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


def position_of(store: StreamStore, stream: StreamName, group: ReaderGroup) -> StreamCut:
    """Return where a group goes on in one of its streams; the offset of a segment that it has read is its end.

    Raises:
        UnreadableReaderGroup: as `look_at_group`.
    """
    position = store.reader_groups().position(group, stream)
    described = store.describe(stream)  # after the position was read

    def info(segment: SegmentId) -> SegmentInfo | None:
        return info_of(store, stream, segment)

    if position is None:
        start = group.starts[stream] or described.head
        position = GroupPosition(stream, start.offsets)
    try:
        return cut_of(position, described, info, bounded=group.ends.get(stream) is not None)
    except UnreadableReaderGroup as error:
        raise UnreadableReaderGroup(error.what, where=f"{store.uri}/{group}") from None
