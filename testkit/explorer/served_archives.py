"""Readers of a served archive under the explorer: it grows, is merged, expires and is deleted between their requests.

What they get passes through `SegmentServer.read`, without sockets and threads: a fetch is done when
somebody waits for it or for a later one. So what is fetched ahead comes as late as it may.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, TypeVar, cast
from unittest import mock

from streamvault.common.errors import Failed, Problem
from streamvault.manifests import index_pages
from streamvault.serving import archived, blocks, segments
from streamvault.serving.archived import ServedArchive
from streamvault.serving.cache import LEAST_CACHE, BlockCache
from streamvault.serving.segments import SegmentServer
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import SegmentId
from testkit.explorer import judge
from testkit.explorer.commands import COMMANDS
from testkit.explorer.scenes import CLUSTER, NAME, Scene, scene_of
from testkit.explorer.schedule import Schedule
from testkit.explorer.world import Actor, World, in_memory, perform
from testkit.killed import Killed

T = TypeVar("T")
READ = "read"
PAGE_ROWS = 2
BLOCK_BYTES = 40
"""Smaller than a range. A block of a chunk is a multiple of what has a checksum, so they keep theirs."""


class Later:
    """Replaces the threads of a `BlockCache`."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[Fetched, Callable[[], Any]]] = deque()

    def submit(self, work: Callable[..., Any], *args: object) -> Fetched:
        self._jobs.append((future := Fetched(self), lambda: work(*args)))
        return future

    def run(self, until: Callable[[], bool]) -> None:
        """Do what was submitted, in order, until that is enough or all."""
        while self._jobs and not until():
            future, work = self._jobs.popleft()
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001  (of whoever waits)
                future.set_exception(error)


class Fetched(Future[Any]):
    """What is fetched when somebody waits for it."""

    def __init__(self, later: Later) -> None:
        super().__init__()
        self.later = later


class Server(SegmentServer):
    """A server of one archive and one client."""

    async def in_thread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)


async def _shared(coming: Future[Any]) -> Any:
    """Replaces `cache.shared`; who waits for what nobody fetches any more gets an error at once."""
    if isinstance(coming, Fetched):
        coming.later.run(coming.done)
    return coming.result(0)


class Reader:
    """A client that reads all segments, each time from where it has begun.

    Attributes:
        wrong: what was wrong when it was seen.
    """

    def __init__(self, scene: Scene, world: World, watched: Watched) -> None:
        self._scene, self._world, self._watched = scene, world, watched
        self._cache, self._later = BlockCache(LEAST_CACHE), Later()
        self._cache._pool = cast("Any", self._later)
        self._starts: dict[SegmentId, int] = {}
        self.archive: ServedArchive | None = None
        self.wrong: list[str] = []

    def read(self) -> None:
        """Read; again, with nothing in memory but what is known of ranges; and as it is then."""
        self._look()
        for _ in range(2):
            self._read_all()
            self._forget()
        self._look()
        self._read_all()

    def settled(self) -> None:
        """Read all that is in force."""
        self._look()
        self._forget()
        self._read_all()

    def _look(self) -> None:
        self._expected = self._watched.ledger.required()
        self._done(self._renew)

    def _renew(self) -> None:
        if self.archive is None:
            self.archive = ServedArchive(self._scene.archive, self._cache)
            self._server = Server({NAME: self.archive}, cast("Any", None), cast("Any", None), self._cache)
        else:
            self.archive.renewed()

    def _forget(self) -> None:
        for key in [key for key in self._cache._held if key[-1] not in {archived.KNOWN, archived.CHAIN}]:  # type: ignore[index]
            self._cache.drop(key)

    def _read_all(self) -> None:
        assert self.archive is not None
        found: dict[str, int] = {}
        for segment, info in self.archive.now.infos.items():
            self._starts.setdefault(segment, info.start_offset)
        for segment, start in self._starts.items():
            name = segment.in_stream(NAME)
            found[name] = self._read(segment, name, start)
        self._later.run(lambda: False)
        expected, required = self._expected, self._watched.ledger.required()
        kept = {name: bits & required.get(name, 0) for name, bits in expected.items()}
        if missing := judge.without(kept, found):
            self.wrong.append(f"SKIPPED {judge.told(missing)}")

    def _read(self, segment: SegmentId, name: str, at: int) -> int:
        """Read a segment; return which of its bytes there were."""
        found = 0
        while True:
            try:
                data = self._done(lambda at=at: self._answer(name, at))
            except SegmentTruncated as error:
                if error.start_offset <= at:
                    self.wrong.append(f"TRUNCATED {name}:{at} is said to begin at {error.start_offset}")
                    return found
                at = error.start_offset
                continue
            except NoSuchSegment:
                return found
            if not data:
                return found
            if data != self._world.cluster(CLUSTER).find(NAME).data.get(segment, b"")[at : at + len(data)]:
                self.wrong.append(f"WRONG bytes of {name}:{at}")
            found |= judge.mask(at, at + len(data))
            at += len(data)

    def _answer(self, name: str, at: int) -> bytes:
        """Ask once, as a connection does."""
        info = _result(self._server.info(name, at))
        if at < info.start_offset:
            raise SegmentTruncated("truncated", where=name, start_offset=info.start_offset)
        try:
            return b"" if at >= info.write_offset else bytes(_result(self._server.read(name, at, BLOCK_BYTES)))
        except Failed as error:
            ever = self._watched.ledger.ever().get(name, 0) >> at
            if type(error) is not Failed or ever & 1:
                raise
            behind = at + (ever & -ever).bit_length() - 1 if ever else info.write_offset
            raise SegmentTruncated("a gap", where=name, start_offset=behind) from None

    def _done(self, work: Callable[[], T]) -> T:
        """Try until it is done, while the archive changes or the store fails; raises what ends a segment or archive."""
        while True:
            before = self._watched.changes
            try:
                return work()
            except (SegmentTruncated, NoSuchSegment):
                raise
            except Problem as error:
                if self._watched.ledger.is_deleted:
                    raise
                if error.what == "by the schedule":
                    continue
                if self._watched.changes == before:
                    self.wrong.append(f"REFUSED {type(error).__name__}: {error}")
                    raise


