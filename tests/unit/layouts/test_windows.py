"""The memory of a range is used again, and never while somebody may still read it."""

from __future__ import annotations

import random
import socket
import threading
from collections import deque
from collections.abc import Iterator

import pytest

from streamvault.layouts import chunks
from streamvault.layouts.chunks import KEPT, ChunksLayout, RangeBuffer
from streamvault.objectstore.retrying import RetryingStore
from streamvault.objectstore.s3.store import BucketStore
from streamvault.objectstore.store import ObjectStoreUnavailable
from streamvault.streamstore.events import EventBlock
from testkit.servers.raw_http import RawHttpServer
from tests.places import SEGMENT, memory, place_of

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def spare(monkeypatch: pytest.MonkeyPatch) -> deque[bytearray]:
    """The buffers to be used again; none at first."""
    found: deque[bytearray] = deque(maxlen=KEPT)
    monkeypatch.setattr(chunks, "_spare", found)
    return found


def filled(data: bytes, step: int = 1000) -> RangeBuffer:
    held = RangeBuffer()
    for low in range(0, len(data), step):
        held.extend(memoryview(data)[low : low + step])
    return held


def block(offset: int, data: bytes) -> EventBlock:
    return EventBlock(offset, memoryview(data), 1)


def test_buffer_holds_what_was_appended_whatever_it_held_before(spare: deque[bytearray]) -> None:
    rng = random.Random(4)
    for size in (10_000, 3, 9_999, 25_000, 1, 10_001, 0, 60_000):
        data = rng.randbytes(size)
        held = filled(data, rng.randrange(1, 5000))
        assert held.data == data
        if size:
            held.give_back()
            assert len(spare) == 1


def test_buffer_with_a_view_is_not_used_again(spare: deque[bytearray]) -> None:
    held = filled(b"first")
    view = held.data[1:]
    held.give_back()
    assert not spare
    assert filled(b"other").data == b"other"
    assert view == b"irst"


def test_few_buffers_and_no_very_large_one_are_kept(spare: deque[bytearray], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "LARGEST_KEPT", 5)
    filled(b"larger").give_back()
    assert not spare
    for held in [filled(b"small") for _ in range(5)]:
        held.give_back()
    assert len(spare) == KEPT


class Late:
    """A store whose first put times out: the request keeps its bytes, to be sent later."""

    def __init__(self) -> None:
        self.inner = memory()
        self.uri = self.inner.uri
        self.late: memoryview | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def put(self, key: str, data: bytes | memoryview) -> None:
        if self.late is None:
            self.late = memoryview(data)
            raise ObjectStoreUnavailable("the server did not answer in time")
        self.inner.put(key, bytes(data))


def test_put_that_timed_out_keeps_its_bytes(spare: deque[bytearray]) -> None:
    late = Late()
    store = RetryingStore(late)  # type: ignore[arg-type]  # it has the methods that are needed
    ranges = [random.Random(seed).randbytes(MIB) for seed in range(3)]
    for number, data in enumerate(ranges):
        ChunksLayout().write_run(place_of(store), SEGMENT, [block(number * MIB, data)])
    assert late.late == ranges[0]
    assert len(spare) == 1  # that of the others
    assert [late.inner.get(entry.key) for entry in late.inner.list("")] == ranges


class SlowServer(RawHttpServer):
    """Takes PUT requests, and of the first one's body only the beginning until `go_on` is set.

    Attributes:
        received: the body of each PUT, as far as it has come.
        ended: set when no more comes of the first one.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.received: list[bytearray] = []
        self.go_on, self.ended = threading.Event(), threading.Event()
        super().__init__()

    def respond(self, connection: socket.socket, request: bytearray) -> None:
        if request.startswith(b"PUT"):
            self._put(connection, request.partition(b"\r\n\r\n")[2])
        else:  # there is no object yet
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    def _put(self, connection: socket.socket, body: bytearray) -> None:
        self.received.append(body)
        is_first = body is self.received[0]
        if is_first:
            self.go_on.wait(60)
        try:
            while len(body) < self._size and (more := connection.recv(1 << 20)):
                body += more
        finally:
            if is_first:
                self.ended.set()
        connection.sendall(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\n\r\n')


@pytest.fixture
def server() -> Iterator[SlowServer]:
    with SlowServer(8 * MIB) as server:
        yield server


def test_late_request_never_sends_the_bytes_of_another_range(server: SlowServer) -> None:
    first, second = random.Random(1).randbytes(8 * MIB), random.Random(2).randbytes(8 * MIB)
    store = RetryingStore(BucketStore(server.bucket, timeout=0.1))
    for number, data in enumerate((first, second)):
        ChunksLayout().write_run(place_of(store), SEGMENT, [block(number * len(data), data)])
    server.go_on.set()
    assert server.ended.wait(60)
    late, *others = server.received
    assert len(late) < len(first)
    assert first.startswith(late)
    assert first in others
    assert second in others
