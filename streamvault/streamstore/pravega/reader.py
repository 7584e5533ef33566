"""Reads a range of a segment: several requests under way, answers put back in order, memory bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from streamvault.streamstore.errors import WireError
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.connection import Connection, ConnectionLost
from streamvault.streamstore.pravega.segments import SegmentName, SegmentSession, SegmentStores, truncated
from streamvault.streamstore.pravega.wire import WireCommand, encode

PART_BYTES = 1024 * 1024
"""Size of one request and one block (bytes)."""

IN_FLIGHT = 8
"""Requests under way at once, so also the memory taken, in parts."""

LEAST_ANSWER = 8
"""Minimum bytes a segment store returns, if available, even if fewer are requested."""


@dataclass(slots=True, eq=False)
class _Part:
    """A piece of the range: one buffer, filled by one answer or several."""

    start: int
    size: int
    buffer: memoryview
    filled: int = 0
    request_id: int = 0
    failure: WireCommand | None = None

    @property
    def next(self) -> int:
        return self.start + self.filled

    @property
    def ready(self) -> bool:
        return self.filled == self.size or self.failure is not None


class BlockReader(SegmentSession):
    """Reads the bytes ``[start, end)`` of a segment once, in order; ``end`` must not lie beyond the write offset.

    At most ``in_flight`` requests for ``part_bytes`` each are under way at once.
    """

    def __init__(
        self,
        stores: SegmentStores,
        segment: SegmentName,
        start: int,
        end: int,
        *,
        part_bytes: int = PART_BYTES,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        super().__init__(stores, segment, write=False)
        self._end = end
        self._next = start
        self._waiting: deque[_Part] = deque()
        self._asked: dict[int, _Part] = {}
        self._part_bytes = min(part_bytes, end - start)
        self._unused = -(-(end - start) // part_bytes) if end - start < in_flight * part_bytes else in_flight
        self._free: list[memoryview] = []
        # the answer's segment name and what follows it up to the data, and the request id after the data
        self._name_size = 2 + len(self._name.encode())
        self._prefix = memoryview(bytearray(self._name_size + wire.READ_PREFIX.size))
        self._suffix = memoryview(bytearray(8))

    def blocks(self) -> Iterator[memoryview]:
        """The bytes, as blocks that are valid until the next one is asked for.

        Raises:
            SegmentTruncated, NoSuchSegment: as `StreamStore.read` says.
            SegmentTooShort, ValueError: as `SegmentInfo.check_range` says.
        """
        if self._is_empty():
            return
        try:
            while self._next < self._end or self._waiting:
                self._persist(self._ask_ahead)
                part = self._waiting[0]
                while not part.ready:
                    self._persist(self._receive)
                self._waiting.popleft()
                if part.filled:
                    yield part.buffer[: part.filled]
                if part.failure is not None:
                    raise self._refused(part.failure)
                self._free.append(part.buffer)
        finally:
            self._leave()

    def _is_empty(self) -> bool:
        start, end = self._next, self._end
        info = self._stores.infos(self._segment.stream, [self._segment.id], self._segment.part)[0]
        info.check_range(start, end, self._where)
        if start < min(end, info.start_offset):
            raise truncated(info, self._where)
        return start == end

    def _resume(self, connection: Connection) -> None:
        self._asked.clear()
        for part in self._waiting:
            if not part.ready:
                self._ask(connection, part)

    def _ask_ahead(self, connection: Connection) -> None:
        while self._next < self._end and (self._free or self._unused):
            if self._free:
                buffer = self._free.pop()
            else:
                self._unused -= 1
                buffer = memoryview(bytearray(self._part_bytes))
            part = _Part(self._next, min(self._part_bytes, self._end - self._next), buffer)
            self._waiting.append(part)
            self._next += part.size
            self._ask(connection, part)

    def _ask(self, connection: Connection, part: _Part) -> None:
        part.request_id = connection.request_id()
        self._asked[part.request_id] = part
        request = wire.ReadSegment(self._name, part.next, part.size - part.filled, self._new_token(), part.request_id)
        connection.send(encode(request))

    def _receive(self, connection: Connection) -> None:
        code, length = connection.receive_header()
        if code == wire.SegmentRead.code:
            self._receive_data(connection, length)
            return
        answer = connection.receive_payload(code, length)
        if isinstance(answer, wire.WrongHost | wire.AuthTokenCheckFailed):
            # the latter has no request id to go by
            raise self._refused(answer)
        part = self._asked.pop(getattr(answer, "request_id", 0), None)
        if part is None:
            raise WireError(f"an unexpected reply ({type(answer).__name__})", where=str(connection.endpoint))
        part.failure = answer

    def _receive_data(self, connection: Connection, length: int) -> None:
        """Take an answer's data straight into its part's buffer.

        The request id comes after the data, so the part is found by the offset before it and proved by the id.
        """
        connection.receive_into(self._prefix)
        name = bytes(self._prefix[2 : self._name_size]).decode(errors="replace")
        offset, _, _, count = wire.READ_PREFIX.unpack_from(self._prefix, self._name_size)
        part = next((part for part in self._asked.values() if part.next == offset), None)
        whole = self._name_size + wire.READ_PREFIX.size + count + len(self._suffix)
        room = 0 if part is None else part.size - part.filled
        if name != self._name or part is None or not 0 <= count <= max(room, LEAST_ANSWER) or length != whole:
            raise WireError(
                f"an unexpected reply ({count} bytes at {offset} of {name!r})", where=str(connection.endpoint)
            )
        taken = min(count, room)
        connection.receive_into(part.buffer[part.filled : part.filled + taken])
        connection.receive_bytes(count - taken)
        connection.receive_into(self._suffix)
        if int.from_bytes(self._suffix, "big") != part.request_id:
            raise WireError("a reply with another request's id", where=str(connection.endpoint))
        if count == 0:
            # the answer of a segment store that is about to release the segment
            raise ConnectionLost("it returned no data below the write offset")
        del self._asked[part.request_id]
        part.filled += taken
        self._progress()
        if not part.ready:
            self._ask(connection, part)

    def _leave(self) -> None:
        if self._connection is not None and not self._asked:
            self._stores.pool.give(self._connection)
            self._connection = None
        self._drop()
        self._waiting.clear()
        self._free.clear()
