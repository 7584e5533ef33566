"""Appends blocks to a segment, each at a known offset, a few in flight; resumes after a lost connection.

To recognise its own blocks, each block's event number is its end offset, and the segment stores the writer's last event
number together with the block. So after a lost connection, either the write offset equals this writer's last event
number and everything up to there is its own, or there is another writer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from streamvault.streamstore.byte_source import StoredBytes
from streamvault.streamstore.errors import OffsetConflict, SegmentSealed, StreamStoreError, WireError
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.connection import Connection
from streamvault.streamstore.pravega.reader import BlockReader
from streamvault.streamstore.pravega.segments import InDoubt, SegmentName, SegmentSession, SegmentStores
from streamvault.streamstore.pravega.wire import WireCommand, encode
from streamvault.streamstore.store import SegmentAppender


@dataclass(slots=True, frozen=True)
class _Block:
    start: int
    data: memoryview

    @property
    def end(self) -> int:
        return self.start + self.data.nbytes


class PravegaAppender(SegmentSession, SegmentAppender):
    """See `SegmentAppender`. Used by one thread at a time.

    Raises:
        NoSuchSegment, SegmentSealed: as `StreamStore.appender`.
    """

    def __init__(self, stores: SegmentStores, segment: SegmentName, *, in_flight: int = 4) -> None:
        if in_flight < 1:
            raise ValueError("in_flight must be at least 1")
        super().__init__(stores, segment, write=True)
        self._in_flight = in_flight
        self._writer = uuid4()
        self._blocks: deque[_Block] = deque()
        self._failure: StreamStoreError | None = None
        self._closed = False
        self._began: int | None = None
        self.offset = self.acknowledged = self._sent = 0
        self._persist(self._send_rest)

    def append(self, block: bytes | bytearray | memoryview) -> None:
        """Send one block; waits for an acknowledgement first while too many are in flight."""
        data = self.checked(block)
        self._check_usable()
        self._until(lambda: len(self._blocks) < self._in_flight)
        self._blocks.append(_Block(self.offset, data))
        self.offset += data.nbytes
        self._guarded(lambda: self._persist(self._send_rest))

    def flush(self) -> int:
        """Wait until all is acknowledged."""
        self._check_usable()
        self._until(lambda: not self._blocks)
        return self.acknowledged

    def close(self) -> None:
        """Give up what is not acknowledged and close the connection."""
        self._closed = True
        self._drop()
        self._blocks.clear()

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise StreamStoreError("the appender is closed", where=self._where)

    def _until(self, enough: Callable[[], bool]) -> None:
        while not enough():
            self._guarded(lambda: self._persist(self._receive))

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run an action; after an error no further block may be sent, as it would leave a gap."""
        try:
            action()
        except BaseException as error:
            self._drop()
            if isinstance(error, StreamStoreError):
                self._failure = error
            raise

    def _resume(self, connection: Connection) -> None:
        """Find out what the segment holds, and resend what is missing."""
        token = self._new_token()
        info = self._ask(connection, wire.GetStreamSegmentInfo(connection.request_id(), self._name, token))
        if not isinstance(info, wire.StreamSegmentInfo):
            raise self._refused(info)
        if not info.exists or info.deleted:
            raise self._stores.gone(self._segment)
        setup = self._ask(connection, wire.SetupAppend(connection.request_id(), self._writer, self._name, token))
        if not isinstance(setup, wire.AppendSetup):
            raise self._refused(setup)
        self._token_was_refused = False
        if self._began is None:
            if info.sealed:
                raise SegmentSealed("the segment is sealed", where=self._where)
            self._began = self.offset = self.acknowledged = info.write_offset
        mine = max(setup.last_event_number, self._began)
        # it may be higher: blocks of the lost connection can arrive between the two requests
        if mine < info.write_offset:
            self._landed(mine)
            raise self._conflict(info.write_offset)
        self._landed(mine)
        self._sent = mine
        self._send_rest(connection)

    def _landed(self, end: int) -> None:
        """Accept everything up to ``end`` as written, by the last event number; prove it by comparing the bytes."""
        held = [block for block in self._blocks if block.end <= end]
        if end > self.acknowledged:
            if not held or held[-1].end != end:
                raise WireError(f"the segment reports a block ending at {end}, which was never sent", where=self._where)
            self._compare(held)
        self._acknowledge(end)

    def _compare(self, blocks: list[_Block]) -> None:
        """Compare the bytes: another writer's block of the same length may be in place of ours."""
        end = blocks[-1].end
        stored = StoredBytes(BlockReader(self._stores, self._segment, blocks[0].start, end).blocks())
        for block in blocks:
            if (at := stored.difference(block.data)) is not None:
                raise self._conflict(end, f" between {block.start + at} and {block.end}")

    def _send_rest(self, connection: Connection) -> None:
        """Send the blocks not yet sent on this connection."""
        for block in self._blocks:
            if block.start >= self._sent:
                request = connection.request_id()
                prefix, suffix = wire.encode_block(self._writer, block.end, block.start, block.data.nbytes, request)
                connection.send(prefix, block.data, suffix)
                self._sent = block.end

    def _receive(self, connection: Connection) -> None:
        """Receive one acknowledgement, which covers all blocks up to its number."""
        if not self._blocks:
            # a lost connection's blocks had all landed
            return
        answer = connection.receive()
        if isinstance(answer, wire.DataAppended):
            if not any(block.end == answer.event_number for block in self._blocks):
                raise WireError(f"acknowledgement of {answer.event_number}, which was never sent", where=self._where)
            self._acknowledge(answer.event_number)
        elif isinstance(answer, wire.ConditionalCheckFailed | wire.InvalidEventNumber):
            raise InDoubt("a Pravega segment store rejects a block at the segment's write offset")
        else:
            raise self._refused(answer)

    def _acknowledge(self, end: int) -> None:
        if end > self.acknowledged:
            self._progress()
        while self._blocks and self._blocks[0].end <= end:
            self._blocks.popleft()
        self.acknowledged = max(self.acknowledged, end)

    def _ask(self, connection: Connection, question: wire.GetStreamSegmentInfo | wire.SetupAppend) -> WireCommand:
        connection.send(encode(question))
        return connection.receive()

    def _conflict(self, write_offset: int, at: str = "") -> OffsetConflict:
        return OffsetConflict(
            f"another writer appended to the segment{at}; its write offset is now {write_offset}",
            where=self._where,
            todo="Stop other writers to the stream while it is filled.",
            write_offset=write_offset,
        )
