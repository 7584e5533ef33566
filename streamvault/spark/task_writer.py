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
from streamvault.streamstore.services.buffers import TransactionBuffers
from streamvault.streamstore.services.pinger import Pinger
from streamvault.streamstore.transactions import Transaction, Transactions, Written


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
    events, keys = batch.column(writing.payload), None
    if events.null_count:
        raise Usage("an event is null", where=f"to {writing.stream}", todo="Filter such rows out.")
    if writing.routing_key is not None:
        keys = batch.column(writing.routing_key)
    places = segments.places(keys, batch.num_rows)
    for event, place in zip(events.cast(pa.large_binary()).to_pylist(), places.tolist(), strict=True):
        segments.add(place, event)


class _Segments(TransactionBuffers):
    """Segments of a transaction, with a buffer each."""

    def __init__(self, transactions: Transactions, transaction: Transaction, stack: ExitStack) -> None:
        super().__init__(transactions, transaction, stack)
        self._random = np.random.default_rng()

    def places(self, keys: pa.Array | None, count: int) -> npt.NDArray[np.intp]:
        """Return the index of each row's segment: by its routing key, or random without one."""
        if keys is None or keys.null_count == len(keys):
            return self.router.indexes(self._random.random(count))
        encoded = pc.dictionary_encode(keys)
        places = np.array([self.router.index_of(key) for key in encoded.dictionary.to_pylist()], np.intp)
        found: npt.NDArray[np.intp] = places[encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        if keys.null_count:
            anywhere = np.asarray(keys.is_null())
            found[anywhere] = self.router.indexes(self._random.random(int(anywhere.sum())))
        return found
