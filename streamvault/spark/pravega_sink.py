"""The format ``pravega`` as a sink: each task fills a transaction; the driver joins them and commits.

Log of a named write, so that a repetition writes nothing.

A write prepares a transaction with all of its events, records it, commits it, and records the commit
(`streamstore.transaction_log`).

A record is valid only for the same query and the same target, whose history and last bytes it has. A query whose
checkpoint was lost numbers its batches from 0 again, and a target that was deleted and recreated lacks the committed
events. To treat new events as written would lose them silently, so both cases are rejected.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from streamvault.common.errors import Conflict, Failed, Problem, Usage
from streamvault.importer.target import first_segment_id, look_again
from streamvault.sources.identity import COMPARED_SEGMENTS, Position, SourcePosition
from streamvault.sources.sources import StreamSource
from streamvault.spark.options import Writing
from streamvault.streamstore.byte_source import SourceTruncated
from streamvault.streamstore.filling import Pinger, TransactionBuffers
from streamvault.streamstore.ledger import LedgerConflict, LedgerNameTaken
from streamvault.streamstore.own import SPARK_LEDGER, describe_source, stream_beside
from streamvault.streamstore.store import StreamStore, Transaction, Transactions, TransactionState, Written
from streamvault.streamstore.transaction_log import Entry, Stage, TransactionLog
from streamvault.streamstore.uri import OpenStream


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedWrite(Entry):
    """State of a named write.

    Attributes:
        app: name of the writer.
        version: version of the write.
        query: id of the streaming query, as stored in its checkpoint; empty for a batch job.
        target: the first segment of the stream that is written to.
        reached: where the stream ended, so that it is recognized by the next write.
    """

    app: str
    version: int
    query: str
    target: str
    reached: Position


class WriteLog(TransactionLog[NamedWrite]):
    """The log of one writer to one stream.

    Args:
        stream: the stream that is written to; the log is in the same scope.
        app: name of the writer.
    """

    def __init__(self, stream: OpenStream, app: str) -> None:
        self._source = StreamSource(stream)
        self._app = app
        self._writer = f"{app}, to {stream.name}"
        what = "another process is writing with the same txnAppId"
        todo = "Run one query at a time, or give each its own txnAppId."
        conflict = LedgerConflict(what, where=self._writer, todo=todo)
        self._first_segment_id = ""
        super().__init__(stream.store, stream_beside(stream.name, SPARK_LEDGER, app), stream.name, NamedWrite, conflict)

    def newest_of(self, query: str) -> NamedWrite | None:
        """Return the newest record; None if there is none.

        Args:
            query: the query that is about to write; see `NamedWrite`.

        Raises:
            Conflict: the newest record is of another query, or of an earlier stream with the target's name; or a user's
                stream has the ledger's name.
            StreamStoreError: the ledger cannot be read.
        """
        look = self._source.look()
        self._first_segment_id = first_segment_id(look.described)
        try:
            last = self.newest(create=True)
        except LedgerNameTaken as taken:
            todo = "Rename or delete it, or give the write another txnAppId."
            raise LedgerNameTaken(taken.what, where=taken.where, todo=todo) from None
        if last is None:
            return None
        difference = last.reached.difference(look)
        if last.target != self._first_segment_id or difference:
            raise Conflict(
                "the target was deleted and recreated since the last write with this txnAppId, or is in another cluster"
                + (f": {difference}" if difference else ""),
                where=self._writer,
                todo=f"Delete the stream {self.name} to continue with the new target, or use another txnAppId.",
            )
        if last.query != query:
            writer = f"query {last.query}" if last.query else "a batch job"
            raise Conflict(
                f"another writer, {writer}, has written up to version {last.version} with this txnAppId; "
                "a query that lost its checkpoint counts as another writer",
                where=self._writer,
                todo="Use that query's checkpoint, or another txnAppId.",
            )
        return last

    def prepared(self, version: int, query: str, transaction: Transaction) -> NamedWrite:
        """Return the record of a write whose transaction is complete; `newest_of` must have been called before."""
        return NamedWrite(
            stage=Stage.COMMITTING,
            transaction=transaction,
            app=self._app,
            version=version,
            query=query,
            target=self._first_segment_id,
            reached=look_again(self._position, SourceTruncated),
        )

    def landed(self, entry: NamedWrite) -> NamedWrite:
        """See `TransactionLog.landed`: the target is recognized by what was written last."""
        return replace(entry, reached=look_again(self._position, SourceTruncated))

    def is_there(self, entry: NamedWrite) -> bool:
        """See `TransactionLog.is_there`: others write to the stream, so it cannot be known."""
        raise Failed(
            "Pravega no longer knows the transaction, so it is unknown whether an earlier run has written this",
            where=f"write {entry.version} to {entry.begun.stream}, transaction {entry.begun.id}",
            todo=f"Inspect the stream. To write again, delete the stream {self.name} first.",
        )

    def _position(self) -> SourcePosition:
        look, before = self._source.look(), self.last.reached if self.last else None
        return SourcePosition.at(look, look.described.tail, before, earlier=before, most=COMPARED_SEGMENTS)


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


_log = logging.getLogger(__name__)

_QUERY = "sql.streaming.queryId"
"""Property with a streaming query's id, which is stored in the query's checkpoint."""


@dataclass
class TaskDone(WriterCommitMessage):
    """Message of a finished task to the driver.

    Attributes:
        written: the task's transaction, open, with all of its rows; None if there were none.
        query: the streaming query's id; empty for a batch.
    """

    written: Written | None
    query: str


class _Sink:
    """What both sinks do alike."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """Write a task's rows."""
        context = TaskContext.get()
        query = (context.getLocalProperty(_QUERY) if context is not None else None) or ""
        with self._writing.address.lend() as store:
            return TaskDone(write_rows(self._writing, store.transactions(), iterator), query)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: ARG002, N803
        """Abort the tasks' transactions."""
        if parts := _parts(messages):
            with self._writing.address.lend() as store:
                _drop(store, [part.transaction for part in parts])


