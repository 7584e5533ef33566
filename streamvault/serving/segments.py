"""The segment store: which segment a name means, who waits for more of it, and how much clients may take at once."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from streamvault.common.errors import Damaged
from streamvault.manifests.archive import NoSuchArchive
from streamvault.serving.access import Access
from streamvault.serving.archived import ServedArchive
from streamvault.serving.cache import BlockCache
from streamvault.serving.connection import ClientConnection
from streamvault.serving.controller import MARKS
from streamvault.serving.groups import Groups, StateSegment
from streamvault.streamstore.errors import InvalidName, NoSuchSegment
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamName
from streamvault.streamstore.pravega.reader_groups import PREFIX

_log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

MOST_CONNECTIONS = 1000

THREADS = 8


class SegmentServer:
    """The segments of all streams that are served, and those of reader groups.

    Args:
        streams: what is served.
        groups: the reader groups.
        access: who may read.
        cache: the budget of memory.

    Attributes:
        access: see above.
        cache: see above.
        counts: what clients have asked for → how often.
        sent: bytes of segments that were sent.
        waiting: reads that wait.
        received: bytes of requests that are being received.
    """

    def __init__(
        self, streams: Mapping[StreamName, ServedArchive], groups: Groups, access: Access, cache: BlockCache
    ) -> None:
        self._streams, self._groups, self.access, self.cache = streams, groups, access, cache
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="look")
        self._changes: dict[str, asyncio.Event] = {}
        self._fetching = asyncio.Semaphore(2 * cache.fetches)
        self._refreshing: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()
        self.sent = self.waiting = self.received = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        if len(self._connections) >= MOST_CONNECTIONS:
            self.count("refused connection")
            _log.warning("a client's connection is closed: there are %d others", MOST_CONNECTIONS)
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (asyncio runs this as one)
        self._connections.add(task)
        try:
            await ClientConnection(self, reader, writer).run()
        except asyncio.CancelledError:
            pass  # by `close`; asyncio would log it with a traceback
        finally:
            self._connections.discard(task)

    def count(self, what: str) -> None:
        """Count a request."""
        self.counts[what] += 1

    async def in_thread(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call what waits for a store."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*args, **kwargs))

    def find(self, name: str) -> tuple[ServedArchive, SegmentId] | StateSegment | None:
        """Return a segment by its full name; None for the one of an empty stream of watermarks.

        Raises:
            NoSuchSegment: there is none.
        """
        scope, _, rest = name.partition("/")
        stream, _, text = rest.partition("/")
        try:
            segment = SegmentId.parse(text)
            if stream.startswith(PREFIX):
                return self._groups.segment(StreamName(scope, stream.removeprefix(PREFIX)), segment)
            if stream.startswith(MARKS) and StreamName(scope, stream.removeprefix(MARKS)) in self._streams:
                return None
            return self._streams[StreamName(scope, stream)], segment
        except (InvalidName, KeyError):
            raise NoSuchSegment("no such segment", where=name[:1000]) from None

    def info(self, name: str) -> SegmentInfo:
        """Return a segment's offsets; errors as for `find`."""
        found = self.find(name)
        if found is None:
            return SegmentInfo(SegmentId(0, 0), 0, 0, sealed=False)
        return found.info() if isinstance(found, StateSegment) else found[0].now.info(found[1])

    async def read(self, name: str, offset: int, length: int) -> bytes | memoryview:
        """Return bytes from an offset below a segment's end on; at least one, at most so many.

        Raises:
            Damaged: they are missing, or not those that were archived.
            Problem: any other reason.
        """
        found = self.find(name)
        if isinstance(found, StateSegment):
            return found.read(offset, length)
        if found is None:
            raise NoSuchSegment("no such segment", where=name)
        archive, segment = found
        while True:
            now = archive.now
            try:
                block = archive.held(now, segment, offset)
                if block is None:
                    async with self._fetching:  # else what is fetched piles up before it is sent
                        # many may wait for the block, so none of them may cancel it
                        block = await asyncio.shield(asyncio.wrap_future(archive.begin(now, segment, offset)))
            except (Damaged, NoSuchArchive):
                # missing for good only if what was read is still in force
                if not await self.in_thread(archive.renewed, now):
                    raise
                continue
            inside = now.inside(segment, offset)
            return block[inside : inside + length]

    def changed(self, name: str) -> None:
        """Wake who waits at the end of a segment."""
        if (event := self._changes.pop(name, None)) is not None:
            event.set()

    async def change(self, name: str) -> None:
        """Wait until there is something new at the end of a segment."""
        await self._changes.setdefault(name, asyncio.Event()).wait()

    def begin_refreshing(self, every: float) -> None:
        """Begin to look for new generations of the archives, every so many seconds."""
        self._refreshing = asyncio.create_task(self._refresh(every))

    async def _refresh(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            for name, archive in self._streams.items():
                try:
                    if await self.in_thread(archive.refresh):
                        for each in [each for each in self._changes if each.startswith(f"{name}/")]:
                            self.changed(each)
                except Exception:  # noqa: BLE001  (an error of ours: what was served goes on)
                    _log.exception("%s", archive.uri)

    async def close(self) -> None:
        """Close all connections."""
        tasks = [*self._connections, *([self._refreshing] if self._refreshing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
