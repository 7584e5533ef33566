"""The format ``pravega`` as a target: every task fills a transaction, the driver joins them and commits once."""

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

from common.errors import Conflict, Failed, Problem
from streamstore.own import describe_source
from streamstore.store import StreamStore
from streamstore.transactions import Transaction, TransactionState, Written
from streamvault.spark.ledger import Ledger, Note
from streamvault.spark.task_writer import write_rows
from streamvault.spark.writing import Writing

__all__ = ["PravegaSink", "PravegaStreamSink", "TaskDone"]

_log = logging.getLogger(__name__)

_QUERY = "sql.streaming.queryId"
"""Where Spark tells tasks the id of a streaming query, which is kept in its checkpoint."""


@dataclass
class TaskDone(WriterCommitMessage):
    """What a task tells the driver.

    Attributes:
        written: its transaction, open, with all of its rows; None if it had none.
        query: the streaming query's id; empty for a batch.
    """

    written: Written | None
    query: str


class PravegaSink(DataSourceArrowWriter):
    """A write of one data frame.

    Args:
        writing: the options.
    """

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """A task's rows."""
        return _write(self._writing, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make all events readable, by one transaction; nothing if they are already, by their name."""
        app, version = self._writing.app, self._writing.version
        named = None if version is None else _Name(app, version, _query(messages), counts_up=False)
        _commit(self._writing, messages, named)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop what tasks wrote."""
        _abort(self._writing, _parts(messages))


class PravegaStreamSink(DataSourceStreamArrowWriter):
    """The writes of a streaming query, a micro-batch each.

    Args:
        writing: the options.
    """

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """A task's rows."""
        return _write(self._writing, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make a micro-batch's events readable, unless an earlier run of the query has."""
        query = _query(messages)
        app = self._writing.app or query
        if _parts(messages) and not app:
            raise Failed("Spark does not say which query this is", todo="Set option txnAppId to a name of its own.")
        _commit(self._writing, messages, _Name(app, batchId, query, counts_up=True))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Drop what tasks wrote."""
        _abort(self._writing, _parts(messages))


def _write(writing: Writing, batches: Iterator[pa.RecordBatch]) -> TaskDone:
    context = TaskContext.get()
    query = (context.getLocalProperty(_QUERY) if context is not None else None) or ""
    with writing.address.lend() as store:
        return TaskDone(write_rows(writing, store.transactions(), batches), query)


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """What the tasks wrote, in the order of the partitions."""
    return [m.written for m in messages if isinstance(m, TaskDone) and m.written is not None]


def _query(messages: Sequence[WriterCommitMessage | None]) -> str:
    """The id of the streaming query that the tasks wrote for; empty for a batch job."""
    return next((message.query for message in messages if isinstance(message, TaskDone)), "")


@dataclass(frozen=True, slots=True)
class _Name:
    """What names a write.

    Attributes:
        app, version: as of `Writing`. query: as of `Note`.
        counts_up: whether a version below the newest is no repetition: a query repeats its last batch at most.
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
    transactions, ledger = store.transactions(), Ledger(store, writing.stream, name.app)
    newest = ledger.newest(name.query)
    if newest is not None and _is_there(store, ledger, newest, name):
        _log.info("write %s of %s to %s is there already", name.version, name.app, writing.stream)
        _drop(store, [parts[0].transaction])
        return
    joined = transactions.join(parts)
    ledger.note(Note(name.version, joined, committed=False, query=name.query))
    _check(transactions.commit(joined), joined)
    ledger.note(Note(name.version, joined, committed=True, query=name.query))


def _is_there(store: StreamStore, ledger: Ledger, newest: Note, name: _Name) -> bool:
    """Whether an earlier run has committed this version, or a later one; one that it had only prepared is committed.

    Raises:
        Conflict: a query is behind what it has written. Failed: nobody can say any more.
    """
    if name.counts_up and name.version < newest.version:
        raise Conflict(
            f"the query has written batch {newest.version} already and is at batch {name.version} again: "
            "its checkpoint is older than what it has written",
            where=f"{name.app}, to {newest.transaction.stream}",
            todo="Use the newest checkpoint, or begin a new one under another txnAppId.",
        )
    if newest.version != name.version or newest.committed:
        return newest.version >= name.version
    transactions = store.transactions()
    state = transactions.state(newest.transaction)
    if state is TransactionState.OPEN:
        state = transactions.commit(newest.transaction)
    if state.is_committed:
        ledger.note(Note(name.version, newest.transaction, committed=True, query=name.query))
        return True
    if state is TransactionState.UNKNOWN:
        raise Failed(
            "nobody can say whether an earlier run has written this: Pravega has forgotten the transaction",
            where=f"write {name.version} to {newest.transaction.stream}, transaction {newest.transaction.id}",
            todo=f"Look into the stream. To write it again, delete the stream {ledger.stream} first.",
        )
    return False


def _check(state: TransactionState, transaction: Transaction) -> None:
    if not state.is_committed:
        raise Failed(
            f"the transaction was not committed: it is {state}",
            where=f"{transaction.stream}, {transaction.id}",
            todo="Nothing was written; write again.",
        )


def _abort(writing: Writing, parts: Sequence[Written]) -> None:
    if parts:
        with writing.address.lend() as store:
            _drop(store, [part.transaction for part in parts])


def _drop(store: StreamStore, transactions: Sequence[Transaction]) -> None:
    """Abort transactions; those that cannot be reached now end with their lease."""
    for transaction in transactions:
        with suppress(Problem):
            store.transactions().abort(transaction)
