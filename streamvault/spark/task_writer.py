"""Write a task's rows, routed to segments, into the task's transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamvault.common.errors import Problem, Usage
from streamvault.spark.writing import Writing
from streamvault.streamstore.appender import SegmentAppender
from streamvault.streamstore.arithmetic.framing import MAX_BLOCK_BYTES, frame_into
from streamvault.streamstore.arithmetic.routing import SegmentRouter
from streamvault.streamstore.model import SegmentId
from streamvault.streamstore.services.pinger import Pinger
from streamvault.streamstore.transactions import Transaction, Transactions, Written

_BUFFERS_BYTES = 32 * 1024 * 1024
"""Maximum size of all segments' buffers together (bytes)."""

_BLOCK_BYTES = (64 * 1024, 1024 * 1024)
"""Minimum and maximum size at which a segment's buffer is sent (bytes); it depends on the number of segments."""

_IN_FLIGHT = 2


def write_rows(writing: Writing, transactions: Transactions, batches: Iterator[pa.RecordBatch]) -> Written | None:
    """Write rows into a transaction, which stays open; None if there are no rows.

    Memory: a batch and the segments' buffers.

    Raises:
        Usage: an event is null.
        NotAnEvent: an event is larger than 8 MiB.
        Problem: the store failed; the transaction was aborted.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return None
    transaction = transactions.begin(writing.stream, writing.lease)
    try:
        with Pinger(transactions, transaction, writing.lease) as pinger, ExitStack() as stack:
            segments = _Segments(transactions, transaction, stack)
            _add(writing, segments, first)
            for batch in batches:
                pinger.check()
                _add(writing, segments, batch)
            lengths = segments.finish()
        # renew the lease, for the time that the other tasks still need
        transactions.ping(transaction, writing.lease)
    except BaseException:
        with suppress(Problem):
            transactions.abort(transaction)
        raise
    return Written(transaction, lengths)


def _add(writing: Writing, segments: _Segments, batch: pa.RecordBatch) -> None:
    events, keys = batch.column(writing.event), None
    if events.null_count:
        raise Usage("an event is null", where=f"column event, to {writing.stream}", todo="Filter such rows out.")
    if writing.routing_key is not None:
        keys = batch.column(writing.routing_key)
    segments.add(events.cast(pa.large_binary()), segments.places(keys, batch.num_rows))


class _Segments:
    """Segments of a transaction, with a buffer each."""

    def __init__(self, transactions: Transactions, transaction: Transaction, stack: ExitStack) -> None:
        self._transactions = transactions
        self._transaction = transaction
        self._stack = stack
        self._router = SegmentRouter(transaction.segments)
        count = len(self._router.segments)
        self._block = min(_BLOCK_BYTES[1], max(_BLOCK_BYTES[0], _BUFFERS_BYTES // count))
        self._buffers = [bytearray() for _ in range(count)]
        self._appenders: dict[int, SegmentAppender] = {}
        self._random = np.random.default_rng()

    def places(self, keys: pa.Array | None, count: int) -> npt.NDArray[np.intp]:
        """Return the index of each row's segment: by its routing key, or random without one."""
        if keys is None or keys.null_count == len(keys):
            return self._router.indexes(self._random.random(count))
        encoded = pc.dictionary_encode(keys)
        places = np.array([self._router.index_of(key) for key in encoded.dictionary.to_pylist()], np.intp)
        found: npt.NDArray[np.intp] = places[encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        if keys.null_count:
            anywhere = np.asarray(keys.is_null())
            found[anywhere] = self._router.indexes(self._random.random(int(anywhere.sum())))
        return found

    def add(self, events: pa.Array, places: npt.NDArray[np.intp]) -> None:
        """Add events in order."""
        for event, place in zip(events.to_pylist(), places.tolist(), strict=True):
            buffer = self._buffers[place]
            frame_into(buffer, event)
            if len(buffer) >= self._block:
                self._send(place)

    def finish(self) -> dict[SegmentId, int]:
        """Send the remaining events, and wait until all are stored; return the bytes of each segment."""
        for place, buffer in enumerate(self._buffers):
            if buffer:
                self._send(place)
        return {self._router.segments[place]: appender.flush() for place, appender in self._appenders.items()}

    def _send(self, place: int) -> None:
        block = memoryview(self._buffers[place])
        self._buffers[place] = bytearray()
        appender = self._appenders.get(place)
        if appender is None:
            opened = self._transactions.appender(self._transaction, self._router.segments[place], in_flight=_IN_FLIGHT)
            appender = self._appenders[place] = self._stack.enter_context(opened)
        for low in range(0, len(block), MAX_BLOCK_BYTES):
            appender.append(block[low : low + MAX_BLOCK_BYTES])
