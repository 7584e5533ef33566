"""Clients that break the protocol, send too much or take nothing: their connection is closed, and the log says why."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from uuid import UUID

import grpc
import pytest

from streamvault.serving.server import CALLS
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.wire import HEADER, decode, encode
from testkit.pravega_script import wait_for
from testkit.small_archives import NAME, Vault, a_vault
from tests.serving import Served, serving

vault = a_vault(b"x" * 300_000, exports=[("chunks", "")])
SEGMENT = f"{NAME}/0.#epoch.0"
WRITER = UUID(int=9)
SET_UP = encode(wire.SetupAppend(1, WRITER, SEGMENT, ""))
BLOCK = encode(wire.AppendBlock(WRITER, b"x"))
OTHERS_END = encode(wire.AppendBlockEnd(UUID(int=8), 0, b"", 1, 1, 1))


@pytest.fixture
def served(vault: Vault) -> Iterator[Served]:
    with serving(vault.archive) as found:
        yield found


def is_closed(client: socket.socket) -> bool:
    """Wait until the server hangs up; what it has sent before does not matter."""
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


def still_serves(served: Served) -> bool:
    return served.store.read_bytes(NAME, min(served.archive.now.infos), 0, 9)[8:] == b"x"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (HEADER.pack(wire.ReadSegment.code, 2**31 - 1), "a frame of 2147483647 bytes"),
        (HEADER.pack(wire.ReadSegment.code, -1), "a frame of -1 bytes"),
        (HEADER.pack(wire.AppendBlock.code, 1 << 20), "a frame of 1048576 bytes"),  # no writer is set up
        (HEADER.pack(-5, 1 << 20), "a frame of 1048576 bytes"),
        (HEADER.pack(wire.ReadSegment.code, 3) + b"\xff\xff\xff", "a truncated ReadSegment"),
        (encode(wire.AppendBlockEnd(WRITER, 0, b"", 0, 0, 1)), "an append without a set-up"),
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "a frame of"),
    ],
)
def test_what_breaks_the_protocol_is_closed_with_a_reason(
    served: Served, caplog: pytest.LogCaptureFixture, sent: bytes, reason: str
) -> None:
    with served.greeted() as client:
        client.sendall(sent)
        assert is_closed(client)
    assert reason in caplog.text
    assert still_serves(served)


def test_who_does_not_say_hello_is_closed(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with served.plain() as client:
        client.sendall(encode(wire.KeepAlive()))
        assert is_closed(client)
    assert "it did not say hello" in caplog.text
    with served.plain() as client:
        client.sendall(encode(wire.Hello(99, 98)))
        assert is_closed(client)
    assert "it speaks no version below 98" in caplog.text


@pytest.mark.parametrize(
    ("payload", "code", "request_id"), [((7).to_bytes(8, "big"), 70, 7), (b"", 70, 0), ((7).to_bytes(8, "big"), 57, 7)]
)
def test_a_command_that_is_not_served_is_answered(served: Served, payload: bytes, code: int, request_id: int) -> None:
    if code == wire.OperationUnsupported.code:
        payload = encode(wire.OperationUnsupported(7, "", ""))[HEADER.size :]
    with served.greeted() as client:
        client.sendall(HEADER.pack(code, len(payload)) + payload)
        found, size = HEADER.unpack(client.recv(HEADER.size, socket.MSG_WAITALL))
        answer = decode(found, client.recv(size, socket.MSG_WAITALL))
    assert isinstance(answer, wire.OperationUnsupported)
    assert (answer.request_id, answer.trace) == (request_id, "this is an archive, which is read-only")


@pytest.mark.parametrize(
    ("name", "value", "sent", "reason"),
    [
        ("MOST_READS", 3, [encode(wire.ReadSegment(SEGMENT, 300_008, 9, "", n)) for n in range(4)], "too many reads"),
        ("READ_BYTES", 9 << 20, [encode(wire.ReadSegment(SEGMENT, 300_008, 9, "", 1))] * 9, "too many reads"),
        ("MOST_READS", 1, [encode(wire.SetupAppend(n, UUID(int=n), SEGMENT, "")) for n in range(2)], "more than 1 wr"),
        (
            "WRITER_BYTES",
            9 << 20,
            [encode(wire.SetupAppend(n, UUID(int=n), SEGMENT, "")) for n in range(9)],
            "too many",
        ),
        ("SLOW_SECONDS", 60, [SET_UP, BLOCK, BLOCK], "an append block without an end"),
        ("SLOW_SECONDS", 60, [SET_UP, BLOCK, encode(wire.KeepAlive())], "an append block without an end"),
        ("SLOW_SECONDS", 60, [SET_UP, BLOCK, OTHERS_END], "an append block without an end"),
        ("SILENT_SECONDS", 0.05, [b""], "it was silent for"),
        ("SILENT_SECONDS", 0.2, [encode(wire.ReadSegment(SEGMENT, 0, 9, "", 1))], "it was silent for"),  # answered
        ("SLOW_SECONDS", 0.05, [HEADER.pack(wire.ReadSegment.code, 99)], "it stopped within a frame"),
        ("SLOW_SECONDS", 0.05, [encode(wire.ReadSegment(SEGMENT, 0, 1 << 20, "", 1)) * 100], "it accepted no data for"),
        ("asked", 0, [HEADER.pack(wire.AppendBlock.code, 100_000)], "others are sending too much"),
    ],
)
def test_too_much_or_too_slow_is_closed_with_a_reason(
    served: Served,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: float,
    sent: list[bytes],
    reason: str,
) -> None:
    with served.greeted() as client:
        if name == "asked":
            monkeypatch.setattr(served.segments.cache, "_most_asked", 99_999)
            client.sendall(encode(wire.SetupAppend(1, WRITER, SEGMENT, "")))
            assert client.recv(8, socket.MSG_WAITALL)
        else:
            monkeypatch.setattr(f"streamvault.serving.connection.{name}", value)
        if sent == [b""]:
            client.sendall(encode(wire.KeepAlive()))
        for one in sent:
            client.sendall(one)
        for _ in range(12_000):
            if reason in caplog.text:
                break
            threading.Event().wait(0.005)
    assert reason in caplog.text
    monkeypatch.undo()
    assert still_serves(served)
    assert wait_for(lambda: served.segments.cache._asked == 0)


def test_a_slow_client_has_its_time_for_each_piece(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one that takes nothing is cut off; with TLS, no more than a piece is taken out of the budget."""
    limits: list[float | None] = []
    written: list[int] = []
    limit_of, write = asyncio.timeout, asyncio.StreamWriter.write

    def limited(seconds: float | None) -> asyncio.Timeout:
        limits.append(seconds)
        return limit_of(seconds)

    def writing(writer: asyncio.StreamWriter, data: memoryview) -> None:
        written.append(len(data))
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # less than a piece
        write(writer, data)

    with served.greeted() as client, client.makefile("rb") as answers:
        monkeypatch.setattr("streamvault.serving.connection.SLOW_SECONDS", 59.0)
        monkeypatch.setattr(asyncio, "timeout", limited)
        monkeypatch.setattr(asyncio.StreamWriter, "write", writing)
        client.sendall(encode(wire.ReadSegment(SEGMENT, 0, 1 << 20, "", 1)))
        code, size = HEADER.unpack(answers.read(HEADER.size))
        assert len(answers.read(size)) == size > 300_000
        assert wait_for(lambda: sum(written) == HEADER.size + size)
    assert code == wire.SegmentRead.code
    assert max(written) <= 257 * 1024
    assert limits.count(59.0) >= len(written)