class PravegaSink(_Sink, DataSourceArrowWriter):
    """Writes one data frame."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make all events readable, by one transaction, unless the named write was committed before."""
        app, version = self._writing.app, self._writing.version
        named = None if version is None else _Name(app, version, _query(messages), counts_up=False)
        _commit(self._writing, messages, named)


class PravegaStreamSink(_Sink, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make a micro-batch's events readable, unless an earlier run of the query did."""
        query = _query(messages)
        app = self._writing.app or query
        if _parts(messages) and not app:
            raise Failed("Spark passes no query id", todo="Set the option txnAppId to a unique name.")
        _commit(self._writing, messages, _Name(app, batchId, query, counts_up=True))


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """Return the tasks' transactions, in the order of the partitions."""
    return [m.written for m in messages if isinstance(m, TaskDone) and m.written is not None]


def _query(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Return the streaming query's id; empty for a batch job."""
    return next((message.query for message in messages if isinstance(message, TaskDone)), "")


@dataclass(frozen=True, slots=True)
class _Name:
    """Name of a write.

    Attributes:
        app: see `Writing`.
        version: see `Writing`.
        query: see `NamedWrite`.
        counts_up: whether an older version is an error rather than a repetition: a query repeats only its last batch.
    """

    app: str
    version: int
    query: str
    counts_up: bool


def _commit(writing: Writing, messages: Sequence[WriterCommitMessage | None], name: _Name | None) -> None:
    parts = _parts(messages)
    if not parts:
        return
    with writing.address.lend() as store:
        describe_source(store, writing.stream)
        if name is None:
            joined = store.transactions().join(parts)
            _check(store.transactions().commit(joined), joined)
        else:
            _commit_once(store, writing, parts, name)
        _drop(store, [part.transaction for part in parts[1:]])


def _commit_once(store: StreamStore, writing: Writing, parts: Sequence[Written], name: _Name) -> None:
    """Commit a named write, unless an earlier run did; a transaction that one only prepared is committed first.

    Raises:
        Conflict: the query is behind its last written batch.
        Failed: the outcome of an earlier run can no longer be determined, or its version is not written.
    """
    written = WriteLog(OpenStream(store, writing.address, writing.stream), name.app)
    newest = written.newest_of(name.query)
    if newest is not None and name.counts_up and name.version < newest.version:
        raise Conflict(
            f"the query is at batch {name.version}, but has written batch {newest.version} already: "
            "its checkpoint is too old",
            where=f"{name.app}, to {writing.stream}",
            todo="Use the newest checkpoint, or a new one with another txnAppId.",
        )
    if newest is not None:
        newest = written.settle(newest)
        if newest.version < name.version and not newest.is_committed:
            raise Failed(
                f"an earlier run has not committed version {newest.version}, which would count as written",
                where=f"{name.app}, to {writing.stream}",
                todo=f"Write version {newest.version} first, or delete the stream {written.name} to do without it.",
            )
    if newest is not None and (
        newest.version > name.version or (newest.version == name.version and newest.is_committed)
    ):
        _log.info("write %s of %s to %s was committed before", name.version, name.app, writing.stream)
        _drop(store, [parts[0].transaction])
        return
    joined = store.transactions().join(parts)
    done = written.commit(written.prepared(name.version, name.query, joined), newest)
    _check(TransactionState.COMMITTED if done.is_committed else TransactionState.ABORTED, joined)


def _check(state: TransactionState, transaction: Transaction) -> None:
    if not state.is_committed:
        raise Failed(
            f"the transaction was not committed: it is {state}",
            where=f"{transaction.stream}, {transaction.id}",
            todo="Nothing was written; run the write again.",
        )


def _drop(store: StreamStore, transactions: Sequence[Transaction]) -> None:
    """Abort transactions; if that fails, they end when their lease expires."""
    for transaction in transactions:
        with suppress(Problem):
            store.transactions().abort(transaction)
