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

from problems import Failed, Problem
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
        _commit(self._writing, _parts(messages), self._writing.app, self._writing.version)

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
        queries = {message.query for message in messages if isinstance(message, TaskDone)}
        app = self._writing.app or next(iter(queries), "")
        parts = _parts(messages)
        if parts and not app:
            raise Failed("Spark does not say which query this is", todo="Set option txnAppId to a name of its own.")
        _commit(self._writing, parts, app, batchId)

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


def _commit(writing: Writing, parts: Sequence[Written], app: str, version: int | None) -> None:
    if not parts:
        return
    with writing.address.lend() as store:
        describe_source(store, writing.stream)
        if not app or version is None:
            joined = store.transactions().join(parts)
            _check(store.transactions().commit(joined), joined)
        else:
            _commit_once(store, writing, parts, app, version)
        _drop(store, [part.transaction for part in parts[1:]])


def _commit_once(store: StreamStore, writing: Writing, parts: Sequence[Written], app: str, version: int) -> None:
    transactions, ledger = store.transactions(), Ledger(store, writing.stream, app)
    newest = ledger.newest()
    if newest is not None and _is_there(store, ledger, newest, version):
        _log.info("write %s of %s to %s is there already", version, app, writing.stream)
        _drop(store, [parts[0].transaction])
        return
    joined = transactions.join(parts)
    ledger.note(Note(version, joined, committed=False))
    _check(transactions.commit(joined), joined)
    ledger.note(Note(version, joined, committed=True))


def _is_there(store: StreamStore, ledger: Ledger, newest: Note, version: int) -> bool:
    """Whether an earlier run has committed this version, or a later one; one that it had only prepared is committed.

    Raises:
        Failed: nobody can say any more.
    """
    if newest.version != version or newest.committed:
        return newest.version >= version
    transactions = store.transactions()
    state = transactions.state(newest.transaction)
    if state is TransactionState.OPEN:
        state = transactions.commit(newest.transaction)
    if state.is_committed:
        ledger.note(Note(version, newest.transaction, committed=True))
        return True
    if state is TransactionState.UNKNOWN:
        raise Failed(
            "nobody can say whether an earlier run has written this: Pravega has forgotten the transaction",
            where=f"write {version} to {newest.transaction.stream}, transaction {newest.transaction.id}",
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
