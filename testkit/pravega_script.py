"""A segment store in memory that a test controls, for behaviour that the real one rarely shows.

It speaks real frames over a real socket. A test's hook sees every command first and may answer it, hold it, or hang up.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import UUID

from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.connection import Endpoint, PravegaSettings
from streamvault.streamstore.pravega.segments import SegmentStores
from streamvault.streamstore.pravega.wire import HEADER, WireCommand, decode, encode

NEVER_WROTE = -(2**63)
STREAM = StreamName("scope", "stream")
SEGMENT = SegmentId(0, 0)
NAME = SEGMENT.in_stream(STREAM)


@dataclass
class Held:
    """One segment."""

    data: bytearray = field(default_factory=bytearray)
    start: int = 0
    sealed: bool = False
    last_numbers: dict[UUID, int] = field(default_factory=dict)


class Client:
    """One client's connection, as the store sees it."""

    def __init__(self, plain: socket.socket, number: int) -> None:
        self._socket = plain
        self.number = number
        self.begun: dict[UUID, int] = {}
        self.gone = False

    def send(self, *commands: WireCommand) -> None:
        with suppress(OSError):
            self._socket.sendall(b"".join(map(encode, commands)))

    def send_raw(self, raw: bytes) -> None:
        with suppress(OSError):
            self._socket.sendall(raw)

    def hang_up(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def receive(self) -> WireCommand | None:
        header = self._exactly(HEADER.size)
        if not header:
            return None
        code, length = HEADER.unpack(header)
        return decode(code, self._exactly(length))

    def _exactly(self, size: int) -> bytes:
        raw = bytearray()
        while len(raw) < size:
            with suppress(OSError):
                if more := self._socket.recv(size - len(raw)):
                    raw += more
                    continue
            return b""
        return bytes(raw)


Hook = Callable[["ScriptedStore", Client, WireCommand], bool]


def instead_of(
    kind: type[WireCommand],
    act: Callable[[ScriptedStore, Client, Any], object],
    when: Callable[[ScriptedStore, Client, Any], bool] = lambda *_: True,
) -> Hook:
    """Act instead of answering a kind of command, where a condition holds."""

    def hook(store: ScriptedStore, client: Client, command: WireCommand) -> bool:
        if not isinstance(command, kind) or not when(store, client, command):
            return False
        act(store, client, command)
        return True

    return hook


def wait_for(state: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Return whether a state is reached, which another thread brings about."""
    until = time.monotonic() + seconds
    while not state() and time.monotonic() < until:
        time.sleep(0.005)
    return state()


def hang_up(_store: ScriptedStore, client: Client, _command: WireCommand) -> None:
    client.hang_up()


class ScriptedStore:
    """Listens on a free port of the loopback address; also acts as the controller that returns it."""

    def __init__(self, hook: Hook | None = None, *, timeout: float = 3.0, username: str = "") -> None:
        self.hook = hook
        self.held: dict[str, Held] = {NAME: Held()}
        self.asked: list[WireCommand] = []
        self.endpoints_asked = 0
        self.tokens_asked = 0
        self.clients: list[Client] = []
        self.lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        settings = PravegaSettings("127.0.0.1", self.port, username=username, timeout=timeout)
        self.stores = SegmentStores(settings, self)  # type: ignore[arg-type]  # it answers what is asked of a controller here
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stores.close()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread that accepts, which closing does not
        self._listener.close()
        for client in self.clients:
            client.hang_up()

    @property
    def segment(self) -> Held:
        return self.held[NAME]

    def endpoint(self, _stream: StreamName, _segment: SegmentId) -> Endpoint:
        self.endpoints_asked += 1
        return Endpoint("127.0.0.1", self.port)

    def delegation_token(self, _stream: StreamName, **_: bool) -> str:
        self.tokens_asked += 1
        return f"token-{self.tokens_asked}"

    def stream_exists(self, _stream: StreamName) -> bool:
        return True

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                client = Client(plain, len(self.clients))
                self.clients.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: Client) -> None:
        while command := client.receive():
            with self.lock:
                self.asked.append(command)
                if self.hook is None or not self.hook(self, client, command):
                    self.answer(client, command)
        client.gone = True

    def answer(self, client: Client, command: WireCommand) -> None:
        """The behaviour of a real segment store."""
        match command:
            case wire.Hello():
                client.send(wire.Hello(wire.WIRE_VERSION, wire.OLDEST_WIRE_VERSION))
            case wire.KeepAlive():
                client.send(command)
            case wire.GetStreamSegmentInfo(number, name):
                held = self.held.get(name)
                if held is None:
                    client.send(wire.StreamSegmentInfo(number, name, False, True, True, 0, 0, 0))
                else:
                    client.send(
                        wire.StreamSegmentInfo(number, name, True, held.sealed, False, 0, len(held.data), held.start)
                    )
            case wire.ReadSegment():
                client.send(self.read(command))
            case wire.SetupAppend(number, writer, name):
                client.begun[writer] = self.held[name].last_numbers.get(writer, NEVER_WROTE)
                client.send(wire.AppendSetup(number, name, writer, client.begun[writer]))
            case wire.ConditionalBlockEnd():
                self.append(client, command)
            case _:
                raise AssertionError(command)

    def read(self, command: wire.ReadSegment, *, most: int = 2**21) -> WireCommand:
        held = self.held[command.segment]
        if command.offset < held.start:
            return wire.SegmentIsTruncated(command.request_id, command.segment, held.start, "", command.offset)
        data = bytes(held.data[command.offset : command.offset + min(max(command.length, 8), most)])
        return wire.SegmentRead(command.segment, command.offset, False, False, data, command.request_id)

    def append(self, client: Client, block: wire.ConditionalBlockEnd, *, acknowledge: bool = True) -> None:
        held, writer = self.segment, block.writer_id
        before = client.begun[writer]
        if held.sealed:
            client.send(wire.SegmentIsSealed(block.request_id, NAME, "", block.event_number))
        elif held.last_numbers.get(writer, NEVER_WROTE) != before:
            client.send(wire.InvalidEventNumber(writer, block.request_id, "", block.event_number))
            client.hang_up()
        elif len(held.data) != block.expected_offset:
            client.send(wire.ConditionalCheckFailed(writer, block.event_number, block.request_id))
        else:
            held.data += block.data
            held.last_numbers[writer] = client.begun[writer] = block.event_number
            if acknowledge:
                client.send(wire.DataAppended(writer, block.event_number, before, block.request_id, len(held.data)))