class Watched:
    """An archive whose changes are counted.

    Attributes:
        ledger: what becomes of it. changes: of its objects.
    """

    def __init__(self, world: World) -> None:
        self.ledger, self.changes = judge.Ledger.of(world), 0
        self.ledger.watch(world)
        bucket = world.bucket("vault")
        note = bucket.changed

        def changed(key: str, data: bytes | None) -> None:
            self.changes += 1
            note(key, data)

        bucket.changed = changed


def _result(coming: Coroutine[Any, Any, T]) -> T:
    """Run what waits for nothing."""
    try:
        coming.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise AssertionError("a read waits")


def run(schedule: Schedule) -> tuple[list[str], list[Actor]]:
    """Run a schedule, such as ``served/chunks/grown read,compact``; return what is wrong, and its actors."""
    scene = scene_of(schedule.scene.partition("/")[2])
    world, names = scene.world.copy(), schedule.commands
    with in_memory(world), ExitStack() as stack:
        stack.enter_context(mock.patch.object(index_pages, "PAGE_ROWS", PAGE_ROWS))
        for module in (archived, segments):
            stack.enter_context(mock.patch.object(module, "shared", _shared))
        for module in (archived, blocks) if scene.layout == "events" else ():
            stack.enter_context(mock.patch.object(module, "BLOCK_BYTES", BLOCK_BYTES))
        watched = Watched(world)
        judge.run_as(names)
        readers = {place: Reader(scene, world, watched) for place, name in enumerate(names) if name == READ}

        def work(place: int, name: str) -> Callable[[], object]:
            return readers[place].read if place in readers else lambda: COMMANDS[name].run(scene, world)

        actors = [Actor(place, work(place, name)) for place, name in enumerate(names)]
        perform(schedule, actors)
        world.settle()
        return list(_judge(names, actors, readers, Reader(scene, world, watched))), actors


def _judge(names: Sequence[str], actors: Sequence[Actor], readers: dict[int, Reader], last: Reader) -> Iterator[str]:
    for name, actor in zip(names, actors, strict=True):
        if actor.error is not None and not isinstance(actor.error, (Problem, Killed)):
            yield f"BUG {name} ended with {type(actor.error).__name__}: {actor.error}"
    for reader in [*(readers[actor.place] for actor in actors if actor.place in readers and not actor.killed), last]:
        actor = Actor(len(actors), reader.settled)
        actor.go_on()
        if actor.error is not None and not isinstance(actor.error, Problem):
            yield f"BUG a reader ended with {type(actor.error).__name__}: {actor.error}"
        yield from reader.wrong
