"""The segment store: which segment a name means, who waits for more of it, and how much clients may take at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from streamvault.common.errors import Damaged, Failed, Problem
from streamvault.manifests.archive import NoSuchArchive
from streamvault.objectstore.store import InArchiveClass
from streamvault.serving.access import Access
from streamvault.serving.cache import BlockCache, shared
from streamvault.serving.connection import ClientConnection
from streamvault.serving.controller import MARKS, READ_ONLY
from streamvault.serving.live import LOOK_SECONDS, LiveStream
from streamvault.serving.served import Served
from streamvault.serving.state import Groups, StateLost, StateSegment
from streamvault.streamstore.errors import InvalidName, NoSuchScope, NoSuchSegment, NoSuchStream, SegmentTruncated
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamName
from streamvault.streamstore.pravega.reader_groups import PREFIX

_log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

MOST_CONNECTIONS = 1000

STOP_SECONDS = 5.0
"""How long a server that stops finishes answers."""

REFUSALS = frozenset(
    {"closed connection", "refused connection", "wrong login", "invalid token", "read only", "damage"}
    | {"unknown command", "unknown call"}
)
"""What is counted beside the requests: `damage` is archived bytes that were not handed out."""

THREADS = 8

STATE_THREADS = 8
"""Requests about reader groups' states that wait for their store at once."""

POLL_SECONDS = 0.5
"""How often to look for what other servers have appended to a state that a reader waits for."""

POLL_THREADS = 32
"""Archives, and segments of a live stream at whose ends readers wait, that are looked at at once: threads of their own,
so that no read waits for a store that does not answer."""


@lru_cache(maxsize=256)
def _parsed(name: str) -> tuple[str, StreamName, SegmentId]:
    """Split a segment's full name: the prefix of an internal stream (empty for others), the stream, the segment.

    Raises:
        InvalidName: it is not a segment's name.
    """
    scope, _, rest = name.partition("/")
    stream, _, text = rest.partition("/")
    prefix = next((each for each in (PREFIX, MARKS) if stream.startswith(each)), "")
    return prefix, StreamName(scope, stream.removeprefix(prefix)), SegmentId.parse(text)


COLD_SECONDS = 30.0
"""How often to try again to read an object that S3 must restore first."""


class Change(asyncio.Event):
    """A change of a segment that readers wait for; forgotten when none of them does.

    Attributes:
        seen: the segment before.
    """

    def __init__(self, seen: SegmentInfo) -> None:
        super().__init__()
        self.seen = seen


