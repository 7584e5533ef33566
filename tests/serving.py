"""A server of archives in this process, our own client of it, and a client that says whatever it likes."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from streamvault.serving.archived import ServedArchive
from streamvault.serving.cache import LEAST_CACHE, BlockCache
from streamvault.serving.live import LiveAddress, LiveStream
from streamvault.serving.segments import SegmentServer
from streamvault.serving.server import listening
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.connection import Connection, Endpoint, PravegaSettings
from streamvault.streamstore.pravega.controller import Controller
from streamvault.streamstore.pravega.store import PravegaStore
from streamvault.streamstore.pravega.wire import WireCommand, encode
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream

NAME = StreamName("shop", "orders")


@dataclass
class Served:
    """A server of one archive.

    Attributes:
        uri: its controller.
        archive: what is served.
        segments: its segment store.
        store: our own client.
        endpoint: the address of the segment store.
    """

    uri: str
    archive: ServedArchive
    segments: SegmentServer
    store: StreamStore
    endpoint: Endpoint
    _open: list[Connection] = field(default_factory=list)

    def connect(self) -> Connection:
        """A connection on which both sides have said hello."""
        self._open.append(Connection(self.endpoint, timeout=20))
        return self._open[-1]

    def ask(self, command: WireCommand) -> WireCommand:
        """The answer to one command on a connection of its own."""
        connection = self.connect()
        connection.send(encode(command))
        return connection.receive()

    def plain(self) -> socket.socket:
        """A connection on which nothing was said."""
        return socket.create_connection((self.endpoint.host, self.endpoint.port), timeout=20)

    def greeted(self) -> socket.socket:
        """The same, after hello."""
        plain = self.plain()
        plain.sendall(encode(wire.Hello(wire.WIRE_VERSION, wire.OLDEST_WIRE_VERSION)))
        assert len(plain.recv(16, socket.MSG_WAITALL)) == 16
        return plain


@contextmanager
def serving(
    archive: str,
    *,
    generation: int | None = None,
    over: str = "",
    whole: bool = False,
    beside: Mapping[StreamName, ServedArchive] | None = None,
    **options: Any,
) -> Iterator[Served]:
    """Serve an archive, and if one is given, the live stream after it; others beside it are closed by the caller."""
    cache = BlockCache(LEAST_CACHE)
    found = ServedArchive(archive, cache, generation, whole=whole)
    try:
        with ExitStack() as stack:
            if over:
                address = LiveAddress.parse(over)
                behind = cast("PravegaStore", stack.enter_context(address.store.open()))
                options["live"] = LiveStream(address, behind, found, cache)
            server = stack.enter_context(listening({found.name: found, **(beside or {})}, cache, every=0.05, **options))
            address, _ = parse_stream(f"{server.uri}/{found.name}")
            with closing(Controller(PravegaSettings.from_environment(server.uri))) as controller:
                endpoint = controller.endpoint(found.name, min(found.now.infos))
            with address.open() as store:
                served = Served(server.uri, found, server.segments, store, endpoint)
                yield served
                for connection in served._open:
                    connection.close()
    finally:
        cache.close()
