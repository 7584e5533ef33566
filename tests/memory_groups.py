"""Reader groups that are kept in memory, of a store that has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import uuid4

from streamvault.streamstore.errors import UnreadableReaderGroup
from streamvault.streamstore.model import StreamCut, StreamName
from streamvault.streamstore.store import GroupPosition, ReaderGroup, ReaderGroups

THERE = StreamName("elsewhere", "target")


@dataclass
class MemoryGroups(ReaderGroups):
    """Reader groups in memory.

    Attributes:
        made: scope and name → the group, and the cut that it has reached; None before its state was begun.
        unreadable: why no position can be read.
        killed: whether the process is killed right after the controller has created a group.
        after: what happens after a position was read.
    """

    made: dict[tuple[str, str], tuple[ReaderGroup, StreamCut | None]] = field(default_factory=dict)
    unreadable: str = ""
    killed: bool = False
    after: Callable[[], object] = bool

    def names(self, scope: str) -> Iterator[str]:
        return iter(sorted(name for owner, name in self.made if owner == scope))

    def find(self, scope: str, name: str) -> ReaderGroup | None:
        return self.made[scope, name][0] if (scope, name) in self.made else None

    def position(self, group: ReaderGroup, stream: StreamName) -> GroupPosition | None:
        if self.unreadable:
            raise UnreadableReaderGroup(self.unreadable)
        reached = self.reached(group.scope, group.name)
        self.after()
        return None if reached is None else GroupPosition(stream, reached.offsets)

    def create(self, group: ReaderGroup, start: StreamCut) -> ReaderGroup:
        found, reached = self.made.setdefault((group.scope, group.name), (group, None))
        if self.killed:
            raise KeyboardInterrupt
        if found.id == group.id and reached is None:
            self.made[group.scope, group.name] = (found, start)
        return found

    def reached(self, scope: str = THERE.scope, name: str = "app") -> StreamCut | None:
        return self.made[scope, name][1]

    def add(self, at: StreamCut, *others: StreamName, name: str = "app") -> ReaderGroup:
        """Add a group that has reached a cut."""
        bounds = dict.fromkeys((at.stream, *others))
        group = ReaderGroup(scope=at.stream.scope, name=name, starts=bounds, ends=bounds, refresh_millis=5, id=uuid4())
        self.made[group.scope, name] = (group, at)
        return group
