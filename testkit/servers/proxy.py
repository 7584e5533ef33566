"""A TCP proxy that makes faults on demand: cut connections, refused ones, slow ones, silent ones."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import termios
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")
HOST = "127.0.0.1"
CHUNK = 64 * 1024
CALL_TIMEOUT = 30.0
FRAME_HEADER = 9
HEADERS = 1
END_STREAM = 1
METHODS = (b"GET /", b"HEAD /", b"PUT /", b"POST /", b"DELETE /")
# A socket that is closed with this set sends a reset, as a crashed machine's peer gets, instead of an orderly end.
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class FaultProxy:
    """Forwards a loopback port of its own to another one. A context manager; its methods may be called by any thread.

    Args:
        target_port: the server's port on the loopback address; may be set later, before the first connection.

    Attributes:
        port: where clients are to connect.
        target_port: where they end up.
        delay: seconds that every chunk (64 KiB at most) waits before it goes on, either way.
        connections: how many connections clients have made.
        bytes_to_client: how many bytes have gone to clients.
        bytes_to_server: how many bytes have gone to the server.
        requests: how many HTTP requests clients have begun.
        held: set once `hold_at` holds a request back.
        lost: set once `lose_answer` has lost one.
    """

    def __init__(self, target_port: int = 0) -> None:
        self.port = 0
        self.target_port = target_port
        self.delay = 0.0
        self.connections = 0
        self.bytes_to_client = 0
        self.bytes_to_server = 0
        self.requests = 0
        self.held = threading.Event()
        self.lost = threading.Event()
        self._losing = (b"", False)
        self._hold_at = 0
        self._open: set[_Connection] = set()
        self._cut_after = 0
        self._cuts_left = 0
        self._listener: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        self.accept()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def accept(self) -> None:
        """Accept new connections again after `refuse`, on the same port."""
        self._call(self._accept())

    def refuse(self) -> None:
        """Refuse new connections, as if no server ran; those there are stay."""
        self._call(self._refuse())

    def cut(self) -> int:
        """Cut every connection at once with a reset, as a crash does; new ones are welcome. How many were cut."""
        return self._call(self._cut())

    def cut_after(self, count: int, *, times: int = 1) -> None:
        """Cut a connection once `count` bytes have gone to its client from now on; the first `times` that get there.

        The client gets exactly `count` bytes, then the reset.
        """
        self._call(self._arm(count, times))

    def silence(self) -> None:
        """Pass nothing on any more but keep every connection open, as a network that swallows packets does."""
        self._call(self._flow(on=False))

    def hold_at(self, request: int) -> None:
        """Hold back a client's HTTP request, counted from 1 since the proxy began, and all after it, until `resume`."""
        self.held.clear()
        self._hold_at = request

    def lose_answer(self, call: bytes, *, refuse: bool = False) -> None:
        """Lose the server's answer to the next gRPC call that has these bytes: the connection is cut in its place.

        Args:
            call: part of the call's path, on a connection that has not made such a call yet.
            refuse: refuse new connections from then on, until `accept`.
        """
        self.lost.clear()
        self._losing = call, refuse

    def resume(self) -> None:
        """Pass everything on again after `silence` or `hold_at`, first what was held back."""
        self._call(self._flow(on=True))

    def stop(self) -> None:
        """Refuse and cut everything. Does nothing the second time."""
        if self._loop.is_closed():
            return
        self.refuse()
        self.cut()
        self.resume()
        self._call(self._drained())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT)

    async def _accept(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._serve, HOST, self.port, reuse_address=True)
            self.port = self._listener.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _cut(self) -> int:
        connections = list(self._open)
        for connection in connections:
            connection.reset()
        return len(connections)

    async def _arm(self, count: int, times: int) -> None:
        self._cut_after, self._cuts_left = count, times
        for connection in self._open:
            connection.passed = 0

    async def _flow(self, *, on: bool) -> None:
        if on:
            self._flowing.set()
        else:
            self._flowing.clear()

    async def _drained(self) -> None:
        me = asyncio.current_task()
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not me), return_exceptions=True)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            from_server, to_server = await asyncio.open_connection(HOST, self.target_port)
        except OSError:
            to_client.transport.abort()
            return
        connection = _Connection(to_client, to_server)
        self._open.add(connection)
        try:
            await asyncio.gather(
                self._pump(connection, from_client, to_server), self._pump(connection, from_server, to_client)
            )
        finally:
            self._open.discard(connection)
            connection.end()

    async def _pump(self, connection: _Connection, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        to_client = sink is connection.to_client
        with contextlib.suppress(OSError):
            while chunk := await source.read(CHUNK):
                await asyncio.sleep(self.delay)
                if not to_client and chunk.startswith(METHODS):
                    self._count_request()
                if not to_client and self._losing[0] and self._losing[0] in chunk:
                    connection.unanswered = bytearray()
                if to_client and connection.unanswered is not None:
                    connection.unanswered += chunk
                    if not _has_ended_stream(connection.unanswered):
                        continue
                    await self._lose()
                    break
                await self._flowing.wait()
                if sink.is_closing():
                    return
                allowed = self._allowed(connection, len(chunk)) if to_client else len(chunk)
                # counted first: the other side may look as soon as it has the bytes
                if to_client:
                    self.bytes_to_client += allowed
                else:
                    self.bytes_to_server += allowed
                sink.write(chunk[:allowed])
                await sink.drain()
                if to_client and connection.is_spent:
                    await _delivered(sink)
                    break
            else:
                # one side has ended; the other may go on
                if not sink.is_closing():
                    sink.write_eof()
                return
        # spent, or one side was reset: so is the other
        connection.reset()

    async def _lose(self) -> None:
        (_, refuse), self._losing = self._losing, (b"", False)
        if refuse:
            await self._refuse()
        self.lost.set()

    def _count_request(self) -> None:
        self.requests += 1
        if self.requests == self._hold_at:
            self._flowing.clear()
            self.held.set()

    def _allowed(self, connection: _Connection, size: int) -> int:
        """How many of `size` bytes may go to the client; marks the connection when they are its last."""
        if self._cuts_left == 0:
            return size
        connection.passed += size
        if connection.passed < self._cut_after:
            return size
        self._cuts_left -= 1
        connection.is_spent = True
        return size - (connection.passed - self._cut_after)


def _has_ended_stream(data: bytes | bytearray) -> bool:
    """Whether HTTP/2 frames have one that ends a stream, as the last one of a gRPC answer does."""
    at = 0
    while at + FRAME_HEADER <= len(data):
        size, kind, flags = int.from_bytes(data[at : at + 3], "big"), data[at + 3], data[at + 4]
        at += FRAME_HEADER + size
        if kind == HEADERS and flags & END_STREAM and at <= len(data):
            return True
    return False


async def _delivered(sink: asyncio.StreamWriter) -> None:
    """Return when the other side's kernel has everything, as a reset throws away what is still on its way."""
    peer = sink.get_extra_info("socket")
    while not sink.is_closing():
        (unacknowledged,) = struct.unpack("i", fcntl.ioctl(peer.fileno(), termios.TIOCOUTQ, bytes(4)))
        if unacknowledged == 0:
            return
        await asyncio.sleep(0.001)


class _Connection:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, to_client: asyncio.StreamWriter, to_server: asyncio.StreamWriter) -> None:
        self.to_client = to_client
        self.to_server = to_server
        # bytes gone to the client since `cut_after` was called
        self.passed = 0
        self.is_spent = False
        # what the server has answered since a call whose answer is to be lost
        self.unanswered: bytearray | None = None
        for each in (to_client, to_server):
            # `drain` returns when everything is with the kernel
            each.transport.set_write_buffer_limits(high=0)

    def reset(self) -> None:
        """Drop both connections."""
        for each in (self.to_client, self.to_server):
            if not each.is_closing():
                peer: socket.socket = each.get_extra_info("socket")
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            each.transport.abort()

    def end(self) -> None:
        """Close both connections in order."""
        self.to_client.close()
        self.to_server.close()
