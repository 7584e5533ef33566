"""A controller and a segment store of Pravega that have one stream, and lie."""

from __future__ import annotations

import itertools
import math
import random
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any, Self
from uuid import UUID

import grpc

from streamvault.streamstore.model import StreamDescription
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.controller import configuration_message
from streamvault.streamstore.pravega.controller_pb2_grpc import (
    ControllerServiceServicer,
    add_ControllerServiceServicer_to_server,
)
from streamvault.streamstore.pravega.wire import HEADER, WireCommand, encode
from streamvault.streamstore.store import StreamStore
from testkit.pravega_script import Client, Held, ScriptedStore

NUMBERS = (-1, 0, 1, 7, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63), 5 << 32)
REALS = (math.nan, math.inf, -1.0, 0.0, 0.5, 1.0, 1e308, 5e-324)
TEXTS = (
    "",
    "..",
    "../../x",
    "a\nb",
    "\x00",
    "\x1b[2J",
    "x" * 300,
    "x" * (1 << 20),
    "\u202e",
    "_x",
    "127.0.0.2",
    "a..b",
    "%2e",
)
CONTROLLER = ("fields", "fields", "fields", "fields", "pages", "epochs", "many", "large", "fails", "silent", "token")
SEGMENT_STORE = (
    *("fields", "fields", "fields", "alive", "hello", "negative", "gigabytes", "cut", "unknown", "twice", "drop"),
    *("noise", "wrong host", "data"),
)


