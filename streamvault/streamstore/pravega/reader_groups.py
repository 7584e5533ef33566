"""Reader groups of Pravega's Java client: listed and created by the controller, their positions read from their states.

The controller has no call that lists groups, so those are found by their state streams, ``_RG`` and the name. The
controller knows a group's configuration, and nothing of its position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from streamvault.streamstore.arithmetic.framing import NotAnEvent, frame
from streamvault.streamstore.arithmetic.splitting import EventSplitter
from streamvault.streamstore.errors import (
    NoSuchSegment,
    NoSuchStream,
    OffsetConflict,
    SegmentTruncated,
    UnreadableReaderGroup,
)
from streamvault.streamstore.model import SegmentId, StreamCut, StreamName
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega.appender import PravegaAppender
from streamvault.streamstore.pravega.controller import Controller, cut_message, of_answer
from streamvault.streamstore.pravega.group_state import GroupState, initial_record
from streamvault.streamstore.pravega.reader import BlockReader
from streamvault.streamstore.pravega.segments import SegmentName, SegmentStores
from streamvault.streamstore.reader_groups import GroupPosition, ReaderGroup, ReaderGroups

PREFIX = "_RG"
"""What the name of a group's state stream begins with."""

ATTEMPTS = 10
"""How often a state is read that its readers truncate meanwhile."""


@dataclass(frozen=True, slots=True, order=True)
class _StateStream(StreamName):
    """The name of a group's state stream, which no user's stream may have."""

    def __post_init__(self) -> None:
        """Check the group's name."""
        StreamName(self.scope, self.stream.removeprefix(PREFIX))


class PravegaReaderGroups(ReaderGroups):
    """See `ReaderGroups`. Usable from all threads."""

    def __init__(self, controller: Controller, stores: SegmentStores) -> None:
        self._controller = controller
        self._stores = stores

    def names(self, scope: str) -> Iterator[str]:
        """See `ReaderGroups.names`."""
        yield from sorted(
            name.removeprefix(PREFIX) for name in self._controller.streams(scope) if name.startswith(PREFIX)
        )

    def find(self, scope: str, name: str) -> ReaderGroup | None:
        """See `ReaderGroups.find`."""
        StreamName(scope, name)  # validates the name
        answer = self._controller.reader_group(scope, name)
        return None if answer is None else _group_from(answer)

    def position(self, group: ReaderGroup, stream: StreamName) -> GroupPosition | None:
        """See `ReaderGroups.position`."""
        state = self._state(group)
        return state.position(stream) if state.begun else None

    def create(self, group: ReaderGroup, start: StreamCut) -> ReaderGroup:
        """See `ReaderGroups.create`.

        The controller creates the group and its state stream; then the first state is appended, as the Java client does
        it. Of two that begin a state, one is refused.
        """
        made = _group_from(self._controller.create_reader_group(_message(group)))
        if made.id != group.id:
            return made
        segment = self._segment(made)
        # an OffsetConflict: a client that opened the group right then has begun its state
        with suppress(OffsetConflict), PravegaAppender(self._stores, segment, in_flight=1) as appender:
            if appender.offset == 0:
                appender.append(frame(initial_record(made, start)))
                appender.flush()
        return made

    def _segment(self, group: ReaderGroup) -> SegmentName:
        """Return the only segment of a group's state stream."""
        name = _StateStream(group.scope, PREFIX + group.name)
        try:
            segments = self._controller.current_segments(name)
        except NoSuchStream:
            segments = {}
        if len(segments) != 1:
            todo = "Run the same command again."
            raise UnreadableReaderGroup("the reader group is being deleted", where=self._where(group), todo=todo)
        return SegmentName(name, next(iter(segments)))

    def _state(self, group: ReaderGroup) -> GroupState:
        """Read the state from where it was truncated to, which is where a whole state begins."""
        segment = self._segment(group)
        for attempts_left in reversed(range(ATTEMPTS)):
            state = GroupState()
            try:
                info = self._stores.infos(segment.stream, [segment.id])[0]
                splitter = EventSplitter(info.start_offset, self._where(group))
                for block in BlockReader(self._stores, segment, info.start_offset, info.write_offset).blocks():
                    for _, record in splitter.events(block):
                        state.apply(bytes(record))
                splitter.finish()
            except (SegmentTruncated, NoSuchSegment, NoSuchStream):
                if not attempts_left:
                    raise
                segment = self._segment(group)
                continue
            except (UnreadableReaderGroup, NotAnEvent) as error:
                raise UnreadableReaderGroup(
                    f"the position of the reader group cannot be read: {error.what}", where=self._where(group)
                ) from None
            return state
        raise AssertionError

    def _where(self, group: ReaderGroup) -> str:
        return f"{self._controller.uri}/{group}"


def _message(group: ReaderGroup) -> Any:
    """``ReaderGroupConfiguration``."""
    return pb.ReaderGroupConfiguration(
        scope=group.scope,
        readerGroupName=group.name,
        groupRefreshTimeMillis=group.refresh_millis,
        automaticCheckpointIntervalMillis=group.checkpoint_millis,
        maxOutstandingCheckpointRequest=group.most_checkpoints,
        retentionType=group.retention,
        generation=group.generation,
        readerGroupId=str(group.id),
        startingStreamCuts=[_bound_message(name, cut) for name, cut in group.starts.items()],
        endingStreamCuts=[_bound_message(name, cut) for name, cut in group.ends.items()],
    )


def _bound_message(stream: StreamName, cut: StreamCut | None) -> Any:
    return cut_message(StreamCut(stream, {}) if cut is None else cut)


@of_answer
def _group_from(message: Any) -> ReaderGroup:
    """A ``ReaderGroupConfiguration``."""
    return ReaderGroup(
        scope=message.scope,
        name=message.readerGroupName,
        starts=_bounds(message.startingStreamCuts),
        ends=_bounds(message.endingStreamCuts),
        refresh_millis=message.groupRefreshTimeMillis,
        checkpoint_millis=message.automaticCheckpointIntervalMillis,
        most_checkpoints=message.maxOutstandingCheckpointRequest,
        retention=message.retentionType,
        id=UUID(message.readerGroupId),
        generation=message.generation,
    )


def _bounds(messages: Iterable[Any]) -> dict[StreamName, StreamCut | None]:
    bounds: dict[StreamName, StreamCut | None] = {}
    for one in messages:
        name = StreamName(one.streamInfo.scope, one.streamInfo.stream)
        cut = StreamCut(name, {SegmentId.of(segment): offset for segment, offset in one.cut.items()})
        bounds[name] = cut if cut.offsets else None
    return bounds
