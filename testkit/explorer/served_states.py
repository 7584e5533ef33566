"""The states of reader groups under the explorer: servers that share them, stopped before any request of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from unittest import mock
from uuid import UUID

from streamvault.common.errors import Problem
from streamvault.objectstore.uri import RootAddress
from streamvault.serving import state
from streamvault.serving.state import NULL, Groups, StateSegment
from streamvault.streamstore.errors import NoSuchSegment
from streamvault.streamstore.model import StreamName
from testkit.explorer.schedule import Schedule
from testkit.explorer.world import Actor, World, in_memory, perform
from testkit.killed import Killed

GROUP = StreamName("scope", "group")
COUNTER = UUID(int=1)
EPOCH_ENTRIES = 3
"""So few that epochs change within a schedule."""

EVENTS = 3
ATTEMPTS = 50


@dataclass
class Ledger:
    """What servers have acknowledged.

    Attributes:
        appended: event → its segment and the offset of its end.
        swapped: values of the counter, each with its segment.
        deleted: segments of groups whose deletion was acknowledged.
        wrong: what was wrong when it was seen.
    """

    appended: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    swapped: list[tuple[int, int]] = field(default_factory=list)
    deleted: set[int] = field(default_factory=set)
    truncated: int = 0
    wrong: list[str] = field(default_factory=list)

    def end(self, segment: int) -> int:
        """The end of a segment that every later look must see."""
        return max((end for of, end in self.appended.values() if of == segment), default=0)

    def look(self, who: str, server: StateSegment) -> int:
        """Return where a segment ends, as a server says; it must have all that was acknowledged before."""
        known, deleted = self.end(server.id.number), server.id.number in self.deleted
        found = server.info().write_offset
        if found < known:
            self.wrong.append(f"STALE {who} sees the end at {found}, and {known} was acknowledged")
        if deleted:
            self.wrong.append(f"KEPT {who} sees a group whose deletion was acknowledged")
        return found


class Client:
    """A client at a server of its own, and at another one whenever that fails.

    Args:
        place: its place in the schedule; the name of its writer.
        ledger: notes what it is told.
    """

    def __init__(self, place: int, ledger: Ledger) -> None:
        self._ledger, self._place = ledger, place
        self._writer = UUID(int=100 + place)
        self._groups = _new_server()

    @staticmethod
    def event(place: int, number: int) -> bytes:
        """An event of a client."""
        return f"{chr(ord('a') + place)}{number:02d}".encode()

    def append(self) -> None:
        """Append some events, every second one at an offset, each again until it is stored."""
        for number in range(1, EVENTS + 1):
            self._until_done(lambda number=number: self._append(number))

    def count(self) -> None:
        """Count up twice, as those who share an attribute do."""
        for _ in range(2):
            self._until_done(self._count)

    def truncate(self) -> None:
        """Forget the first event that is held."""
        self._until_done(lambda: (found := self._open()).truncate(min(found.info().start_offset + 3, _end(found))))

    def remake(self) -> None:
        """Delete the group and create it again."""
        if (before := self._groups.find(GROUP)) is not None and self._groups.delete(GROUP, before):
            self._ledger.deleted.add(before.state.id.number)
        self._until_done(lambda: self._open() is not None)

    def look(self) -> None:
        """Look, and read all of it, twice."""
        for _ in range(2):
            with suppress(NoSuchSegment):
                found = self._open()
                end = self._ledger.look(f"client {self._place + 1}", found)
                start = found.info().start_offset
                if len(data := found.read(start, end - start)) < end - start:
                    self._ledger.wrong.append(f"SHORT {end - start} bytes are {data!r}")

    def _append(self, number: int) -> bool:
        server, event = self._open(), self.event(self._place, number)
        if server.last_event(self._writer) >= number:
            return True  # of an earlier attempt
        expected = self._ledger.look(f"client {self._place + 1}", server) if number % 2 else None
        done = server.append(self._writer, number, event, expected)
        if done is not None and done.before < number:
            if event in self._ledger.appended and self._ledger.appended[event][0] == server.id.number:
                self._ledger.wrong.append(f"DOUBLED {event!r} was acknowledged as new twice")
            self._ledger.appended[event] = server.id.number, done.end
        return done is not None

    def _count(self) -> bool:
        server = self._open()
        before = server.attribute(COUNTER)
        value = 1 if before == NULL else before + 1
        if server.swap(COUNTER, before, value):
            self._ledger.swapped.append((server.id.number, value))
            return True
        return False

    def _open(self) -> StateSegment:
        return self._groups.create(GROUP, b"configuration").state

    def _until_done(self, work: Callable[[], object]) -> None:
        for _ in range(ATTEMPTS):
            try:
                if work():
                    return
            except NoSuchSegment:
                continue  # made again by another client
            except Problem:
                self._groups = _new_server()
        raise AssertionError("a client tries for ever")


def _end(server: StateSegment) -> int:
    return server.info().write_offset


def _new_server() -> Groups:
    return Groups(RootAddress.parse("memory://state").open())


VERBS: dict[str, Callable[[Client], None]] = {
    "state-append": Client.append,
    "state-count": Client.count,
    "state-truncate": Client.truncate,
    "state-remake": Client.remake,
    "state-look": Client.look,
}
ARRIVE = "arrive"


def run(schedule: Schedule) -> tuple[list[str], list[Actor]]:
    """Run a schedule; return what is wrong, and its actors."""
    world, ledger = World(), Ledger()

    def work(place: int, name: str) -> Callable[[], object]:
        if name == ARRIVE:
            return world.arrive
        return lambda: VERBS[name](Client(place, ledger))

    with in_memory(world), mock.patch.object(state, "EPOCH_ENTRIES", EPOCH_ENTRIES):
        actors = [Actor(place, work(place, name)) for place, name in enumerate(schedule.commands)]
        perform(schedule, actors)
        wrong = list(_judge(world, ledger, schedule.commands, actors))
    return wrong, actors


def _judge(world: World, ledger: Ledger, names: Sequence[str], actors: Sequence[Actor]) -> Iterator[str]:
    for name, actor in zip(names, actors, strict=True):
        if actor.error is not None and not isinstance(actor.error, (Problem, Killed)):
            yield f"BUG {name} ended with {type(actor.error).__name__}: {actor.error}"
    world.settle()
    for place, name in enumerate(names):  # whose server was killed repeats everything at another one
        if name in {"state-append", "state-count"} and actors[place].error is not None:
            VERBS[name](Client(place, ledger))
    yield from ledger.wrong
    yield from _differences(ledger, _new_server().create(GROUP, b"configuration").state, names)


def _differences(ledger: Ledger, found: StateSegment, names: Sequence[str]) -> Iterator[str]:
    """What was acknowledged and is not there, or is there twice."""
    start, end = found.info().start_offset, _end(found)
    data = found.read(start, end - start)
    events = [data[at : at + 3] for at in range(0, len(data), 3)]
    for event in set(events):
        if events.count(event) > 1:
            yield f"DOUBLED {event!r}"
    missing = set(_events(names)) - set(events)
    if missing and start == 0 and "state-remake" not in names:
        yield f"LOST {sorted(missing)}"
    for event, (segment, at) in ledger.appended.items():
        if segment == found.id.number and at > start and data[at - start - 3 : at - start] != event:
            yield f"LOST {event!r}, which was acknowledged to end at {at}"
    if found.id.number in ledger.deleted:
        yield "KEPT a group whose deletion was acknowledged"
    counted = [value for segment, value in ledger.swapped if segment == found.id.number]
    if len(set(counted)) < len(counted):
        yield f"DOUBLED a value of the counter: {sorted(counted)}"
    if counted and found.attribute(COUNTER) < max(counted):
        yield f"LOST the counter, which was acknowledged to be {max(counted)}"


def _events(names: Sequence[str]) -> Iterator[bytes]:
    for place, name in enumerate(names):
        if name == "state-append":
            yield from (Client.event(place, number) for number in range(1, EVENTS + 1))
