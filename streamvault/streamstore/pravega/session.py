"""Common base of reading and appending: a connection to a segment's store, renewed when it is lost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from streamvault.common.underway import PRAVEGA
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.codec import WireCommand
from streamvault.streamstore.pravega.connection import Connection, ConnectionLost
from streamvault.streamstore.pravega.patience import Patience
from streamvault.streamstore.pravega.refusals import InDoubt, Moved, TokenRefused, refusal
from streamvault.streamstore.pravega.segments import LOST, SegmentName, SegmentStores


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
            self._repeat(step)

    def _repeat(self, step: Callable[[Connection], None]) -> None:
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