class SegmentServer:
    """The segments of all streams that are served, and those of reader groups.

    Args:
        streams: what is served.
        groups: the reader groups.
        access: who may read.
        cache: the budget of memory.
        live: the live stream that goes on where the only archive ends; None for archives.

    Attributes:
        access: see above.
        cache: see above.
        read_only: what a writer is told.
        counts: what clients have asked for → how often.
        refused: what was refused (`REFUSALS`) → when the last time (seconds since 1970), and why.
        sent: bytes of segments that were sent.
        stopping: whether it takes no more requests.
    """

    def __init__(
        self,
        streams: Mapping[StreamName, Served],
        groups: Groups,
        access: Access,
        cache: BlockCache,
        live: LiveStream | None = None,
    ) -> None:
        self._streams, self._groups, self.access, self.cache, self._live = streams, groups, access, cache, live
        self.read_only = READ_ONLY if live is None else live.address.read_only
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="look")
        self._state_threads = ThreadPoolExecutor(STATE_THREADS, thread_name_prefix="state")
        self._changes: WeakValueDictionary[str, Change] = WeakValueDictionary()
        self._fetching = asyncio.Semaphore(2 * cache.fetches)
        self._poll_threads = ThreadPoolExecutor(POLL_THREADS, thread_name_prefix="poll")
        self._refreshing: list[asyncio.Task[None]] = []
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._connections: dict[asyncio.Task[None], ClientConnection] = {}
        self._cold: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.refused: dict[str, tuple[float, str]] = {}
        self.sent, self.stopping = 0, False

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        if len(self._connections) >= MOST_CONNECTIONS:
            self.count("refused connection", why := f"there are {MOST_CONNECTIONS} others")
            _log.warning("a client's connection is closed: %s", why)
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (asyncio runs this as one)
        self._connections[task] = client = ClientConnection(self, reader, writer)
        try:
            await client.run()
        except asyncio.CancelledError:
            pass  # by `close`; asyncio would log it with a traceback
        finally:
            del self._connections[task]

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    @property
    def waiting(self) -> int:
        """How many reads wait."""
        return sum(client.waiting for client in list(self._connections.values()))

    def count(self, what: str, why: str = "") -> None:
        """Count a request, or what was refused, and why."""
        self.counts[what] += 1
        if what in REFUSALS:
            self.refused[what] = time.time(), why

    async def in_thread(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call what waits for a store."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*args, **kwargs))

    async def stored(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call what waits for the store of reader groups' states.

        Raises:
            NoSuchSegment, SegmentTruncated: as the function says.
            StateLost: any other reason.
        """
        run = asyncio.get_running_loop().run_in_executor
        try:
            return await run(self._state_threads, lambda: function(*args, **kwargs))
        except (NoSuchSegment, SegmentTruncated):
            raise
        except Problem as error:
            raise StateLost(error.what, where=error.where, todo=error.todo) from None

    async def find(self, name: str) -> tuple[Served, SegmentId] | StateSegment | None:
        """Return a segment by its full name; None for the one of an empty stream of watermarks.

        Raises:
            NoSuchSegment: there is none.
            StateLost: as `stored`.
        """
        try:
            prefix, stream, segment = _parsed(name)
            served = None if prefix == PREFIX else self._streams[stream]
        except (InvalidName, KeyError):
            raise NoSuchSegment("no such segment", where=name[:1000]) from None
        if served is None:
            return await self.stored(self._groups.segment, stream, segment)
        return None if prefix == MARKS else (served, segment)

    async def refusal(self, token: str) -> int | None:
        """Return why a token is refused, as Pravega numbers that; None if it holds."""
        if self._live is None:
            return self.access.refusal(token)
        judged = self._live.judged(token)
        return judged[0] if judged else await self.in_thread(self._live.refusal, token)

    async def info(
        self, name: str, offset: int | None = None, threads: ThreadPoolExecutor | None = None
    ) -> SegmentInfo:
        """Return a segment's offsets; maybe older ones if these already tell what is at an offset. Errors as `find`."""
        found = await self.find(name)
        if found is None:
            return SegmentInfo(SegmentId(0, 0), 0, 0, sealed=False)
        if isinstance(found, StateSegment):
            return await self.stored(found.info)
        archive, segment = found
        if self._live is None:
            return archive.now.info(segment)
        run = asyncio.get_running_loop().run_in_executor
        return await run(threads or self._threads, self._live.info, segment, offset)

    async def check_end(self, name: str) -> None:
        """Check that a sealed segment ends where it is said to; errors as `ServedMoment.check_end` and `find`."""
        found = await self.find(name)
        if self._live is None and isinstance(found, tuple):  # `LiveStream.info` says so itself
            found[0].now.check_end(found[1])

    async def read(self, name: str, offset: int, length: int) -> bytes | memoryview:
        """Return bytes from an offset below a segment's end on; at least one, at most so many.

        Raises:
            Damaged: they are missing, or not those that were archived.
            InArchiveClass: S3 must restore them first.
            Problem: any other reason.
        """
        found = await self.find(name)
        if isinstance(found, StateSegment):
            return await self.stored(found.read, offset, length)
        if found is None:
            raise NoSuchSegment("no such segment", where=name)
        archive, segment = found
        block = None if self._live is None else await self._live_block(self._live, segment, offset)
        if block is None:
            block = await self._archived(archive, segment, offset)
        return block[:length]

    async def _archived(self, archive: Served, segment: SegmentId, offset: int) -> memoryview:
        """Return what the archive has from an offset on, to the end of a block; errors as for `read`."""
        lacking = (Damaged, NoSuchArchive) if self._live is None else (Damaged, NoSuchArchive, Failed)
        while True:
            now = archive.now
            try:
                block = await archive.read_block(now, segment, offset, self._fetching)
            except lacking as error:
                # missing for good only if what was read is still in force
                if not await self.in_thread(archive.renewed, now):
                    if self._live is not None and not isinstance(error, Damaged | SegmentTruncated | InArchiveClass):
                        raise await self.in_thread(self._live.absent, segment, offset) from None
                    raise
                continue
            self._cold.discard(archive.uri)
            return block

    async def _live_block(self, live: LiveStream, segment: SegmentId, offset: int) -> memoryview | None:
        """Return what the live stream has from an offset on; None if it has truncated that."""
        try:
            if (fetched := await self.in_thread(live.begin, segment, offset)) is None:
                return None
            return await shared(fetched)
        except (SegmentTruncated, NoSuchSegment) as error:
            live.truncated(segment, error)
            return None

    async def wait_for_warmth(self, name: str, cold: InArchiveClass) -> None:
        """Wait a while for S3 to restore what a segment's bytes need; the log says so once for each archive."""
        found = await self.find(name)
        if isinstance(found, tuple) and (uri := found[0].uri) not in self._cold:
            self._cold.add(uri)
            todo = f"Run 'streamvault warm {uri}': what reads this waits until S3 has restored it."
            _log.warning("%s", InArchiveClass(cold.what, where=cold.where, todo=todo))
        await asyncio.sleep(COLD_SECONDS)

    def changed(self, name: str) -> None:
        """Wake who waits at the end of a segment."""
        if (event := self._changes.pop(name, None)) is not None:
            event.set()

    def change(self, name: str, seen: SegmentInfo) -> Change:
        """Return what is set once a segment is no more what was seen; look again before waiting for it."""
        return self._changes.setdefault(name, Change(seen))

    def begin_refreshing(self, every: float) -> None:
        """Begin to look for new generations of the archives, every so many seconds."""
        self._refreshing = [asyncio.create_task(self._refresh(every)), asyncio.create_task(self._poll())]

    async def _refresh(self, every: float) -> None:
        before = set[StreamName]()
        while True:
            await asyncio.sleep(every)
            try:
                streams = dict(await self.in_thread(lambda: list(self._streams.items())))
                for name, archive in streams.items():
                    self._begin_looking(str(name), partial(self._refresh_one, name, archive))
                for name in before - streams.keys():
                    self._changed_stream(name)
                before = {*streams}
            except (Problem, KeyError):
                continue  # an embedded stream was deleted while all were listed

    async def _refresh_one(self, name: StreamName, archive: Served) -> None:
        try:
            look = (self._live or archive).refresh
            if await asyncio.get_running_loop().run_in_executor(self._poll_threads, look):
                self._changed_stream(name)
        except (NoSuchStream, NoSuchScope):
            self._changed_stream(name)  # an embedded one, whose readers are told
        except Exception:  # noqa: BLE001  (an error of ours: what was served goes on)
            _log.exception("%s", archive.uri)

    def _changed_stream(self, name: StreamName) -> None:
        for each in [each for each in self._changes if each.startswith(f"{name}/")]:
            self.changed(each)

    def _begin_looking(self, name: str, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin to look at a stream or a segment unless the last look is still under way: it delays no other's."""
        if name not in self._under_way:
            self._under_way[name] = task = asyncio.create_task(look())
            task.add_done_callback(lambda _: self._under_way.pop(name, None))

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS if self._live is None else LOOK_SECONDS)
            for name, change in list(self._changes.items()):
                if self._live is not None or f"/{PREFIX}" in name:
                    self._begin_looking(name, partial(self._look_again, name, change))

    async def _look_again(self, name: str, change: Change) -> None:
        """Wake who waits at the end of a segment that others have changed: one look for all who wait."""
        with suppress(Exception):  # who waits asks for itself, and is told
            if await self.info(name, threads=self._poll_threads) == change.seen:
                return
        self.changed(name)

    async def close(self) -> None:
        """Take no more requests, finish answers within `STOP_SECONDS`, and close all connections."""
        self.stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                while any(one.is_answering for one in self._connections.values()):  # noqa: ASYNC110  (sockets', too)
                    await asyncio.sleep(0.01)
        tasks = [*self._connections, *self._refreshing, *self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for threads in (self._threads, self._state_threads, self._poll_threads):
            threads.shutdown(wait=False, cancel_futures=True)
