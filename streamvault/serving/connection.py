"""One client's connection to the segment store: requests of many segments, answered as they get ready."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from streamvault.common.errors import Damaged, Problem
from streamvault.objectstore.store import InArchiveClass
from streamvault.serving.access import EXPIRED
from streamvault.serving.cache import LARGEST_ANSWER
from streamvault.serving.state import NULL, StateLost, StateSegment
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated, WireError
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.segments import answer_to
from streamvault.streamstore.pravega.wire import HEADER, WireCommand, decode, encode

if TYPE_CHECKING:
    from streamvault.serving.segments import SegmentServer

_log = logging.getLogger(__name__)

LARGEST_REQUEST = 16 * 1024
"""The longest payload (bytes) of a request that writes nothing: names, and a token."""

LARGEST_APPEND = 2 * 1024 * 1024
"""The longest payload of one that writes: the state of a reader group has at most 1 MiB at once."""

READ_BYTES = 6 * 1024
"""Memory of a read that waits, besides its payload."""

FEW_READS = 2
"""Reads that each connection may have, however many others wait."""

AT_ONCE = 2
"""Reads of one connection that are fetched at once. No other is, until the client has taken one of the answers."""

MOST_READS = 1024
"""Reads of one connection that may wait at once; a client has one for each segment."""

SLOW_SECONDS = 60.0
"""A client that does not take `PIECE_BYTES`, or stops within a frame, for so long is disconnected."""

PIECE_BYTES = 257 * 1024
"""The most that is handed to the transport at once, 256 KiB and a header: with TLS, it takes all that it is given,
whatever its limit. Smaller pieces take time: of 16 KiB, a third."""

WRITER_BYTES = 1024
"""Memory of a writer that is set up, besides the name of its segment."""

FEW_WRITERS = 8
"""Writers that each connection may set up, however many others there are."""

SILENT_SECONDS = 600.0
"""So is one that sends nothing, not even a keep-alive, and has no read pending."""

_APPENDS = {
    kind.code for kind in (wire.AppendBlock, wire.AppendBlockEnd, wire.ConditionalAppend, wire.ConditionalBlockEnd)
}
_PARTIAL = -2
NO_END = "an append block without an end"


class ClientConnection:
    """A connection. What breaks the protocol, or is too much, closes it, and the log says why."""

    def __init__(self, server: SegmentServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._reads: set[asyncio.Task[None]] = set()
        self._writers: dict[UUID, str] = {}
        self._block: dict[UUID, bytes] = {}
        self._sending, self._turns, self._senders = asyncio.Lock(), asyncio.Semaphore(AT_ONCE), 0
        self._reason, self._received, self._answering, self._set_up_bytes = "", 0, 0, 0

    @property
    def is_answering(self) -> bool:
        """Whether an answer is being made or sent: not one that waits at a segment's end."""
        return self._answering > 0 or self._writer.transport.get_write_buffer_size() > 0

    @property
    def waiting(self) -> int:
        """How many of its reads wait."""
        return len(self._reads)

    @contextmanager
    def _an_answer(self) -> Iterator[None]:
        self._answering += 1
        try:
            yield
        finally:
            self._answering -= 1

    async def run(self) -> None:
        """Answer until the client hangs up, or is hung up on."""
        # wait until the transport is empty: since Python 3.12, the last bytes of an answer keep all of it in memory
        self._writer.transport.set_write_buffer_limits(0)
        _keep_alive(self._writer.get_extra_info("socket"))
        try:
            await self._greet()
            while True:
                frame = await self._receive()
                if self._server.stopping:
                    continue  # what is under way is finished
                with self._an_answer():
                    await self._take(*frame)
                if not self._block:
                    self._release()
        except (Problem, TimeoutError) as error:
            self._close(str(error) or f"it was silent for {SLOW_SECONDS:.0f} s")
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._release()
            self._server.cache.give_back_request(self._set_up_bytes)
            for task in self._reads:
                task.cancel()
            self._writer.transport.abort()

    def _release(self) -> None:
        self._server.cache.give_back_request(self._received)
        self._received = 0

    def _close(self, reason: str) -> None:
        if not self._reason:
            self._reason = reason
            self._server.count("closed connection", reason)
            _log.warning("a client's connection is closed: %s", reason)
        self._writer.transport.abort()

    async def _greet(self) -> None:
        async with asyncio.timeout(SLOW_SECONDS):
            code, payload = await self._receive()
        if code != wire.Hello.code:
            raise WireError(f"it did not say hello (type {code})")
        hello = decode(code, payload)
        if isinstance(hello, wire.Hello) and hello.low > wire.WIRE_VERSION:
            raise WireError(f"it speaks no version below {hello.low}")
        await self._send(encode(wire.Hello(wire.WIRE_VERSION, wire.OLDEST_WIRE_VERSION)))

    async def _receive(self) -> tuple[int, bytes]:
        code, length = HEADER.unpack(await self._header())
        is_large = length > LARGEST_REQUEST
        if not 0 <= length <= (LARGEST_APPEND if code in _APPENDS and self._writers else LARGEST_REQUEST):
            raise WireError(f"a frame of {length} bytes (type {code})")
        if is_large:  # until it is stored
            if not self._server.cache.take_request(length):
                raise WireError(f"a frame of {length} bytes, and others are sending too much")
            self._received += length
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                return code, await self._reader.readexactly(length)
        except TimeoutError:
            raise WireError(f"it stopped within a frame for {SLOW_SECONDS:.0f} s") from None

    async def _header(self) -> bytes:
        """Return the next frame's; a client may be silent for long only while a read of its own waits."""
        while True:
            patience = SLOW_SECONDS if self._block else SILENT_SECONDS
            try:
                async with asyncio.timeout(patience) as limit:
                    return await self._reader.readexactly(HEADER.size)  # which takes all or nothing
            except TimeoutError:
                if not limit.expired():  # the kernel's: the client's machine is gone
                    raise
                if self._block or not self._reads:
                    raise WireError(f"it was silent for {patience:.0f} s") from None

    async def _send(self, *parts: bytes | memoryview) -> None:
        async with self._to_send():
            await self._write(list(parts))

    @asynccontextmanager
    async def _to_send(self) -> AsyncIterator[None]:
        """Wait until no other frame is being sent, and let none begin within the block.

        A free lock may already be promised to a frame that waits for it, so those that wait are counted.
        """
        self._senders += 1
        try:
            async with self._sending:
                yield
        finally:
            self._senders -= 1

    async def _write(self, parts: list[bytes | memoryview]) -> None:
        """Send a frame, and wait until the transport has handed on all of it. The list is empty afterwards."""
        data = memoryview(b"".join(parts))
        parts.clear()  # so that what waits is in memory once, and no block is
        try:
            step = -(-len(data) // -(-len(data) // PIECE_BYTES))
            for at in range(0, len(data), step):
                if self._writer.transport.is_closing():  # asyncio would take what nobody gets, and log that
                    raise ConnectionError
                self._writer.write(data[at : at + step])
                if self._writer.transport.get_write_buffer_size():  # else all is handed on; with TLS, drain would wait
                    async with asyncio.timeout(SLOW_SECONDS):
                        await self._writer.drain()
        except TimeoutError:
            self._close(f"it accepted no data for {SLOW_SECONDS:.0f} s")
            raise ConnectionError from None

    async def _take(self, code: int, payload: bytes) -> None:
        if self._block and code != wire.AppendBlockEnd.code:  # Pravega's encoder sends nothing between them
            raise WireError(NO_END)
        if not wire.is_command(code):
            self._server.count("unknown command", f"type {code}")
            await self._send(encode(wire.unsupported(code, payload, self._server.read_only)))
            return
        request = decode(code, payload)
        self._server.count(type(request).__name__)
        token = getattr(request, "token", None)
        if token is not None and (why := await self._server.refusal(token)) is not None:
            self._server.count("invalid token", "the token has expired" if why == EXPIRED else "the token is not valid")
            number = request.offset if isinstance(request, wire.ReadSegment) else getattr(request, "request_id", 0)
            await self._send(encode(wire.AuthTokenCheckFailed(number, "", why)))  # a Pravega, too, says the offset
        elif isinstance(request, wire.ReadSegment):
            self._begin(replace(request, token=""), READ_BYTES + len(request.segment))
        elif isinstance(request, wire.KeepAlive):
            await self._send(encode(request))
        elif isinstance(request, wire.AppendBlock):
            self._block = {request.writer_id: request.data}  # its end follows at once
        elif isinstance(request, wire.AppendBlockEnd | wire.ConditionalAppend | wire.ConditionalBlockEnd):
            await self._send(encode(await self._append(request)))
        elif not isinstance(request, wire.Padding | wire.Hello):
            await self._send(encode(await self._answer(request, code, payload)))

    async def _answer(self, request: WireCommand, code: int, payload: bytes) -> WireCommand:
        number, name = getattr(request, "request_id", 0), getattr(request, "segment", "")
        try:
            return await self._found(request, number, name) or wire.unsupported(code, payload, self._server.read_only)
        except NoSuchSegment:
            if isinstance(request, wire.GetStreamSegmentInfo):
                return wire.StreamSegmentInfo(number, name, False, False, False, 0, 0, 0)
            return wire.NoSuchSegment(number, name, "", 0)
        except StateLost:
            raise
        except Problem as error:
            _log.warning("%s", error)
            return answer_to(error, number, name)

    async def _found(self, request: WireCommand, number: int, name: str) -> WireCommand | None:
        """Return the answer about a segment; None if there is none. Errors as for `SegmentServer.info`."""
        server = self._server
        if not hasattr(request, "token"):  # no request, but an answer, say
            return None
        found = await server.find(name) if name else None
        if isinstance(request, wire.GetStreamSegmentInfo):
            info = await server.info(name)
            end, start = info.write_offset, info.start_offset
            return wire.StreamSegmentInfo(number, name, True, info.sealed, False, 0, end, start)
        if isinstance(request, wire.SetupAppend):  # a Pravega, too, refuses only the append
            self._set_up(request)
            writer, last = request.writer_id, NULL
            if isinstance(found, StateSegment):
                last = await server.stored(found.last_event, writer)
            return wire.AppendSetup(number, name, writer, last)
        if isinstance(request, wire.GetSegmentAttribute):
            value = NULL
            if isinstance(found, StateSegment):
                value = await server.stored(found.attribute, request.attribute)
            return wire.SegmentAttribute(number, value)
        return await server.stored(_changed, found, request) if isinstance(found, StateSegment) else None

    def _set_up(self, request: wire.SetupAppend) -> None:
        if request.writer_id not in self._writers:
            if len(self._writers) >= MOST_READS:
                raise WireError(f"more than {MOST_READS} writers")
            if not self._server.cache.take_request(WRITER_BYTES, always=len(self._writers) < FEW_WRITERS):
                raise WireError("too many writers are set up at once")
            self._set_up_bytes += WRITER_BYTES
        self._writers[request.writer_id] = request.segment

    async def _append(
        self, request: wire.AppendBlockEnd | wire.ConditionalAppend | wire.ConditionalBlockEnd
    ) -> WireCommand:
        expected, data = None, request.data
        if isinstance(request, wire.ConditionalAppend):
            expected, data = request.expected_offset, struct.pack(">ii", request.type, len(data)) + data
        elif isinstance(request, wire.ConditionalBlockEnd):
            expected = request.expected_offset
        elif (block := self._block.pop(request.writer_id, None)) is not None:
            data = _joined(block, request.whole_bytes, data)
        elif self._block:
            raise WireError(NO_END)
        name = self._writers.get(request.writer_id)
        if name is None:
            raise WireError("an append without a set-up")
        writer, number = request.writer_id, request.event_number
        try:
            found = await self._server.find(name)
            if not isinstance(found, StateSegment):
                self._server.count("read only", name)
                if isinstance(request, wire.AppendBlockEnd):
                    # any other answer makes Java's writer try again for ever; now it asks for the successors, and the
                    # controller says why there are none
                    return wire.NoSuchSegment(request.request_id, name, self._server.read_only, 0)
                return wire.OperationUnsupported(request.request_id, type(request).__name__, self._server.read_only)
            done = await self._server.stored(found.append, writer, number, data, expected)
        except NoSuchSegment as error:
            return answer_to(error, request.request_id, name)
        if done is None:
            return wire.ConditionalCheckFailed(writer, number, request.request_id)
        self._server.changed(name)
        return wire.DataAppended(writer, number, done.before, request.request_id, done.end)

    def _begin(self, request: wire.ReadSegment, size: int) -> None:
        waiting, cache = len(self._reads), self._server.cache
        if waiting >= MOST_READS or not cache.take_request(size, always=waiting < FEW_READS):
            raise WireError("too many reads wait at once")
        task = asyncio.create_task(self._read(request))
        self._reads.add(task)
        task.add_done_callback(self._reads.discard)
        task.add_done_callback(lambda _: cache.give_back_request(size))

    async def _read(self, request: wire.ReadSegment) -> None:
        name, offset = request.segment, request.offset
        try:
            end = await self._there(name, offset)
            if end <= offset:
                await self._send(*wire.encode_read(name, offset, 0, request.request_id, end=True))
                return
            while (cold := await self._answer_read(request, end)) is not None:
                await self._server.wait_for_warmth(name, cold)  # as a reader does at a segment's end
        except StateLost as error:
            self._close(str(error))
        except Problem as error:
            if not isinstance(error, SegmentTruncated | NoSuchSegment):
                _log.warning("%s", error)
            if isinstance(error, Damaged):  # clients cut what is long
                self._server.count("damage", str(error))
                error = Damaged(error.what, todo="Run 'streamvault check --read-data' on the archive.")
            with suppress(ConnectionError):
                await self._send(encode(answer_to(error, request.request_id, name, offset)))
        except ConnectionError:
            self._writer.transport.abort()
        except Exception:  # noqa: BLE001  (an error of ours: the client's other reads go on, on another connection)
            _log.exception("read of %s at %d", name, offset)
            self._writer.transport.abort()

    async def _answer_read(self, request: wire.ReadSegment, end: int) -> InArchiveClass | None:
        """Answer with bytes; if they must first be restored by S3, answer nothing and return why."""
        length = min(max(request.length, 1), LARGEST_ANSWER, end - request.offset)
        with self._an_answer():
            async with self._turns:
                try:
                    held = [await self._server.read(request.segment, request.offset, length)]
                except InArchiveClass as error:
                    return error
                if self._senders:
                    held.clear()  # what waits keeps no block in memory
                async with self._to_send():
                    await self._send_bytes(request, length, held)
        return None

    async def _send_bytes(self, request: wire.ReadSegment, length: int, held: list[bytes | memoryview]) -> None:
        """Send an answer, in parts for which memory is taken; none of them keeps a block in memory.

        Args:
            request: the request that is answered.
            length: how much there is to send (bytes).
            held: the first block if it is there; empty afterwards.
        """
        server, name, at = self._server, request.segment, request.offset
        block = held.pop() if held else await server.read(name, at, length)
        end = at + len(block)
        first, last = wire.encode_read(name, at, len(block), request.request_id)
        parts: list[bytes | memoryview] = [first]
        while True:
            size = server.cache.answer_bytes(end - at)
            try:
                parts.append(block[:size])
                at += len(parts[-1])
                block = b""
                if at == end:
                    parts.append(last)
                server.sent += len(parts[-2 if at == end else -1])
                await self._write(parts)
            finally:
                server.cache.answered(size)
            if at == end:
                return
            try:
                block = await server.read(name, at, end - at)
            except Problem as error:  # in the middle of a frame, so there is no other answer
                self._close(str(error))
                raise ConnectionError from None

    async def _there(self, name: str, offset: int) -> int:
        """Wait until there is something at an offset, or until it is a sealed segment's end; return the end."""
        change = None
        while True:
            info = await self._server.info(name, None if change else offset)
            if offset < info.start_offset:
                raise SegmentTruncated("truncated", where=name, start_offset=info.start_offset)
            if offset < info.write_offset:
                return info.write_offset
            if info.sealed:
                await self._server.check_end(name)
                return info.write_offset
            if change is not None and not change.is_set():
                await change.wait()
                change = None
            else:  # and look again, as it may have changed before
                change = self._server.change(name, info)


def _changed(found: StateSegment, request: WireCommand) -> WireCommand | None:
    """Change a group's state other than by an append; None if that is not served."""
    if isinstance(request, wire.UpdateSegmentAttribute):
        done = found.swap(request.attribute, request.expected, request.value)
        return wire.SegmentAttributeUpdated(request.request_id, done)
    if isinstance(request, wire.TruncateSegment):
        number, name = request.request_id, request.segment
        if found.truncate(request.offset):
            return wire.SegmentTruncated(number, name)
        return wire.SegmentIsTruncated(number, name, found.info().start_offset, "", request.offset)
    return None


def _joined(block: bytes, whole: int, more: bytes) -> bytes:
    """Return the events of an append block; the last one may be parted."""
    data, rest = block[:whole], block[whole:]
    if len(rest) >= HEADER.size and struct.unpack_from(">i", rest)[0] == _PARTIAL:
        (size,) = struct.unpack_from(">i", rest, 4)
        return data + rest[HEADER.size : HEADER.size + max(size, 0)] + more
    return data + more


def _keep_alive(client: socket.socket) -> None:
    """Have the kernel ask a client that is silent if it is still there: one that waits at a segment's end may be."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, name):  # Linux
            client.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
