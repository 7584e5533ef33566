"""The proxy of the fault tests, in front of an echo server: each fault really happens."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from testkit.servers.proxy import FaultProxy

pytestmark = pytest.mark.timeout(30)


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.request.recv(65536):
                self.request.sendall(data)


@pytest.fixture
def echo_port() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Echo) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo_port: int) -> Iterator[FaultProxy]:
    with FaultProxy(echo_port) as proxy:
        yield proxy


def _connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=5)


def _received(connection: socket.socket, count: int) -> bytes:
    """Up to `count` bytes; fewer if the connection ends or is reset before."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while len(data) < count and (chunk := connection.recv(count - len(data))):
            data += chunk
    return data


def _send_what_goes(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(data)


def test_proxy_passes_everything_on_unchanged(proxy: FaultProxy) -> None:
    data = bytes(range(256)) * 8192
    with _connect(proxy) as connection:
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        assert _received(connection, len(data)) == data
        sender.join()
    assert (proxy.connections, proxy.bytes_to_server, proxy.bytes_to_client) == (1, len(data), len(data))


def test_proxy_passes_the_end_of_one_direction_on(proxy: FaultProxy) -> None:
    with _connect(proxy) as connection:
        connection.sendall(b"last words")
        connection.shutdown(socket.SHUT_WR)
        assert _received(connection, 100) == b"last words"


def test_cut_resets_open_connections_and_welcomes_new_ones(proxy: FaultProxy) -> None:
    with _connect(proxy) as first, _connect(proxy) as second:
        for each in (first, second):
            each.sendall(b"x")
            assert _received(each, 1) == b"x"
        assert proxy.cut() == 2
        for each in (first, second):
            with pytest.raises(ConnectionResetError):
                each.recv(1)
    with _connect(proxy) as third:
        third.sendall(b"y")
        assert _received(third, 1) == b"y"


def test_proxy_refuses_and_accepts_again_on_the_same_port(proxy: FaultProxy) -> None:
    port = proxy.port
    with _connect(proxy) as earlier:
        earlier.sendall(b"a")
        assert _received(earlier, 1) == b"a"
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            _connect(proxy)
        earlier.sendall(b"b")
        assert _received(earlier, 1) == b"b"
    proxy.accept()
    assert proxy.port == port
    with _connect(proxy) as later:
        later.sendall(b"c")
        assert _received(later, 1) == b"c"


def test_answer_to_a_call_is_lost_once_it_is_there(proxy: FaultProxy) -> None:
    """The echo of a frame that ends a stream is the answer."""
    other, call = b"\0\0\1\0\0\0\0\0\1x", b"\0\0\5\1\1\0\0\0\1/call"
    proxy.lose_answer(b"/call", refuse=True)
    with _connect(proxy) as connection:
        connection.sendall(other)
        assert _received(connection, len(other)) == other
        connection.sendall(call)
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert proxy.lost.is_set()
    with pytest.raises(ConnectionRefusedError):
        _connect(proxy)
    proxy.accept()
    with _connect(proxy) as connection:
        connection.sendall(call)
        assert _received(connection, len(call)) == call


def _send_for_ever(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"more")


@pytest.mark.parametrize("count", [0, 1, 65_537, 300_000])
@pytest.mark.parametrize("pause", [0.0, 0.3])
def test_proxy_cuts_after_exactly_so_many_bytes(proxy: FaultProxy, count: int, pause: float) -> None:
    data = bytes(400_000)
    proxy.cut_after(count)
    with _connect(proxy) as connection:
        sender = threading.Thread(target=_send_what_goes, args=(connection, data))
        sender.start()
        time.sleep(pause)
        assert len(_received(connection, len(data))) == count
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            _send_for_ever(connection)
        sender.join()
    with _connect(proxy) as spared:
        spared.sendall(b"once only")
        assert _received(spared, 9) == b"once only"


def test_cut_counts_bytes_from_the_call_on(proxy: FaultProxy) -> None:
    with _connect(proxy) as connection:
        connection.sendall(b"1234")
        assert _received(connection, 4) == b"1234"
        proxy.cut_after(6)
        connection.sendall(b"56789")
        assert _received(connection, 5) == b"56789"
        connection.sendall(b"abc")
        assert _received(connection, 3) == b"a"
    with _connect(proxy) as spared:
        spared.sendall(b"0123456789")
        assert _received(spared, 10) == b"0123456789"


def test_silence_keeps_connections_open_and_resume_delivers(proxy: FaultProxy) -> None:
    with _connect(proxy) as connection:
        connection.sendall(b"1")
        assert _received(connection, 1) == b"1"
        proxy.silence()
        connection.sendall(b"2")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        proxy.resume()
        connection.settimeout(5)
        assert _received(connection, 1) == b"2"


def test_silent_connection_can_be_cut(proxy: FaultProxy) -> None:
    proxy.silence()
    with _connect(proxy) as connection:
        connection.sendall(b"1")
        while proxy.cut() == 0:
            time.sleep(0.01)
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_proxy_delays_every_chunk_both_ways(proxy: FaultProxy) -> None:
    proxy.delay = 0.2
    started = time.monotonic()
    with _connect(proxy) as connection:
        connection.sendall(b"x")
        assert _received(connection, 1) == b"x"
    assert time.monotonic() - started >= 0.4


def test_missing_server_ends_the_connection(echo_port: int) -> None:
    with FaultProxy() as proxy:
        proxy.target_port = 1
        with _connect(proxy) as connection:
            assert _received(connection, 1) == b""
