"""Reader groups come along: their positions in a stream, and the same groups on the stream that was made of it.

A group's position is read before the end of the stream is, up to which the stream is copied then. So what a group has
read is always there. A group's state names its stream and segments, so it is not copied: the group is created again,
under its name, at the cut that corresponds to its position.
"""

from __future__ import annotations

from streamvault.common.errors import Usage
from streamvault.mirrors.positions import info_of
from streamvault.streamstore.arithmetic.group_cuts import cut_of
from streamvault.streamstore.errors import UnreadableReaderGroup
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamCut
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.reader_groups import GroupPosition, ReaderGroup


def look_at_group(stream: OpenStream, name: str) -> StreamCut:
    """Return where one of a stream's reader groups would go on if all of its readers were lost now.

    Raises:
        ReaderGroupsNotOffered: the stream's store does not support reader groups.
        Usage: there is no such group, or it does not read the stream.
        UnreadableReaderGroup: its state is of a client that is not known here.
    """
    group = stream.store.reader_groups().find(stream.name.scope, name)
    if group is None:
        raise Usage("no such reader group", where=f"{stream.store.uri}/{stream.name.scope}/{name}")
    if stream.name not in group.starts:
        raise Usage(f"the reader group {name} does not read the stream", where=stream.uri)
    return position_of(stream, group)


def position_of(stream: OpenStream, group: ReaderGroup) -> StreamCut:
    """Return where a group goes on in one of its streams; the offset of a segment that it has read is its end.

    Raises:
        UnreadableReaderGroup: as `look_at_group`.
    """
    position = stream.store.reader_groups().position(group, stream.name)
    described = stream.describe()  # after the position was read

    def info(segment: SegmentId) -> SegmentInfo | None:
        return info_of(stream.store, stream.name, segment)

    if position is None:
        start = group.starts[stream.name] or described.head
        position = GroupPosition(stream.name, start.offsets)
    try:
        return cut_of(position, described, info)
    except UnreadableReaderGroup as error:
        raise UnreadableReaderGroup(error.what, where=f"{stream.store.uri}/{group}") from None
