"""Which segment store holds a segment, a connection to it that is renewed when it is lost, and its errors."""

from __future__ import annotations

import base64
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from streamvault.common.errors import Problem
from streamvault.common.progress import PRAVEGA
from streamvault.streamstore.errors import (
    AccessDenied,
    InvalidCut,
    NoSuchSegment,
    OffsetConflict,
    RequestFailed,
    SegmentSealed,
    SegmentTruncated,
    StreamStoreError,
    WireError,
)
from streamvault.streamstore.model import SegmentId, SegmentInfo, StreamName
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.calls import Patience
from streamvault.streamstore.pravega.connection import (
    Connection,
    ConnectionLost,
    ConnectionPool,
    Endpoint,
    PravegaSettings,
)
from streamvault.streamstore.pravega.controller import Controller
from streamvault.streamstore.pravega.wire import WireCommand, encode


class Moved(Exception):
    """Another segment store holds the segment now."""


class InDoubt(Exception):
    """A block was rejected at its offset: it was written before a connection was lost, or there is another writer."""


class TokenRefused(Exception):
    """The delegation token was rejected or has expired."""


def refusal(answer: WireCommand, where: str) -> StreamStoreError:
    """The error that a segment store's unexpected answer stands for."""
    meaning = _MEANINGS.get(type(answer))
    if meaning is None:
        return WireError(f"the segment store sent an unexpected {type(answer).__name__}", where=where)
    return meaning(answer, where)


def _foreign(_: Any, where: str) -> StreamStoreError:
    return OffsetConflict("another writer appended to the segment", where=where)


def _because(trace: str) -> str:
    """Return the reason that a server gave in the place of a stack trace; empty if there is none."""
    first = trace.partition("\n")[0].strip()[:200]
    return f" ({first})" if first else ""


def truncated(begins: wire.SegmentIsTruncated | SegmentInfo, where: str) -> SegmentTruncated:
    """The error for a segment that begins later than at an offset that was asked for."""
    start = begins.start_offset
    return SegmentTruncated(f"the segment was truncated and now begins at {start}", where=where, start_offset=start)


_MEANINGS: Mapping[type[WireCommand], Callable[[Any, str], StreamStoreError]] = {
    wire.NoSuchSegment: lambda _, where: NoSuchSegment("no such segment", where=where),
    wire.SegmentIsSealed: lambda _, where: SegmentSealed("the segment is sealed", where=where),
    wire.SegmentIsTruncated: truncated,
    wire.ConditionalCheckFailed: _foreign,
    wire.InvalidEventNumber: _foreign,
    wire.SegmentAlreadyExists: lambda _, where: RequestFailed("the segment exists", where=where),
    wire.OperationUnsupported: lambda answer, where: RequestFailed(
        f"the segment store does not support {answer.operation}{_because(answer.trace)}", where=where
    ),
    wire.ErrorMessage: lambda answer, where: RequestFailed(
        f"the segment store failed ({answer.message[:200]})", where=where
    ),
}


def answer_to(error: Problem, request_id: int, segment: str, offset: int = 0) -> WireCommand:
    """Return what a segment store answers a request that failed: the reverse of `refusal`.

    Args:
        error: why it failed.
        request_id: the request's.
        segment: its segment, by its full name.
        offset: where it was to read or write.
    """
    if isinstance(error, NoSuchSegment):  # readers go on behind it, so nothing else may be answered by it
        return wire.NoSuchSegment(request_id, segment, "", offset)
    if isinstance(error, SegmentTruncated):
        return wire.SegmentIsTruncated(request_id, segment, error.start_offset, "", offset)
    if isinstance(error, SegmentSealed):
        return wire.SegmentIsSealed(request_id, segment, "", offset)
    return wire.ErrorMessage(request_id, segment, str(error), -1)


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
        found: dict[SegmentId, SegmentInfo | None] = {}
        names = [SegmentName(stream, one, part) for one in segments]
        for name, answer in self.ask_all(names, _info_request, write=False):
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

    def token_refusal(self, name: SegmentName, token: str) -> int | None:
        """Ask for a segment with somebody's token; return why it is refused, as Pravega numbers that; None if not."""
        [(_, answer)] = self.ask_all([name], _info_request, write=False, token=token)
        if isinstance(answer, wire.AuthTokenCheckFailed):
            return answer.error_code
        if isinstance(answer, wire.StreamSegmentInfo | wire.NoSuchSegment):  # it looks only after the token holds
            return None
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
        self, segments: Sequence[SegmentName], request: Request, *, write: bool, token: str | None = None
    ) -> Iterator[tuple[SegmentName, WireCommand]]:
        """One request for each of a stream's segments, many at once; answers in no order.

        All are sent to the segment store that holds the first of them; those that live elsewhere are sent on to where
        the next of them lives, and so on: as many rounds as there are segment stores.

        With ``token``, the requests have that one, which is not renewed: that it is refused is an answer.
        """
        with PRAVEGA:
            patience = Patience(self.settings.timeout)
            todo = list(dict.fromkeys(segments))
            renewed = False
            while todo:
                first, left = todo[0], []
                endpoint = self.endpoint(first)
                held = self.tokens.get(first.stream, write=write) if token is None else token
                try:
                    with self.borrowed(endpoint) as connection:
                        for name, answer in _exchange(connection, todo, held, request):
                            if isinstance(answer, wire.WrongHost):
                                left.append(name)
                            elif token is None and isinstance(answer, wire.AuthTokenCheckFailed):
                                raise TokenRefused  # noqa: TRY301  (leaves the loop; nothing was yielded for it)
                            else:
                                yield name, answer
                except ConnectionLost as lost:
                    self.moved(first)
                    patience.pause(f"{LOST} ({lost})", str(endpoint))
                    continue
                except TokenRefused:
                    self.tokens.forget(first.stream, held)
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


