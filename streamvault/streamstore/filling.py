"""Fills a transaction: its events are gathered into blocks, and pings keep it open."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Self

from streamvault.common.errors import Problem
from streamvault.streamstore.framing import frame_into, pieces
from streamvault.streamstore.model import SegmentId
from streamvault.streamstore.routing import SegmentRouter
from streamvault.streamstore.store import SegmentAppender, Transaction, Transactions

_BUFFERS_BYTES = 32 * 1024 * 1024
"""Maximum size of all segments' buffers together (bytes)."""

_BLOCK_BYTES = (64 * 1024, 1024 * 1024)
"""Minimum and maximum size at which a segment's buffer is sent (bytes); it depends on the number of segments."""

_IN_FLIGHT = 2


class TransactionBuffers:
    """A buffer for each segment of a transaction.

    Args:
        transactions: the transaction's store.
        transaction: the transaction, which is open.
        stack: closes the appenders.

    Attributes:
        router: finds the segment of a routing key, whose index the methods take.
    """

    def __init__(self, transactions: Transactions, transaction: Transaction, stack: ExitStack) -> None:
        self.router = SegmentRouter(transaction.segments)
        self._transactions = transactions
        self._transaction = transaction
        self._stack = stack
        count = len(self.router.segments)
        self._block = min(_BLOCK_BYTES[1], max(_BLOCK_BYTES[0], _BUFFERS_BYTES // count))
        self._buffers = [bytearray() for _ in range(count)]
        self._appenders: dict[int, SegmentAppender] = {}

    def add(self, index: int, payload: bytes | memoryview) -> None:
        """Append an event to a segment.

        Raises:
            NotAnEvent: the payload is larger than 8 MiB.
        """
        frame_into(self._buffers[index], payload)
        self._send_full(index)

    def add_framed(self, index: int, data: bytes | memoryview) -> None:
        """Append whole events, with their headers, to a segment."""
        self._buffers[index] += data
        self._send_full(index)

    def finish(self) -> dict[SegmentId, int]:
        """Send the remaining events, and wait until all are stored; return the bytes of each segment."""
        for index, buffer in enumerate(self._buffers):
            if buffer:
                self._send(index)
        return {self.router.segments[index]: appender.flush() for index, appender in self._appenders.items()}

    def sent(self, segment: SegmentId, block: memoryview) -> None:
        """For a subclass: a block was appended to a segment."""

    def _send_full(self, index: int) -> None:
        if len(self._buffers[index]) >= self._block:
            self._send(index)

    def _send(self, index: int) -> None:
        block, segment = memoryview(self._buffers[index]), self.router.segments[index]
        self._buffers[index] = bytearray()
        appender = self._appenders.get(index)
        if appender is None:
            opened = self._transactions.appender(self._transaction, segment, in_flight=_IN_FLIGHT)
            appender = self._appenders[index] = self._stack.enter_context(opened)
        for piece in pieces(block):
            appender.append(piece)
            self.sent(segment, piece)


class Pinger:
    """Keeps a transaction open while it is being filled; a context manager.

    Args:
        transactions: the transaction's store.
        transaction: the transaction, which is open.
        lease: how long it stays open after a ping (seconds).
    """

    def __init__(self, transactions: Transactions, transaction: Transaction, lease: float) -> None:
        self._transactions = transactions
        self._transaction = transaction
        self._lease = lease
        self._done = threading.Event()
        self._failure: Problem | None = None
        self._thread = threading.Thread(target=self._ping, name="transaction", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def check(self) -> None:
        """Raise the error of a failed ping, if any."""
        if self._failure is not None:
            raise self._failure

    def _ping(self) -> None:
        while not self._done.wait(self._lease / 3):
            try:
                self._transactions.ping(self._transaction, self._lease)
            except Problem as problem:
                self._failure = problem
                return
