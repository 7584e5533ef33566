"""The format ``pravega`` as a sink: each task fills a transaction; the driver joins them and commits once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from streamvault.common.errors import Conflict, Failed, Problem
from streamvault.spark.ledger import WriteLog
from streamvault.spark.task_writer import write_rows
from streamvault.spark.writing import Writing
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import describe_source
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.transactions import Transaction, TransactionState, Written

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
    """Commit a named write, unless an earlier run did; a transaction that it only prepared is committed now.

    Raises:
        Conflict: the query is behind its last written batch.
        Failed: the outcome of an earlier run can no longer be determined.
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
    if newest is not None and newest.version == name.version:
        newest = written.settle(newest)
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