def test_nothing_is_written_for_a_client_that_is_gone(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asyncio would log each piece of the rest."""
    written: list[int] = []

    def gone(writer: asyncio.StreamWriter, data: memoryview) -> None:
        written.append(len(data))
        writer.transport.abort()

    with served.greeted() as client:
        monkeypatch.setattr(asyncio.StreamWriter, "write", gone)
        client.sendall(encode(wire.ReadSegment(SEGMENT, 0, 1 << 20, "", 1)))
        assert is_closed(client)
        assert wait_for(lambda: not served.segments.connections)
    assert len(written) == 1


def test_what_is_no_message_is_refused_in_one_line(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with grpc.insecure_channel(served.uri.removeprefix("pravega://")) as channel:
        call = channel.unary_unary("/io.pravega.controller.stream.api.grpc.v1.ControllerService/listScopes")
        with pytest.raises(grpc.RpcError):
            call(b"\xff\xff\xff")
    assert not any(record.exc_info for record in caplog.records)


def test_of_too_many_connections_the_last_is_refused(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamvault.serving.segments.MOST_CONNECTIONS", 1)
    with served.greeted() as first, served.plain() as second:
        assert is_closed(second)
        first.sendall(encode(wire.KeepAlive()))
        assert first.recv(8, socket.MSG_WAITALL) == encode(wire.KeepAlive())
    assert "a client's connection is closed: there are 1 others" in caplog.text


def test_a_server_that_stops_says_nothing_of_its_clients(vault: Vault, caplog: pytest.LogCaptureFixture) -> None:
    with serving(vault.archive) as served:
        client = served.greeted()
        client.sendall(encode(wire.ReadSegment(SEGMENT, 300_008, 9, "", 1)))
        client.sendall(encode(wire.KeepAlive()))
        assert client.recv(8, socket.MSG_WAITALL)
    assert is_closed(client)
    client.close()
    assert not caplog.records


def test_answers_get_smaller_as_clients_take_none(served: Served) -> None:
    cache = served.segments.cache
    sizes = [cache.answer_bytes(1 << 30) for _ in range(100)]
    assert sizes[0] == 1 << 20
    assert sizes[-1] == 16 * 1024
    assert sum(sizes) <= (8 << 20) + 100 * 16 * 1024
    for size in sizes:
        cache.answered(size)
    assert cache.answer_bytes(10) == 10


def test_who_waits_at_a_segments_end_may_be_silent(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamvault.serving.connection.SILENT_SECONDS", 0.05)
    with served.greeted() as client:
        client.sendall(encode(wire.ReadSegment(SEGMENT, 300_008, 9, "", 1)))
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.recv(1)
        for one in served.segments._connections.values():  # the kernel asks whether it is still there
            assert one._writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.parametrize("command", [wire.SegmentIsSealed(1, SEGMENT, "", 0), wire.NoSuchSegment(1, SEGMENT, "", 0)])
def test_what_is_no_request_asks_for_nothing(served: Served, monkeypatch: pytest.MonkeyPatch, command: object) -> None:
    """It has no token, by which its client would be known."""
    monkeypatch.setattr(served.segments, "find", None)
    assert isinstance(served.ask(command), wire.OperationUnsupported)  # type: ignore[arg-type]


def test_calls_without_an_end_give_their_threads_back(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamvault.serving.server.CALLER_SECONDS", 1)
    monkeypatch.setattr("streamvault.serving.server.GRACE_SECONDS", 1)
    more = threading.Event()

    def nothing_yet() -> Iterator[bytes]:
        more.wait(60)
        yield b""

    with serving(vault.archive) as served:
        target = served.uri.removeprefix("pravega://")
        with grpc.insecure_channel(target) as channel:
            call = channel.stream_unary("/io.pravega.controller.stream.api.grpc.v1.ControllerService/listScopes")
            calls = [call.future(nothing_yet()) for _ in range(CALLS)]
            try:
                assert list(served.store.list_scopes()) == [NAME.scope]
            finally:
                more.set()
                for one in calls:
                    one.cancel()
