"""Reader groups: readers that share a stream, and their common position. An optional feature of a `StreamStore`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from streamvault.streamstore.model import SegmentId, StreamCut, StreamName

NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderGroup:
    """A reader group as it was created; its position changes, see `ReaderGroups.position`.

    Attributes:
        scope: its scope.
        name: its name.
        starts: each stream that it reads → the cut from which it reads it; None for the stream's head.
        ends: the same streams → the cut up to which it reads them; None for no end.
        refresh_millis: how often readers look for changes of the group (milliseconds).
        checkpoint_millis: how often the group makes a checkpoint (milliseconds); -1 for never.
        most_checkpoints: how many checkpoints may be under way at once.
        retention: whether streams keep what the group has not read: 0 for no, 1 up to where the group's user says, 2 up
            to its last checkpoint.
        id: made when the group was created.
        generation: how often its configuration was changed.
    """

    scope: str
    name: str
    starts: Mapping[StreamName, StreamCut | None]
    ends: Mapping[StreamName, StreamCut | None] = field(default_factory=dict)
    refresh_millis: int = 3000
    checkpoint_millis: int = 30000
    most_checkpoints: int = 3
    retention: int = 0
    id: UUID = NO_ID
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Where a group would go on in a stream if all of its readers were lost now.

    Attributes:
        stream: the stream.
        offsets: segment → offset of the next event that counts as not read; -1 (`SEGMENT_END`) for none.
        waiting: segment that cannot be read yet → its predecessors that are still to be read to their ends.
    """

    stream: StreamName
    offsets: Mapping[SegmentId, int]
    waiting: Mapping[SegmentId, frozenset[SegmentId]] = field(default_factory=dict)


class ReaderGroups(ABC):
    """Reader groups of one store.

    Every method raises what `StreamStore` says for all of its methods.
    """

    @abstractmethod
    def names(self, scope: str) -> Iterator[str]:
        """Iterate over the names of a scope's groups, sorted."""

    @abstractmethod
    def find(self, scope: str, name: str) -> ReaderGroup | None:
        """Return a group; None if there is none of this name."""

    @abstractmethod
    def position(self, group: ReaderGroup, stream: StreamName) -> GroupPosition | None:
        """Return where a group goes on in one of its streams; None if it has not begun, and goes on at its start.

        Raises:
            UnreadableReaderGroup: its state is of a client that is not known here.
        """

    @abstractmethod
    def create(self, group: ReaderGroup, start: StreamCut) -> ReaderGroup:
        """Create a group that begins to read its only stream at a cut, unless there is one of its name.

        A group that this method was creating when it was killed, which has the same id, is finished.

        Args:
            group: the group; its id tells whether one of the same name is this one.
            start: where it begins to read, with no `SEGMENT_END`.

        Returns:
            The group of this name: another one than was asked for, which has another id, is left as it is.
        """