def _info_request(number: int, name: SegmentName, token: str) -> WireCommand:
    return wire.GetStreamSegmentInfo(number, str(name), token)


def _exchange(
    connection: Connection, segments: Sequence[SegmentName], token: str, request: Request
) -> Iterator[tuple[SegmentName, WireCommand]]:
    for start in range(0, len(segments), BATCH):
        asked = {connection.request_id(): segment for segment in segments[start : start + BATCH]}
        connection.send(b"".join(encode(request(number, segment, token)) for number, segment in asked.items()))
        answers = []
        while asked:
            answer = connection.receive()
            number = getattr(answer, "request_id", None)
            if number not in asked:
                raise WireError(f"an unexpected reply ({answer})", where=str(connection.endpoint))
            answers.append((asked.pop(number), answer))
        PRAVEGA.answered()
        yield from answers


class SegmentSession(ABC):
    """Talks to whichever segment store holds a segment. Used by one thread at a time.

    Args:
        stores: the cluster's segment stores.
        segment: the segment.
        write: whether to write, which needs a dedicated connection and a write token.
    """

    def __init__(self, stores: SegmentStores, segment: SegmentName, *, write: bool) -> None:
        self._stores = stores
        self._segment = segment
        self._write = write
        self._name = str(segment)
        self._where = stores.where(segment)
        self._address = ""
        self._connection: Connection | None = None
        self._patience = Patience(stores.settings.timeout)
        self._token = ""
        self._token_was_refused = False

    @abstractmethod
    def _resume(self, connection: Connection) -> None:
        """Start, or resume where the lost connection stopped."""

    def _persist(self, step: Callable[[Connection], None]) -> None:
        """Do a step, on a new connection if need be, until it succeeds.

        Raises:
            StreamStoreUnavailable: there was no progress for the settings' timeout.
            AccessDenied: a token that was just made is refused.
        """
        with PRAVEGA:
            while True:
                try:
                    self._attempt(step)
                except ConnectionLost as lost:
                    self._look_elsewhere()
                    self._patience.pause(f"{LOST} ({lost})", self._address)
                except InDoubt as doubt:
                    self._drop()
                    self._patience.pause(str(doubt), self._where)
                except Moved:
                    self._look_elsewhere()
                    self._patience.pause("no Pravega segment store holds the segment", self._where)
                except TokenRefused:
                    self._drop()
                    self._stores.tokens.forget(self._segment.stream, self._token)
                    if self._token_was_refused:
                        raise self._stores.denied(self._segment.stream) from None
                    self._token_was_refused = True
                else:
                    return

    def _progress(self) -> None:
        """Something came through: patience begins anew."""
        self._patience.progress()
        PRAVEGA.answered()
        self._token_was_refused = False

    def _new_token(self) -> str:
        self._token = self._stores.tokens.get(self._segment.stream, write=self._write)
        return self._token

    def _refused(self, answer: WireCommand) -> Exception:
        """Return the exception for an error reply."""
        if isinstance(answer, wire.WrongHost):
            return Moved()
        if isinstance(answer, wire.AuthTokenCheckFailed):
            return TokenRefused()
        if isinstance(answer, wire.NoSuchSegment):
            return self._stores.gone(self._segment)
        return refusal(answer, self._where)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _attempt(self, step: Callable[[Connection], None]) -> None:
        if self._connection is None:
            endpoint = self._stores.endpoint(self._segment)
            self._address = str(endpoint)
            self._connection = self._stores.pool.take(endpoint, fresh=self._write)
            self._resume(self._connection)
        step(self._connection)

    def _look_elsewhere(self) -> None:
        self._drop()
        self._stores.moved(self._segment)
