"""Which segment store holds a segment, the tokens that it asks for, a segment's offsets, and its truncation."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic_core import from_json

from streamvault.common.underway import PRAVEGA
from streamvault.streamstore.errors import AccessDenied, InvalidCut, NoSuchSegment, StreamStoreError, WireError
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamName
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.codec import WireCommand, encode
from streamvault.streamstore.pravega.connection import Connection, ConnectionLost, ConnectionPool, Endpoint
from streamvault.streamstore.pravega.controller import Controller
from streamvault.streamstore.pravega.patience import Patience
from streamvault.streamstore.pravega.refusals import TokenRefused, refusal
from streamvault.streamstore.pravega.settings import PravegaSettings

BATCH = 500
"""Requests that are sent at once on one connection."""

ENDPOINTS_KEPT = 4096

DEFAULT_LIFETIME = 600.0
"""Seconds for which a token holds that does not say so."""

RENEW_AFTER = 0.8
"""A token is renewed when this share of its lifetime is over."""

LOST = "a Pravega segment store does not answer"


@dataclass(frozen=True, slots=True)
class SegmentName:
    """A segment as the segment stores name it.

    Attributes:
        stream: its stream.
        id: the segment.
        part: what a segment beside the segment, which lives where the segment does, adds to its name.
    """

    stream: StreamName
    id: SegmentId
    part: str = ""

    def __str__(self) -> str:
        return self.id.in_stream(self.stream) + self.part


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    renew_at: float


Request = Callable[[int, SegmentName, str], WireCommand]
"""Makes the command for a request id, a segment and a token."""


class DelegationTokens:
    """Tokens from the controller, cached until they must be renewed; ``ask`` gets a new one. Thread-safe."""

    def __init__(self, ask: Callable[[StreamName, bool], str]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._tokens: dict[tuple[StreamName, bool], _Token] = {}

    def get(self, stream: StreamName, *, write: bool) -> str:
        """A token that holds for a while; empty if the cluster asks for none."""
        with self._lock:
            token = self._tokens.get((stream, write))
        if token is not None and time.monotonic() < token.renew_at:
            return token.text
        asked_at = time.monotonic()
        text = self._ask(stream, write)
        token = _Token(text, asked_at + RENEW_AFTER * lifetime(text))
        with self._lock:
            self._tokens[stream, write] = token
        return text

    def forget(self, stream: StreamName, refused: str) -> None:
        """Ask anew at the next `get`: a segment store refused this token."""
        with self._lock:
            for write in (False, True):
                token = self._tokens.get((stream, write))
                if token is not None and token.text == refused:
                    del self._tokens[stream, write]


def lifetime(token: str) -> float:
    """Return a token's lifetime (seconds).

    A token is a JSON web token; only its own times are compared, so this machine's clock may be wrong.
    """
    try:
        body = token.split(".")[1]
        claims = from_json(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        held = float(claims["exp"]) - float(claims["iat"])
    except (IndexError, KeyError, OverflowError, TypeError, ValueError):
        return DEFAULT_LIFETIME
    return max(0.0, held)  # 0.0 also if it is no number


class SegmentStores:
    """The cluster's segment stores: connections to them, and the requests that are no reads or appends.

    Usable from all threads.
    """

    def __init__(self, settings: PravegaSettings, controller: Controller) -> None:
        self.settings = settings
        self.controller = controller
        self.tokens = DelegationTokens(self._new_token)
        self._endpoints: dict[tuple[StreamName, SegmentId], Endpoint] = {}  # parts live where their segment does
        self.pool = ConnectionPool(tls=settings.tls_context(), timeout=settings.timeout)

    def close(self) -> None:
        """Close the idle connections."""
        self.pool.close()

    def endpoint(self, name: SegmentName) -> Endpoint:
        """The segment store that holds a segment: what the controller said last, until `moved` is called."""
        known = self._endpoints.get((name.stream, name.id))
        if known is None:
            known = self.controller.endpoint(name.stream, name.id)
            if len(self._endpoints) >= ENDPOINTS_KEPT:
                self._endpoints.clear()
            self._endpoints[name.stream, name.id] = known
        return known

    def moved(self, name: SegmentName) -> None:
        """Ask the controller again where a segment is: it could not be had where it was."""
        self._endpoints.pop((name.stream, name.id), None)

    def where(self, name: SegmentName) -> str:
        """Return a segment's name for messages."""
        return f"{self.settings.uri}/{name}"

    def infos(self, stream: StreamName, segments: Sequence[SegmentId], part: str = "") -> list[SegmentInfo]:
        """The segments' offsets, in the order asked; those of the parts beside them if ``part`` is given.

        Raises:
            NoSuchSegment: a segment never existed or was truncated.
        """
        found = self.infos_if_there(stream, segments, part)
        for segment in segments:
            if found[segment] is None:
                raise self.gone(SegmentName(stream, segment))
        return [info for info in (found[segment] for segment in segments) if info is not None]

    def infos_if_there(
        self, stream: StreamName, segments: Sequence[SegmentId], part: str = ""
    ) -> Mapping[SegmentId, SegmentInfo | None]:
        """The segments' offsets, None for those that are not there."""

        def request(number: int, name: SegmentName, token: str) -> WireCommand:
            return wire.GetStreamSegmentInfo(number, str(name), token)

        found: dict[SegmentId, SegmentInfo | None] = {}
        for name, answer in self.ask_all([SegmentName(stream, one, part) for one in segments], request, write=False):
            if isinstance(answer, wire.StreamSegmentInfo):
                there = answer.exists and not answer.deleted
                info = SegmentInfo(name.id, answer.start_offset, answer.write_offset, answer.sealed)
                found[name.id] = info if there else None
            elif isinstance(answer, wire.NoSuchSegment):
                found[name.id] = None
            else:
                raise refusal(answer, self.where(name))
        return found

    def truncate(self, stream: StreamName, segment: SegmentId, offset: int) -> None:
        """Move one segment's start offset; one that is there or beyond already stays.

        Raises:
            InvalidCut: the offset lies beyond the write offset.
        """

        def request(number: int, name: SegmentName, token: str) -> WireCommand:
            return wire.TruncateSegment(number, str(name), offset, token)

        for name, answer in self.ask_all([SegmentName(stream, segment)], request, write=True):
            if isinstance(answer, wire.SegmentIsTruncated):
                # the answer to every offset that is out of bounds, below or above
                if offset > self.infos(stream, [segment])[0].write_offset:
                    raise InvalidCut(f"offset {offset} is beyond the segment's end", where=self.where(name))
            elif isinstance(answer, wire.NoSuchSegment):
                raise self.gone(name)
            elif not isinstance(answer, wire.SegmentTruncated):
                raise refusal(answer, self.where(name))

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
        self, segments: Sequence[SegmentName], request: Request, *, write: bool
    ) -> Iterator[tuple[SegmentName, WireCommand]]:
        """One request for each of a stream's segments, many at once; answers in no order.

        All are sent to the segment store that holds the first of them; those that live elsewhere are sent on to where
        the next of them lives, and so on: as many rounds as there are segment stores.
        """
        with PRAVEGA:
            yield from self._ask_all(segments, request, write=write)

    def _ask_all(
        self, segments: Sequence[SegmentName], request: Request, *, write: bool
    ) -> Iterator[tuple[SegmentName, WireCommand]]:
        patience = Patience(self.settings.timeout)
        todo = list(dict.fromkeys(segments))
        renewed = False
        while todo:
            first, left = todo[0], []
            endpoint = self.endpoint(first)
            token = self.tokens.get(first.stream, write=write)
            try:
                with self.borrowed(endpoint) as connection:
                    for start in range(0, len(todo), BATCH):
                        for name, answer in _exchange(connection, todo[start : start + BATCH], token, request):
                            if isinstance(answer, wire.WrongHost):
                                left.append(name)
                            elif isinstance(answer, wire.AuthTokenCheckFailed):
                                raise TokenRefused  # noqa: TRY301  (leaves the loops; nothing was yielded for it)
                            else:
                                yield name, answer
            except ConnectionLost as lost:
                self.moved(first)
                patience.pause(f"{LOST} ({lost})", str(endpoint))
                continue
            except TokenRefused:
                self.tokens.forget(first.stream, token)
                if renewed:
                    raise self.denied(first.stream) from None
                renewed = True
                continue
            if first in left:
                self.moved(first)
                patience.pause("no Pravega segment store holds the segment", self.where(first))
            todo = left

    def gone(self, name: SegmentName) -> StreamStoreError:
        """The error for a segment that is not there: its own, its stream's or its scope's."""
        if self.controller.stream_exists(name.stream):
            return NoSuchSegment("no such segment", where=f"{self.settings.uri}/{name.id.in_stream(name.stream)}")
        return self.controller.missing(name.stream)

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
    connection: Connection, segments: Sequence[SegmentName], token: str, request: Request
) -> list[tuple[SegmentName, WireCommand]]:
    asked = {connection.request_id(): segment for segment in segments}
    connection.send(b"".join(encode(request(number, segment, token)) for number, segment in asked.items()))
    answers = []
    while asked:
        answer = connection.receive()
        number = getattr(answer, "request_id", None)
        if number not in asked:
            raise WireError(f"an unexpected reply ({answer})", where=str(connection.endpoint))
        answers.append((asked.pop(number), answer))
    PRAVEGA.answered()
    return answers