class HostilePravega(ControllerServiceServicer):
    """Serves a copy of a store's stream. A context manager.

    Args:
        store: an open store.
        described: its stream.

    Attributes:
        how: the lie of the controller or, behind ``wire:``, of the segment store; empty for none.
        after: how many answers are honest before.
    """

    def __init__(self, store: StreamStore, described: StreamDescription, seed: float) -> None:
        self.how, self.after = "", 0
        self._rng = random.Random(seed)
        self._described = described
        self._segments = ScriptedStore(self._hook)
        self._segments.held = {}
        for epoch in described.epochs:
            for segment in epoch.segments:
                info = (
                    store.segment_info(described.name, [segment])[0]
                    if segment in described.head.offsets or (segment in described.tail.offsets)
                    else None
                )
                held = Held(sealed=segment not in described.tail.offsets)
                if info is not None:
                    read = b"".join(
                        map(bytes, store.read(described.name, segment, info.start_offset, info.write_offset))
                    )
                    held.data += bytes(info.start_offset) + read
                    held.start = info.start_offset
                self._segments.held[segment.in_stream(described.name)] = held
        self._server = grpc.server(ThreadPoolExecutor(8))
        add_ControllerServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None)
        self._segments.__exit__()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name[0] == "_" or not hasattr(ControllerServiceServicer, name):
            return found
        return lambda request, context: self._answer(name, request, context)

    def _lies(self, wire_protocol: bool) -> str:
        if self.how.startswith("wire:") != wire_protocol or not self.how:
            return ""
        self.after -= 1
        return self.how.removeprefix("wire:") if self.after < 0 else ""

    # the controller

    def _answer(self, method: str, request: Any, context: Any) -> Any:
        lies = self._lies(False)
        honest = _HONEST.get(method)
        if lies == "fails":
            code = self._rng.choice([code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
            context.abort(code, self._rng.choice(TEXTS[:7]))
        if lies == "silent":
            time.sleep(3)
        if lies == "epochs" and method == "getEpochSegments":
            return self._epoch(request.epoch)
        answer = honest(self, request, context) if honest else None
        if answer is None:
            context.abort(grpc.StatusCode.NOT_FOUND if honest else grpc.StatusCode.UNIMPLEMENTED, "x")
        if lies == "pages" and method in {"listScopes", "listStreamsInScope"}:
            names = [f"s{self._rng.random()}" for _ in range(1000)]
            if method == "listScopes":
                answer.scopes.extend(names)
            else:
                answer.streams.extend(pb.StreamInfo(scope="demo", stream=name) for name in names)
        elif lies == "token" and method == "getDelegationToken":
            answer.delegationToken = "a." + "W1tbW1tb" * 30_000 + ".c"
        elif lies in {"fields", "many", "large"}:
            for _ in range(self._rng.randrange(1, 4)):
                self._spoil(answer, lies)
        return answer

    def _epoch(self, number: int) -> Any:
        """An epoch of 900 segments, whatever its number is."""
        return pb.SegmentRanges(
            segmentRanges=[
                pb.SegmentRange(segmentId=self._id(number << 32 | one), minKey=one / 900, maxKey=(one + 1) / 900)
                for one in range(900)
            ]
        )

    def _spoil(self, message: Any, lies: str) -> None:
        """Change one field somewhere in a message."""
        places = list(_places(message))
        if not places:
            return
        place, field = self._rng.choice(places)
        if field.cpp_type == field.CPPTYPE_MESSAGE and field.label != field.LABEL_REPEATED:
            place.ClearField(field.name)
        elif field.label == field.LABEL_REPEATED:
            self._spoil_many(getattr(place, field.name), field, lies)
        else:
            limit = 2**31 if field.cpp_type == field.CPPTYPE_INT32 else 2**63
            numbers = [one for one in NUMBERS if -limit <= one < limit]
            values: dict[Any, Sequence[Any]] = {
                field.CPPTYPE_DOUBLE: REALS,
                field.CPPTYPE_ENUM: (-1, 1, 2, 3, 99, 2**31 - 1),
                field.CPPTYPE_BOOL: (False, True),
                field.CPPTYPE_STRING: ("x" * (40 << 20),) if lies == "large" else TEXTS,
            }
            setattr(place, field.name, self._rng.choice(values.get(field.cpp_type, numbers)))

    def _spoil_many(self, many: Any, field: Any, lies: str) -> None:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return
        if not len(many) or (self._rng.random() < 0.3 and lies != "many"):
            del many[:]
        else:
            many.extend([many[0]] * (1 if lies == "fields" else 30_000 if lies == "many" else 300_000))

    def _id(self, value: int) -> Any:
        name = self._described.name
        return pb.SegmentId(streamInfo=pb.StreamInfo(scope=name.scope, stream=name.stream), segmentId=value)

    def _is_mine(self, about: Any) -> bool:
        return (about.scope, about.stream) == (self._described.name.scope, self._described.name.stream)

    def _ranges(self, number: int) -> Any:
        if number >= len(self._described.epochs):
            return None
        segments = self._described.epochs[number].segments
        found = [
            pb.SegmentRange(segmentId=self._id(one.value), minKey=held.low, maxKey=held.high)
            for one, held in segments.items()
        ]
        return pb.SegmentRanges(segmentRanges=found)

    def _head(self) -> Any:
        at = pb.SegmentsAtTime.SegmentLocation
        return pb.SegmentsAtTime(
            segments=[
                at(segmentId=self._id(one.value), offset=offset) for one, offset in self._described.head.offsets.items()
            ]
        )

    # the segment store

    def _hook(self, store: ScriptedStore, client: Client, command: WireCommand) -> bool:
        lies = self._lies(True)
        if not lies:
            return False
        if lies in {"alive", "hello"}:
            frame = encode(wire.KeepAlive() if lies == "alive" else wire.Hello(16, 5))
            began = time.monotonic()
            while time.monotonic() - began < 12:  # the socket's buffer slows it down
                client.send_raw(frame * 100)
                time.sleep(0.001)
        elif lies == "negative":
            client.send_raw(HEADER.pack(10, self._rng.choice((-1, -(2**31)))) + b"x" * 100)
        elif lies == "gigabytes":
            client.send_raw(
                HEADER.pack(self._rng.choice((10, 12, 100, -127)), self._rng.choice((2**31 - 1, 2**24 - 1, 2**24)))
            )
        elif lies == "unknown":
            client.send_raw(HEADER.pack(self._rng.choice((0, 999, -1, 2**31 - 1)), 4) + b"abcd")
        elif lies == "noise":
            client.send_raw(self._rng.randbytes(5_000))
        elif lies == "drop":
            client.hang_up()
        elif lies == "wrong host":
            number = getattr(command, "request_id", 0)
            client.send(wire.WrongHost(number, "demo/orders/0.#epoch.0", self._rng.choice(TEXTS[:6]), ""))
        else:
            self._spoil_frames(store, client, command, lies)
        return True

    def _spoil_frames(self, store: ScriptedStore, client: Client, command: WireCommand, lies: str) -> None:
        """Answer honestly, and change what is sent."""
        sent: list[WireCommand] = []
        asked: Any = _Recorder(sent)
        store.answer(asked, command)
        for one in sent:
            frame = encode(one)
            if lies == "fields":
                frame = encode(_spoiled(self._rng, one))
            elif lies == "cut":
                frame = frame[: self._rng.randrange(len(frame))]
            elif lies == "twice":
                frame *= 2
            elif lies == "data" and isinstance(one, wire.SegmentRead):
                frame = encode(replace(one, data=one.data + bytes(self._rng.choice((1, 100_000)))))
            client.send_raw(frame)
        if lies == "cut":
            client.hang_up()


class _Recorder:
    """Takes what a client would be sent."""

    def __init__(self, sent: list[WireCommand]) -> None:
        self._sent = sent
        self.begun: dict[UUID, int] = {}

    def send(self, *commands: WireCommand) -> None:
        self._sent += commands

    def hang_up(self) -> None:
        pass


def _spoiled(rng: random.Random, command: WireCommand) -> WireCommand:
    """A command with another value in one of its fields."""
    chosen = rng.choice(fields(command)) if fields(command) else None
    if chosen is None:
        return command
    value = getattr(command, chosen.name)
    for _ in range(20):
        other: Any = value
        if isinstance(value, bool):
            other = not value
        elif isinstance(value, int):
            other = rng.choice(NUMBERS)
        elif isinstance(value, str):
            other = rng.choice(TEXTS[:7])
        elif isinstance(value, bytes):
            other = value[: rng.randrange(len(value) + 1)]
        try:
            made = replace(command, **{chosen.name: other})
            encode(made)
        except struct.error:
            continue
        return made
    return command


def _places(message: Any) -> list[tuple[Any, Any]]:
    """Each field of a message and of those in it."""
    found = [(message, field) for field in message.DESCRIPTOR.fields]
    for field, value in message.ListFields():
        if field.cpp_type == field.CPPTYPE_MESSAGE and not (field.message_type.GetOptions().map_entry):
            inner = value if field.label == field.LABEL_REPEATED else [value]
            found += itertools.chain.from_iterable(_places(one) for one in itertools.islice(inner, 50))
    return found


def _streams(here: HostilePravega, request: Any, _context: Any) -> Any:
    name = here._described.name
    found = [] if request.continuationToken.token else [pb.StreamInfo(scope=name.scope, stream=name.stream)]
    return pb.StreamsInScopeResponse(streams=found, continuationToken=pb.ContinuationToken(token="end"), status=0)


def _scopes(here: HostilePravega, request: Any, _context: Any) -> Any:
    found = [] if request.continuationToken.token else [here._described.name.scope]
    return pb.ScopesResponse(scopes=found, continuationToken=pb.ContinuationToken(token="end"))


def _of_stream(make: Callable[[HostilePravega, Any], Any], about: Callable[[Any], Any] = lambda one: one) -> Any:
    return lambda here, request, _context: make(here, request) if here._is_mine(about(request)) else None


_HONEST: dict[str, Callable[[HostilePravega, Any, Any], Any]] = {
    "listScopes": _scopes,
    "listStreamsInScope": _streams,
    "listKeyValueTablesInScope": lambda *_: pb.KVTablesInScopeResponse(),
    "checkScopeExists": lambda *_: pb.ExistsResponse(exists=True),
    "checkStreamExists": lambda here, request, _: pb.ExistsResponse(exists=here._is_mine(request)),
    "createScope": lambda *_: pb.CreateScopeStatus(status=2),
    "createStream": lambda *_: pb.CreateStreamStatus(status=0),
    "getStreamConfiguration": _of_stream(
        lambda here, _: configuration_message(here._described.name, here._described.configuration)
    ),
    "getSegments": _of_stream(lambda here, _: here._head(), lambda one: one.streamInfo),
    "getCurrentSegments": _of_stream(lambda here, _: here._ranges(len(here._described.epochs) - 1)),
    "getEpochSegments": _of_stream(lambda here, one: here._ranges(one.epoch), lambda one: one.streamInfo),
    "getURI": lambda here, *_: pb.NodeUri(endpoint="127.0.0.1", port=here._segments.port),
    "getDelegationToken": lambda *_: pb.DelegationToken(delegationToken="a.b.c"),
    "getReaderGroupConfig": lambda *_: pb.ReaderGroupConfigResponse(status=2),
}
