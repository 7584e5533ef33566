"""What readers write: the configurations of their groups, and the groups' states, each a segment. In memory.

They end with the server: a group that is created again begins where its configuration says.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from uuid import UUID

from streamvault.common.errors import Failed
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamName

NULL = -(2**63)
"""The value of an attribute, and the number of a writer's last event, that were never set."""

MOST_GROUPS = 10_000


@dataclass(frozen=True, slots=True)
class Appended:
    """An append that is stored.

    Attributes:
        before: the number of the writer's last event before.
        end: the segment's end (bytes).
    """

    before: int
    end: int


@dataclass(eq=False)
class StateSegment:
    """The segment of a group's state. Thread-safe.

    Attributes:
        groups: all groups.
        id: the segment.
    """

    groups: Groups
    id: SegmentId
    _start: int = 0
    _held: bytearray = field(default_factory=bytearray)
    _writers: dict[UUID, int] = field(default_factory=dict)
    _attributes: dict[UUID, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def info(self) -> SegmentInfo:
        """Return its offsets."""
        return SegmentInfo(self.id, self._start, self._start + len(self._held), sealed=False)

    def read(self, start: int, length: int) -> bytes:
        """Return bytes from an offset below its end on.

        Raises:
            SegmentTruncated: it begins later.
        """
        with self._lock:
            if start < self._start:
                raise SegmentTruncated("truncated", start_offset=self._start)
            return bytes(self._held[start - self._start : start - self._start + length])

    def last_event(self, writer: UUID) -> int:
        """Return the number of the last event that a writer has stored."""
        return self._writers.get(writer, NULL)

    def append(self, writer: UUID, number: int, data: bytes, expected: int | None) -> Appended | None:
        """Append an event; None if the end is not the expected one.

        Raises:
            Failed: the states of all groups take more memory than they may.
        """
        with self._lock:
            before, end = self.last_event(writer), self._start + len(self._held)
            if number <= before:  # it is there: the answer was lost
                return Appended(before, end)
            if expected is not None and expected != end:
                return None
            self.groups.take(len(data))
            self._held += data
            self._writers[writer] = number
            return Appended(before, end + len(data))

    def truncate(self, offset: int) -> bool:
        """Forget the bytes before an offset; False if it is beyond the end."""
        with self._lock:
            if offset > self._start + len(self._held):
                return False
            gone = max(offset - self._start, 0)
            del self._held[:gone]
            self._start += gone
            self.groups.take(-gone)
            return True

    def attribute(self, name: UUID) -> int:
        """Return an attribute's value."""
        return self._attributes.get(name, NULL)

    def swap(self, name: UUID, expected: int, value: int) -> bool:
        """Set an attribute if it has the expected value."""
        with self._lock:
            if self.attribute(name) != expected:
                return False
            self._attributes[name] = value
            return True


@dataclass(frozen=True, slots=True)
class Group:
    """A group.

    Attributes:
        configuration: what the client has created or updated it with.
        state: its state; one of its own if a group is created again.
    """

    configuration: bytes
    state: StateSegment


class Groups:
    """All groups whose readers use the server. Thread-safe.

    Args:
        limit: most bytes of their states.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._bytes, self._created = limit, 0, 0
        self._groups: dict[StreamName, Group] = {}
        self._lock = threading.RLock()

    def find(self, name: StreamName) -> Group | None:
        """Return a group by its scope and name; None if there is none."""
        return self._groups.get(name)

    def create(self, name: StreamName, configuration: bytes) -> Group:
        """Create a group; if there is one of its name, return that one.

        Raises:
            Failed: there are too many.
        """
        with self._lock:
            found = self._groups.get(name)
            if found is None:
                if len(self._groups) >= MOST_GROUPS:
                    raise Failed(f"there are {MOST_GROUPS} reader groups already", todo="Delete those of readers gone.")
                self._created += 1
                found = Group(configuration, StateSegment(self, SegmentId(0, self._created)))
                self._groups[name] = found
            return found

    def update(self, name: StreamName, configuration: bytes, before: Group) -> bool:
        """Replace the configuration that a caller has seen; False if it is another one now."""
        with self._lock:
            if self._groups.get(name) is not before:
                return False
            self._groups[name] = Group(configuration, before.state)
            return True

    def delete(self, name: StreamName) -> bool:
        """Delete a group; False if there is none."""
        with self._lock:
            found = self._groups.pop(name, None)
            if found is not None:
                found.state.truncate(found.state.info().write_offset)
            return found is not None

    def segment(self, name: StreamName, segment: SegmentId) -> StateSegment:
        """Return the segment of a group's state.

        Raises:
            NoSuchSegment: the group is deleted, or was created again.
        """
        found = self._groups.get(name)
        if found is None or found.state.id != segment:
            raise NoSuchSegment("no such reader group", where=str(name))
        return found.state

    def take(self, size: int) -> None:
        """Count bytes of a state; raise `Failed` if all of them are too many."""
        with self._lock:
            if self._bytes + size > self._limit:
                raise Failed("the states of the reader groups take too much memory", todo="Raise --cache.")
            self._bytes += size
