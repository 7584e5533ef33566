"""Serves streams of the embedded store to Pravega clients: a cluster to test programs against, in their process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streamvault.serving.cache import LARGEST_ANSWER, LEAST_CACHE, BlockCache
from streamvault.serving.server import listening
from streamvault.streamstore.cuts import segments_between
from streamvault.streamstore.errors import NoSuchSegment
from streamvault.streamstore.framing import frame_many
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Scaling, SegmentId, SegmentInfo, StreamConfiguration, StreamDescription
from streamvault.streamstore.model import StreamName as Name
from streamvault.streamstore.routing import SegmentRouter
from streamvault.streamstore.store import StreamStore

LOOK_SECONDS = 0.02
"""How often to look for what a test has written, for readers that wait."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """A `ServedMoment`."""

    described: StreamDescription
    infos: Mapping[SegmentId, SegmentInfo]

    def info(self, segment: SegmentId) -> SegmentInfo:
        try:
            return self.infos[segment]
        except KeyError:
            where = segment.in_stream(self.described.name)
            raise NoSuchSegment("the stream does not have the segment", where=where) from None

    def check_end(self, _: SegmentId) -> None:
        """Streams of the embedded store keep their ends."""


class _Stream:
    """A `Served` stream; nothing of it is kept in memory."""

    def __init__(self, store: StreamStore, name: Name) -> None:
        self._store, self.name, self.uri = store, name, f"{store.uri}/{name}"
        self._seen: _Moment | None = None

    @property
    def now(self) -> _Moment:
        described = self._store.describe(self.name)
        segments = list(segments_between(described, described.head, described.tail))
        return _Moment(described, {one.segment: one for one in self._store.segment_info(self.name, segments)})

    async def read_block(self, now: _Moment, segment: SegmentId, offset: int, _: object) -> memoryview:
        end = min(now.info(segment).write_offset, offset + LARGEST_ANSWER)
        return memoryview(self._store.read_bytes(self.name, segment, offset, end))

    def renewed(self, before: _Moment | None = None) -> bool:
        return self.now != before

    def refresh(self) -> bool:
        before, self._seen = self._seen, self.now
        return before != self._seen


class _Streams(Mapping[Name, _Stream]):
    """The streams of a store, as they come and go."""

    def __init__(self, store: StreamStore) -> None:
        self._store, self._known = store, dict[Name, _Stream]()

    def __getitem__(self, name: Name) -> _Stream:
        if not self._store.exists(name):
            raise KeyError(name)
        return self._known.setdefault(name, _Stream(self._store, name))

    def __iter__(self) -> Iterator[Name]:
        return (name for scope in self._store.list_scopes() for name in self._store.list_streams(scope))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class EmbeddedPravega:
    """A server that answers as a Pravega cluster to clients that read.

    Streams are made and written here, or through `store`; clients read them, and have reader groups. A client's appends
    to a stream, and its calls that change one, are refused.

    Attributes:
        uri: the controller, ``pravega://127.0.0.1:PORT``, as Streamvault takes it.
        store: the embedded store, which can also scale, truncate, seal and delete streams.
    """

    uri: str
    store: StreamStore

    @property
    def controller(self) -> str:
        """The controller as Java's client takes it, ``tcp://127.0.0.1:PORT``."""
        return self.uri.replace("pravega://", "tcp://")

    def create(self, stream: str, segments: int = 1) -> None:
        """Create a stream, ``SCOPE/STREAM``, and its scope.

        Raises:
            InvalidName: the name is not valid.
            StreamExists: there is one.
        """
        configuration = StreamConfiguration(scaling=Scaling(min_segments=segments))
        self.store.create_stream_and_scope(Name.parse(stream), configuration)

    def write(self, stream: str, events: Iterable[bytes], key: str = "") -> None:
        """Append events, in order, to the segment of a routing key.

        Raises:
            NoSuchStream: there is none.
            StreamSealed: it is sealed.
        """
        name = Name.parse(stream)
        router = SegmentRouter(self.store.describe(name).epochs[-1].segments)
        with self.store.appender(name, router.segments[router.index_of(key)]) as appender:
            for block in frame_many(events):
                appender.append(block)
            appender.flush()


@contextmanager
def embedded_pravega(folder: Path) -> Iterator[EmbeddedPravega]:
    """Serve the streams of an embedded store at a free port of 127.0.0.1 while the block runs.

    Args:
        folder: where they are kept, absolute; it need not exist.
    """
    cache = BlockCache(LEAST_CACHE)
    try:
        with LocalStore(folder) as store, listening(_Streams(store), cache, every=LOOK_SECONDS) as server:
            yield EmbeddedPravega(server.uri, store)
    finally:
        cache.close()
