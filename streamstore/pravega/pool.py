"""Open connections that wait for their next use, a few for each segment store."""

from __future__ import annotations

import ssl
import threading
from collections import defaultdict

from streamstore.errors import StreamStoreError
from streamstore.pravega.connection import Connection, Endpoint

__all__ = ["ConnectionPool"]

IDLE_PER_ENDPOINT = 4


class ConnectionPool:
    """Hands out connections, each to one user at a time. May be used from several threads.

    Args:
        tls: what secures the connections; None for plain TCP.
        timeout: seconds of silence after which a server counts as lost.
    """

    def __init__(self, *, tls: ssl.SSLContext | None, timeout: float) -> None:
        self._tls = tls
        self._timeout = timeout
        self._lock = threading.Lock()
        self._idle: defaultdict[Endpoint, list[Connection]] = defaultdict(list)
        self._closed = False

    def take(self, endpoint: Endpoint, *, fresh: bool = False) -> Connection:
        """A connection for the caller alone, to be given back or closed.

        Args:
            endpoint: the segment store.
            fresh: a new one, for a use that changes the connection's state.

        Raises:
            ConnectionLost: the segment store can't be reached now.
        """
        while not fresh:
            with self._lock:
                waiting = self._idle[endpoint]
                connection = waiting.pop() if waiting else None
            if connection is None:
                break
            if connection.is_idle():
                return connection
            connection.close()
        if self._closed:
            raise StreamStoreError("the stream store is closed")
        return Connection(endpoint, tls=self._tls, timeout=self._timeout)

    def give(self, connection: Connection) -> None:
        """Take back a connection on which no answer is outstanding."""
        with self._lock:
            waiting = self._idle[connection.endpoint]
            if not self._closed and len(waiting) < IDLE_PER_ENDPOINT:
                waiting.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the idle connections; those in use are closed by their users."""
        with self._lock:
            self._closed = True
            connections = [connection for waiting in self._idle.values() for connection in waiting]
            self._idle.clear()
        for connection in connections:
            connection.close()
