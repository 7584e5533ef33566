"""Streamed reads over a real connection: bodies that break off, hang, or are another object's."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from streamvault.common.errors import Problem
from streamvault.objectstore.bulk import read_ahead
from streamvault.objectstore.retrying import RetryingStore
from streamvault.objectstore.s3.store import BucketStore
from streamvault.objectstore.store import (
    STREAM_BYTES,
    NoSuchObject,
    ObjectStore,
    ObjectStoreError,
    ObjectStoreUnavailable,
    WrongSize,
)
from testkit.servers.raw_http import RawHttpServer

BODY = random.Random(5).randbytes(5 * STREAM_BYTES + 17)
END = len(BODY)
TIMEOUT = 0.5

Answer = Callable[[socket.socket, int, int], None]
"""Answers a request for the bytes ``[start, end)`` of the object."""


class Server(RawHttpServer):
    """Answers GET requests one after the other, each as the script says.

    Attributes:
        script: the answers to come.
        asked: the Range and If-Match headers of each request.
        left: set when the client has closed a connection in the middle of an answer.
    """

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.asked: list[tuple[str, str]] = []
        self.left = threading.Event()
        super().__init__()

    def respond(self, connection: socket.socket, request: bytearray) -> None:
        lines = dict(line.split(": ", 1) for line in request.decode().lower().split("\r\n")[1:] if line)
        self.asked.append((lines["range"], lines.get("if-match", "")))
        low, high = lines["range"].removeprefix("bytes=").split("-")
        try:
            self.script.pop(0)(connection, int(low), int(high) + 1)
        except OSError:
            self.left.set()
            raise


def respond(
    sent: Callable[[int, int], bytes] = lambda start, end: BODY[start:end],
    *,
    etag: str = '"e"',
    span: Callable[[int, int], tuple[int, int]] = lambda start, end: (start, end),
    size: int = END,
    then: Callable[[socket.socket], None] = lambda _: None,
) -> Answer:
    """Answer with the bytes ``sent`` of the ``span`` that the headers promise."""

    def answer(connection: socket.socket, start: int, end: int) -> None:
        low, high = span(start, end)
        headers = (
            "HTTP/1.1 206 Partial Content",
            f"Content-Length: {high - low}",
            f"Content-Range: bytes {low}-{high - 1}/{size}",
            f"ETag: {etag}",
            "Last-Modified: Sat, 21 Nov 2026 08:16:42 GMT",
        )
        connection.sendall("\r\n".join((*headers, "", "")).encode() + sent(low, high))
        then(connection)

    return answer


def status(text: str, code: str) -> Answer:
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code></Error>'

    def answer(connection: socket.socket, _start: int, _end: int) -> None:
        connection.sendall(f"HTTP/1.1 {text}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    return answer


def leave(_: socket.socket) -> None:
    raise EOFError


def broken_after(count: int, **options: object) -> Answer:
    """Send so many bytes of the answer, then close the connection."""
    return respond(lambda low, _: BODY[low : low + count], then=leave, **options)  # type: ignore[arg-type]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("streamvault.objectstore.retrying.FIRST_WAIT", 0.01)
    with Server() as server:
        yield server


@pytest.fixture
def store(server: Server) -> ObjectStore:
    return RetryingStore(BucketStore(server.bucket, timeout=TIMEOUT), total_seconds=20)


def test_object_is_received_in_blocks_by_one_request(server: Server, store: ObjectStore) -> None:
    server.script = [respond(), respond()]
    blocks = list(store.stream("a", 0, END))
    assert b"".join(blocks) == BODY
    assert max(map(len, blocks)) < 2 * STREAM_BYTES
    assert b"".join(store.stream("a", 7, END - 3)) == BODY[7:-3]
    assert server.asked == [(f"bytes=0-{END - 1}", ""), (f"bytes=7-{END - 4}", "")]


def test_broken_stream_goes_on_at_the_byte_with_the_same_object(server: Server, store: ObjectStore) -> None:
    server.script = [broken_after(2 * STREAM_BYTES), broken_after(0), broken_after(3 * STREAM_BYTES), respond()]
    assert b"".join(store.stream("a", 5, END - 5)) == BODY[5:-5]
    assert server.script == []
    starts = [int(span.removeprefix("bytes=").partition("-")[0]) for span, _ in server.asked]
    assert starts == sorted(starts)
    assert starts[0] == 5
    assert starts[1] == starts[2] > 5 + STREAM_BYTES // 2
    assert starts[3] > starts[2]
    assert [match for _, match in server.asked] == ["", '"e"', '"e"', '"e"']


def test_bytes_of_two_objects_are_never_mixed(server: Server, store: ObjectStore) -> None:
    seconds = [status("412 Precondition Failed", "PreconditionFailed"), respond(etag='"other"')]
    for second in seconds:  # some servers ignore If-Match
        server.script = [broken_after(2 * STREAM_BYTES), second]
        received: list[memoryview] = []
        with pytest.raises(ObjectStoreError, match="the object was replaced while it was read: s3://bucket/a"):
            received.extend(store.stream("a", 0, END))
        assert len(b"".join(received)) >= STREAM_BYTES
        assert BODY.startswith(b"".join(received))
    server.script = [broken_after(2 * STREAM_BYTES), status("404 Not Found", "NoSuchKey")]
    with pytest.raises(NoSuchObject):
        list(store.stream("a", 0, END))


def test_hanging_server_is_left_and_asked_again(server: Server, store: ObjectStore) -> None:
    def hang(connection: socket.socket) -> None:
        while connection.recv(65536):
            pass
        server.left.set()
        raise EOFError

    server.script = [respond(lambda low, _: BODY[low : low + 2 * STREAM_BYTES], then=hang), respond()]
    assert b"".join(read_ahead(store, "a", 0, END)) == BODY
    assert server.left.wait(20)
    assert server.asked[1][1] == '"e"'


def test_server_that_keeps_breaking_off_is_unavailable(server: Server) -> None:
    store = RetryingStore(BucketStore(server.bucket, timeout=TIMEOUT), total_seconds=0)
    server.script = [broken_after(2 * STREAM_BYTES), *(broken_after(0) for _ in range(100))]
    with pytest.raises(ObjectStoreUnavailable, match="the connection to the server was lost"):
        list(read_ahead(store, "a", 0, END))
    assert not readers()


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (respond(span=lambda low, _: (low, END - 1), size=END - 1), WrongSize, f"too short for bytes 0 to {END}"),
        (status("416 Range Not Satisfiable", "InvalidRange"), WrongSize, f"too short for bytes 0 to {END}"),
        (respond(span=lambda low, high: (low + 1, high)), ObjectStoreError, "other bytes than those requested"),
        (respond(span=lambda low, high: (low, high - 1)), ObjectStoreError, "other bytes than those requested"),
        (status("404 Not Found", "NoSuchKey"), NoSuchObject, "no such object"),
    ],
    ids=["short", "shorter", "later bytes", "fewer bytes", "missing"],
)
def test_wrong_answer_is_one_named_problem(
    server: Server, store: ObjectStore, answer: Answer, kind: type[Problem], text: str
) -> None:
    server.script = [answer]
    with pytest.raises(Problem, match=text) as caught:
        list(read_ahead(store, "a", 0, END))
    assert type(caught.value) is kind
    assert caught.value.where == "s3://bucket/a"
    assert not readers()
    server.script = [broken_after(STREAM_BYTES * 2), answer]  # or where it is resumed
    with pytest.raises(Problem) as caught:
        list(read_ahead(store, "a", 0, END))
    assert type(caught.value) is kind


def test_reader_that_stops_leaves_no_thread_and_no_connection(server: Server, store: ObjectStore) -> None:
    def endless(connection: socket.socket, _start: int, _end: int) -> None:
        respond(size=1 << 40, span=lambda _low, _high: (0, 1 << 40))(connection, 0, 1 << 40)
        while True:
            connection.sendall(BODY)

    server.script = [endless]
    blocks = read_ahead(store, "a", 0, 1 << 40)
    assert len(next(blocks)) >= STREAM_BYTES
    blocks.close()  # type: ignore[attr-defined]
    assert not readers()
    assert server.left.wait(20)


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("objects-")]
