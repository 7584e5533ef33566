"""Starts controller and segment store, and stops them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc

from streamvault.common.errors import Failed, Usage
from streamvault.serving.access import Access
from streamvault.serving.cache import BlockCache
from streamvault.serving.connection import LARGEST_REQUEST
from streamvault.serving.controller import Gate, ServedController
from streamvault.serving.live import LiveStream
from streamvault.serving.relay import RelayedController
from streamvault.serving.root import groups_in_memory
from streamvault.serving.segments import STOP_SECONDS, SegmentServer
from streamvault.serving.served import Served
from streamvault.serving.state import Groups
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.pravega.calls import open_channel
from streamvault.streamstore.pravega.controller_pb2_grpc import add_ControllerServiceServicer_to_server

CALLS = 16
"""Calls of the controller that are answered at once."""

MOST_CALLS = 256
"""Calls that may be under way; others are refused."""

_HANDSHAKE_SECONDS = 10.0

CALLER_SECONDS = 300
"""How long a client's connection to the controller lasts; clients then make another. A call whose request does not come
has a thread until then."""

GRACE_SECONDS = 30
"""How long what is under way may take then."""

_ALIVE_SECONDS = 60
_LARGEST_CALL = 1024 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Certificate:
    """What the server shows with TLS: PEM files."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """Return the TLS context.

        Raises:
            Usage: the files cannot be read, or do not fit.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            where = f"{self.certificate}, {self.key}: {getattr(error, 'strerror', None) or error}"
            raise Usage("the certificate and its key cannot be used", where=where) from None
        return context


@dataclass(frozen=True, slots=True)
class Listening:
    """A server that answers.

    Attributes:
        uri: what clients connect to.
        segments: the segment store.
    """

    uri: str
    segments: SegmentServer


def _without_traceback(record: logging.LogRecord) -> bool:
    """Filter gRPC's log: anybody can send a request that it cannot decode, and a line says enough."""
    record.exc_info = None
    return True


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="segments", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something there, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def stop(self) -> None:
        """Stop it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


@contextmanager
def listening(  # noqa: PLR0913  (what `serve` has options for)
    archives: Mapping[StreamName, Served],
    cache: BlockCache,
    place: tuple[str, int] = ("127.0.0.1", 0),
    *,
    groups: Groups | None = None,
    access: Access | None = None,
    certificate: Certificate | None = None,
    advertised: str = "",
    every: float = 5.0,
    live: LiveStream | None = None,
) -> Iterator[Listening]:
    """Serve archives while the block runs.

    Args:
        archives: stream → what is served.
        cache: the budget of memory.
        place: host and port of the controller; port 0 for any. The segment store has the next one, so that clients find
            it again after a restart.
        groups: the reader groups; None for some in memory.
        access: who may read; None for everybody.
        certificate: for TLS; None for none.
        advertised: the host that clients are told; empty for that of ``place``.
        every: how often to look for new generations (seconds).
        live: the live stream that goes on where the only archive ends; its cluster has the reader groups, and says who
            may read. None for archives.

    Raises:
        Failed: the server cannot listen there.
        Usage: the certificate cannot be used.
    """
    access, (host, port) = access or Access(), place
    context = None if certificate is None else certificate.context()
    groups = groups or groups_in_memory(cache.state_bytes)
    logging.getLogger("grpc._common").addFilter(_without_traceback)  # does nothing the second time
    server = SegmentServer(archives, groups, access, cache, live)
    with ExitStack() as stack:
        loop = _Loop()
        stack.callback(loop.stop)
        try:
            sockets = loop.run(_listen(server, (host, port and port + 1), context, every))
            stack.callback(lambda: loop.run(_stop(sockets, server)))
            node = advertised or host, sockets.sockets[0].getsockname()[1]
            controller = grpc.server(
                ThreadPoolExecutor(CALLS, thread_name_prefix="call"),
                interceptors=[Gate(access, server.count)],
                options=[
                    ("grpc.so_reuseport", 0),
                    ("grpc.max_connection_age_ms", CALLER_SECONDS * 1000),
                    ("grpc.max_connection_age_grace_ms", GRACE_SECONDS * 1000),
                    ("grpc.keepalive_time_ms", _ALIVE_SECONDS * 1000),
                    ("grpc.max_receive_message_length", _LARGEST_CALL),
                ],
                maximum_concurrent_rpcs=MOST_CALLS,
            )
            stack.callback(lambda: controller.stop(STOP_SECONDS).wait())
            if live is None:
                add_ControllerServiceServicer_to_server(ServedController(archives, groups, node, access), controller)
            else:
                channel = stack.enter_context(open_channel(live.address.store.settings))
                controller.add_generic_rpc_handlers((RelayedController(live, channel, node),))
            bound = _bind(controller, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", certificate)
        except (OSError, RuntimeError) as error:
            why = "the port is in use, or the host is not this machine"
            if isinstance(error, socket.gaierror):
                why = str(error.strerror)
            elif isinstance(error, OSError) and error.errno is not None:  # asyncio puts its own text before that
                why = os.strerror(error.errno).lower()
            ports = f"{host}:{port} and {port + 1}" if port else host
            raise Failed(
                f"cannot listen there ({why})", where=ports, todo="Choose another address with --listen."
            ) from None
        controller.start()
        shown = f"[{node[0]}]" if ":" in node[0] else node[0]
        yield Listening(f"pravega{'' if certificate is None else '+tls'}://{shown}:{bound}", server)


async def _listen(
    server: SegmentServer, place: tuple[str, int], context: ssl.SSLContext | None, every: float
) -> asyncio.Server:
    wait = None if context is None else _HANDSHAKE_SECONDS
    sockets = await asyncio.start_server(
        server.handle, *place, ssl=context, ssl_handshake_timeout=wait, limit=LARGEST_REQUEST, backlog=1024
    )
    server.begin_refreshing(every)
    return sockets


async def _stop(sockets: asyncio.Server, server: SegmentServer) -> None:
    sockets.close()
    await server.close()


def _bind(controller: Any, address: str, certificate: Certificate | None) -> int:
    if certificate is None:
        return int(controller.add_insecure_port(address))
    pair = (certificate.key.read_bytes(), certificate.certificate.read_bytes())
    return int(controller.add_secure_port(address, grpc.ssl_server_credentials([pair])))
