"""Segment lookups: which segment store holds a segment, its offsets, and its truncation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from streamstore.errors import AccessDenied, InvalidCut, NoSuchSegment, StreamStoreError, WireError
from streamstore.model import SegmentId, SegmentInfo, StreamName
from streamstore.pravega import wire
from streamstore.pravega.codec import Command, encode
from streamstore.pravega.connection import Connection, ConnectionLost, Endpoint
from streamstore.pravega.controller import Controller
from streamstore.pravega.patience import Patience
from streamstore.pravega.pool import ConnectionPool
from streamstore.pravega.refusals import TokenRefused, refusal
from streamstore.pravega.settings import PravegaSettings
from streamstore.pravega.tokens import DelegationTokens

__all__ = ["LOST", "SegmentStores"]

BATCH = 500
"""Requests that are sent at once on one connection."""

ENDPOINTS_KEPT = 4096

LOST = "a Pravega segment store does not answer"


class SegmentStores:
    """The cluster's segment stores: connections to them, and the requests that are no reads or appends.

    Usable from all threads.

    Args:
        settings: how to connect.
        controller: knows which segment store holds what.
    """

    def __init__(self, settings: PravegaSettings, controller: Controller) -> None:
        self.settings = settings
        self.controller = controller
        self.tokens = DelegationTokens(self._new_token)
        self._endpoints: dict[tuple[StreamName, SegmentId], Endpoint] = {}
        self.pool = ConnectionPool(tls=settings.tls_context(), timeout=settings.timeout)

    def close(self) -> None:
        """Close the idle connections."""
        self.pool.close()

    def endpoint(self, stream: StreamName, segment: SegmentId) -> Endpoint:
        """The segment store that holds a segment: what the controller said last, until `moved` is called."""
        known = self._endpoints.get((stream, segment))
        if known is None:
            known = self.controller.endpoint(stream, segment)
            if len(self._endpoints) >= ENDPOINTS_KEPT:
                self._endpoints.clear()
            self._endpoints[stream, segment] = known
        return known

    def moved(self, stream: StreamName, segment: SegmentId) -> None:
        """Ask the controller again where a segment is: it could not be had where it was."""
        self._endpoints.pop((stream, segment), None)

    def name(self, stream: StreamName, segment: SegmentId) -> str:
        """Return a segment's full name, for messages."""
        return f"{self.settings.uri}/{segment.in_stream(stream)}"

    def infos(self, stream: StreamName, segments: Sequence[SegmentId], part: str = "") -> list[SegmentInfo]:
        """The segments' offsets, in the order asked; those of the parts beside them if ``part`` is given.

        Raises:
            NoSuchSegment: a segment never existed or was truncated.
        """
        found = self.infos_if_there(stream, segments, part)
        for segment in segments:
            if found[segment] is None:
                raise self.gone(stream, segment)
        return [info for info in (found[segment] for segment in segments) if info is not None]

    def infos_if_there(
        self, stream: StreamName, segments: Sequence[SegmentId], part: str = ""
    ) -> Mapping[SegmentId, SegmentInfo | None]:
        """The segments' offsets, None for those that are not there."""

        def request(number: int, segment: SegmentId, token: str) -> Command:
            return wire.GetStreamSegmentInfo(number, segment.in_stream(stream) + part, token)

        found: dict[SegmentId, SegmentInfo | None] = {}
        for segment, answer in self.ask_all(stream, segments, request, write=False):
            if isinstance(answer, wire.StreamSegmentInfo):
                there = answer.exists and not answer.deleted
                info = SegmentInfo(segment, answer.start_offset, answer.write_offset, answer.sealed)
                found[segment] = info if there else None
            elif isinstance(answer, wire.NoSuchSegment):
                found[segment] = None
            else:
                raise refusal(answer, self.name(stream, segment))
        return found

    def truncate(self, stream: StreamName, segment: SegmentId, offset: int) -> None:
        """Move one segment's start offset; one that is there or beyond already stays.

        Raises:
            InvalidCut: the offset lies beyond the write offset.
        """

        def request(number: int, segment: SegmentId, token: str) -> Command:
            return wire.TruncateSegment(number, segment.in_stream(stream), offset, token)

        for _, answer in self.ask_all(stream, [segment], request, write=True):
            if isinstance(answer, wire.SegmentIsTruncated):
                # the answer to every offset that is out of bounds, below or above
                if offset > self.infos(stream, [segment])[0].write_offset:
                    raise InvalidCut(f"offset {offset} is beyond the segment's end", where=self.name(stream, segment))
            elif isinstance(answer, wire.NoSuchSegment):
                raise self.gone(stream, segment)
            elif not isinstance(answer, wire.SegmentTruncated):
                raise refusal(answer, self.name(stream, segment))

    @contextmanager
    def borrowed(self, endpoint: Endpoint) -> Iterator[Connection]:
        """Borrow a connection, which returns to the pool unless the block raises."""
        connection = self.pool.take(endpoint)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self.pool.give(connection)

    def ask_all(
        self,
        stream: StreamName,
        segments: Sequence[SegmentId],
        request: Callable[[int, SegmentId, str], Command],
        *,
        write: bool,
    ) -> Iterator[tuple[SegmentId, Command]]:
        """One request for each segment, many at once; answers in no order.

        All are sent to the segment store that holds the first of them; those that live elsewhere are sent on to where
        the next of them lives, and so on: as many rounds as there are segment stores.
        """
        patience = Patience(self.settings.timeout)
        todo = list(dict.fromkeys(segments))
        renewed = False
        while todo:
            endpoint = self.endpoint(stream, todo[0])
            token = self.tokens.get(stream, write=write)
            first, left = todo[0], []
            try:
                with self.borrowed(endpoint) as connection:
                    for start in range(0, len(todo), BATCH):
                        for segment, answer in _exchange(connection, todo[start : start + BATCH], token, request):
                            if isinstance(answer, wire.WrongHost):
                                left.append(segment)
                            elif isinstance(answer, wire.AuthTokenCheckFailed):
                                raise TokenRefused  # noqa: TRY301  (leaves the loops; nothing was yielded for it)
                            else:
                                yield segment, answer
            except ConnectionLost as lost:
                self.moved(stream, first)
                patience.pause(f"{LOST} ({lost})", str(endpoint))
                continue
            except TokenRefused:
                self.tokens.forget(stream, token)
                if renewed:
                    raise self.denied(stream) from None
                renewed = True
                continue
            if first in left:
                self.moved(stream, first)
                patience.pause("no Pravega segment store holds the segment", self.name(stream, first))
            todo = left

    def gone(self, stream: StreamName, segment: SegmentId) -> StreamStoreError:
        """The error for a segment that is not there: its own, its stream's or its scope's."""
        if self.controller.stream_exists(stream):
            return NoSuchSegment("no such segment", where=self.name(stream, segment))
        return self.controller.missing(stream)

    def denied(self, stream: StreamName) -> AccessDenied:
        """The error for a token that is refused although it is new."""
        return AccessDenied(
            "a segment store rejected the controller's token",
            where=f"{self.settings.uri}/{stream}",
            todo="Check that controller and segment stores have the same token signing key.",
        )

    def _new_token(self, stream: StreamName, write: bool) -> str:
        return self.controller.delegation_token(stream, write=write) if self.settings.username else ""


def _exchange(
    connection: Connection,
    segments: Sequence[SegmentId],
    token: str,
    request: Callable[[int, SegmentId, str], Command],
) -> list[tuple[SegmentId, Command]]:
    asked = {connection.request_id(): segment for segment in segments}
    connection.send(b"".join(encode(request(number, segment, token)) for number, segment in asked.items()))
    answers = []
    while asked:
        answer = connection.receive()
        number = getattr(answer, "request_id", None)
        if number not in asked:
            raise WireError(f"an unexpected reply ({answer})", where=str(connection.endpoint))
        answers.append((asked.pop(number), answer))
    return answers
