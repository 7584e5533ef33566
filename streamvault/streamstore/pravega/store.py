"""A real Pravega cluster as a `StreamStore`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from streamvault.streamstore.appender import SegmentAppender
from streamvault.streamstore.errors import InvalidName, NoSuchScope, RequestFailed, StreamExists
from streamvault.streamstore.model import (
    Epoch,
    KeyRange,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.own import is_own
from streamvault.streamstore.pravega import streams
from streamvault.streamstore.pravega.appender import PravegaAppender
from streamvault.streamstore.pravega.controller import Controller
from streamvault.streamstore.pravega.patience import pauses
from streamvault.streamstore.pravega.reader import BlockReader
from streamvault.streamstore.pravega.segments import SegmentStores
from streamvault.streamstore.pravega.settings import PravegaSettings
from streamvault.streamstore.pravega.transactions import PravegaTransactions
from streamvault.streamstore.store import StreamStore

_log = logging.getLogger(__name__)

LISTED_AT_ONCE = 100
"""Number of streams whose configurations are requested at once."""

CREATE_SECONDS = 10.0
"""How long to wait until a stream of the same name is deleted, if the controller takes its scope for missing."""


class PravegaStore(StreamStore):
    """Streams on a Pravega cluster. Connects when it is used first."""

    def __init__(self, settings: PravegaSettings) -> None:
        self.uri = settings.uri
        self._controller = Controller(settings)
        self._stores = SegmentStores(settings, self._controller)

    def list_scopes(self) -> Iterator[str]:
        """Every user's scope, sorted."""
        yield from sorted(scope for scope in self._controller.scopes() if not scope.startswith("_"))

    def list_streams(self, scope: str, *, own: bool = False) -> Iterator[StreamName]:
        """Every user's stream of a scope, sorted; with ``own`` also Streamvault's."""
        names = list(self._names(scope))
        for at in range(0, len(names), LISTED_AT_ONCE):
            some = names[at : at + LISTED_AT_ONCE]
            configurations = [None for _ in some] if own else self._controller.configurations(some)
            for name, configuration in zip(some, configurations, strict=True):
                if configuration is None or not is_own(configuration):
                    yield name

    def _names(self, scope: str) -> Iterator[StreamName]:
        for name in sorted(name for name in self._controller.streams(scope) if not name.startswith("_")):
            try:
                yield StreamName(scope, name)
            except InvalidName as error:
                # Pravega allows names such as "..", which are not valid folders or keys
                _log.warning("skipping a stream: %s", error)

    def describe(self, stream: StreamName) -> StreamDescription:
        """Configuration, epochs, head, tail and whether it is sealed."""
        return streams.describe(self._controller, self._stores, stream)

    def exists(self, stream: StreamName) -> bool:
        """See `StreamStore.exists`."""
        return self._controller.stream_exists(stream)

    def segment_info(self, stream: StreamName, segments: Sequence[SegmentId]) -> list[SegmentInfo]:
        """The segments' offsets, in the order asked."""
        return self._stores.infos(stream, segments)

    def read(self, stream: StreamName, segment: SegmentId, start: int, end: int) -> Iterator[memoryview]:
        """The bytes of a segment's range as blocks of 1 MiB at most; see `StreamStore.read`."""
        return BlockReader(self._stores, stream, segment, start, end).blocks()

    def create_scope(self, scope: str) -> bool:
        """Make a scope; False if it was there."""
        StreamName(scope, "any")  # validates the name
        return self._controller.create_scope(scope)

    def create_stream(self, stream: StreamName, configuration: StreamConfiguration) -> None:
        """Make a stream of equal segments."""
        for _ in pauses(CREATE_SECONDS):
            try:
                self._controller.create_stream(stream, configuration)
            except RequestFailed:
                # of several concurrent callers one creates it; some of the others only get FAILURE
                if self.exists(stream):
                    raise StreamExists("the stream exists", where=f"{self.uri}/{stream}") from None
                raise
            except NoSuchScope:
                # the controller says so, too, if a stream of that name is being deleted
                if isinstance(self._controller.missing(stream), NoSuchScope):
                    raise
            else:
                return
        raise StreamExists("a stream of that name is being deleted", where=f"{self.uri}/{stream}", todo="Try again.")

    def update_stream(
        self, stream: StreamName, configuration: StreamConfiguration, *, was: StreamConfiguration | None = None
    ) -> None:
        """Replace policies and tags.

        A fixed number of segments other than the open ones makes the controller scale the stream to that number.
        """
        streams.update(self._controller, stream, configuration, was)

    def scale(self, stream: StreamName, seal: Sequence[SegmentId], ranges: Sequence[KeyRange]) -> Epoch:
        """Seal segments and open others in their place; see `StreamStore.scale`."""
        return streams.scale(self._controller, stream, seal, ranges)

    def appender(self, stream: StreamName, segment: SegmentId, *, in_flight: int = 4) -> SegmentAppender:
        """Open a segment for appending at its write offset."""
        return PravegaAppender(self._stores, stream, segment, in_flight=in_flight)

    def truncate_segment(self, stream: StreamName, segment: SegmentId, offset: int) -> None:
        """Drop a segment's bytes below an offset without moving the stream's head."""
        self._stores.truncate(stream, segment, offset)

    def truncate(self, cut: StreamCut) -> None:
        """Move the stream's head to a cut."""
        streams.truncate(self._controller, self._stores, cut)

    def seal(self, stream: StreamName, *, first: Epoch | None = None) -> None:
        """Seal the stream permanently."""
        streams.seal(self._controller, stream, first)

    def delete(self, stream: StreamName, *, first: Epoch | None = None) -> None:
        """Seal and delete the stream."""
        streams.delete(self._controller, stream, first)

    def delete_scope(self, scope: str) -> None:
        """Delete an empty scope."""
        streams.insist(lambda: self._controller.delete_scope(scope))

    def transactions(self) -> PravegaTransactions:
        """Pravega's transactions; usable as long as the store is open."""
        return PravegaTransactions(self._controller, self._stores)

    def close(self) -> None:
        """Close all connections."""
        self._stores.close()
        self._controller.close()
