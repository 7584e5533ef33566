"""Where a missing server fails the tests, and where it only skips them.

The cache of downloaded servers: each is built once, completely or not at all.

A test server never outlives the program that started it, however that ends.

The proxy of the fault tests, in front of an echo server: each fault really happens.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testkit.servers.availability import Unavailable, is_required
from testkit.servers.cache import cache_folder, cached
from testkit.servers.process import ServerProcess
from testkit.servers.proxy import FaultProxy


@pytest.mark.parametrize(
    ("environment", "required"),
    [
        ({}, False),
        ({"STREAMVAULT_REQUIRE": ""}, False),
        ({"STREAMVAULT_REQUIRE": "minio"}, False),
        ({"STREAMVAULT_REQUIRE": "pravega"}, True),
        ({"STREAMVAULT_REQUIRE": "minio, Pravega"}, True),
        ({"STREAMVAULT_REQUIRE": "pravega-secure"}, False),
        ({"STREAMVAULT_REQUIRE": "all"}, True),
        ({"CI": "true"}, True),
        ({"CI": "1", "STREAMVAULT_REQUIRE": "minio"}, True),
        ({"CI": "false"}, False),
        ({"CI": ""}, False),
        ({"CI": "0", "STREAMVAULT_REQUIRE": "pravega"}, True),
    ],
)
def test_servers_are_required_only_where_named(environment: dict[str, str], required: bool) -> None:
    assert is_required("pravega", environment) is required


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STREAMVAULT_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("own_cache")
def test_cached_builds_once(tmp_path: Path) -> None:
    builds: list[Path] = []

    def build(folder: Path) -> None:
        builds.append(folder)
        (folder / "program").write_text("content")

    first = cached("thing-1", build)
    assert cached("thing-1", build) == first == tmp_path / "cache" / "thing-1"
    assert (first / "program").read_text() == "content"
    assert len(builds) == 1


@pytest.mark.usefixtures("own_cache")
def test_cached_builds_once_for_concurrent_users() -> None:
    builds: list[Path] = []

    def build(folder: Path) -> None:
        builds.append(folder)
        time.sleep(0.3)
        (folder / "program").write_text("content")

    seen: list[str] = []
    # each call opens the lock file itself, so threads exclude each other as processes do
    threads = [
        threading.Thread(target=lambda: seen.append((cached("thing-1", build) / "program").read_text()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["content"] * 4
    assert len(builds) == 1


@pytest.mark.usefixtures("own_cache")
def test_failed_build_leaves_nothing_and_is_tried_again() -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise RuntimeError("no network")

    with pytest.raises(RuntimeError, match="no network"):
        cached("thing-1", fail)
    assert [path.name for path in cache_folder().iterdir()] == ["thing-1.lock"]
    assert list(cached("thing-1", lambda folder: (folder / "whole").touch()).iterdir()) == [
        cache_folder() / "thing-1" / "whole"
    ]


@pytest.mark.usefixtures("own_cache")
def test_files_of_a_killed_build_are_removed() -> None:
    left_over = cache_folder() / "thing-1.building-abc"
    (left_over / "half").mkdir(parents=True)
    cached("thing-1", lambda folder: (folder / "whole").touch())
    assert not left_over.exists()


pytestmark = pytest.mark.timeout(60)

REPOSITORY = Path(__file__).parents[3]
STARTER = """
import sys, time
from pathlib import Path
from testkit.servers.process import ServerProcess
server = ServerProcess("sleeper", ["sh", "-c", "sleep 1000 & sleep 1000"], folder=Path(sys.argv[1]))
print(server.pid, flush=True)
time.sleep(1000)
"""


def _is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def _eventually(answers: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if answers():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "server"
    folder.mkdir()
    return folder


@pytest.fixture
def sleeper(folder: Path) -> Iterator[ServerProcess]:
    server = ServerProcess("sleeper", ["sh", "-c", "sleep 1000 & sleep 1000"], folder=folder)
    yield server
    server.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_server_ends_with_its_folder_when_its_starter_is_killed(folder: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=REPOSITORY
    ) as starter:
        assert starter.stdout is not None
        group = int(starter.stdout.readline())
        assert not _is_gone(group)
        starter.send_signal(number)
    assert _eventually(lambda: _is_gone(group))
    assert _eventually(lambda: not folder.exists())


def test_processes_of_tests_can_be_interrupted() -> None:
    """Also if the tests themselves were started by something that ignores interrupts, such as `nohup … &`."""
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_stop_ends_its_children_too_and_removes_its_folder(sleeper: ServerProcess, folder: Path) -> None:
    sleeper.stop()
    assert _eventually(lambda: _is_gone(sleeper.pid))
    assert not folder.exists()
    sleeper.stop()


def test_kill_keeps_the_folder(sleeper: ServerProcess, folder: Path) -> None:
    sleeper.kill()
    assert _eventually(lambda: _is_gone(sleeper.pid))
    assert (folder / "log").exists()


def test_interrupt_while_starting_leaves_no_server_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    real = subprocess.Popen

    def interrupted(*arguments: object, **options: object) -> object:
        process = real(*arguments, **options)  # type: ignore[call-overload]  # the same arguments, whatever they are
        started.append(process.pid)
        if len(started) == 1:
            signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ServerProcess("sleeper", ["sleep", "1000"], folder=folder)
    monkeypatch.undo()
    assert len(started) == 2
    assert _eventually(lambda: _is_gone(started[0]))
    assert not folder.exists()


def test_failed_start_is_reported_with_the_servers_output(folder: Path) -> None:
    server = ServerProcess("broken", ["sh", "-c", "echo no such port; exit 3"], folder=folder)
    with pytest.raises(Unavailable, match=r"(?s)broken ended with status 3 while starting.*no such port"):
        server.wait_until(lambda: False, timeout=20)
    assert not folder.exists()


def test_server_that_is_never_ready_is_given_up(sleeper: ServerProcess) -> None:
    with pytest.raises(Unavailable, match="was not ready after 0 s"):
        sleeper.wait_until(lambda: False, timeout=0.2)
    assert not sleeper.is_running()


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
