"""A target of the Spark sink, with transactions that can be killed before any step."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from streamvault.spark.options import Writing
from streamvault.spark.pravega_sink import TaskDone, write_rows
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.store import SegmentAppender, Transaction, Transactions, TransactionState
from testkit.killed import Killed
from testkit.streams import events_of

# ruff: noqa: ARG002  (an interface's arguments)


TARGET = StreamName("scope", "target")


class Buffer(SegmentAppender):
    """Appends to a list."""

    def __init__(self, parts: list[bytes]) -> None:
        self._parts = parts

    @property
    def offset(self) -> int:
        return sum(map(len, self._parts))

    @property
    def acknowledged(self) -> int:
        return self.offset

    def append(self, block: bytes | bytearray | memoryview) -> None:
        self._parts.append(bytes(block))

    def flush(self) -> int:
        return self.offset

    def close(self) -> None:
        pass


class ScriptedTransactions(Transactions):
    """Transactions over the embedded store, which can be killed before any step."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self.held: dict[uuid.UUID, dict[SegmentId, list[bytes]]] = {}
        self.states: dict[uuid.UUID, TransactionState] = {}
        self.pings = 0
        self.kill_before = ""

    def _step(self, name: str) -> None:
        if name == self.kill_before:
            raise Killed(name)

    def begin(self, stream: StreamName, lease: float) -> Transaction:
        made = Transaction(stream, uuid.uuid4(), self._store.describe(stream).epochs[-1].segments)
        self.held[made.id] = {segment: [] for segment in made.segments}
        self.states[made.id] = TransactionState.OPEN
        return made

    def ping(self, transaction: Transaction, lease: float) -> None:
        self.pings += 1

    def appender(self, transaction: Transaction, segment: SegmentId, *, in_flight: int = 4) -> SegmentAppender:
        return Buffer(self.held[transaction.id][segment])

    def read(self, transaction: Transaction, segment: SegmentId, end: int) -> Iterator[memoryview]:
        return map(memoryview, self.held[transaction.id][segment])

    def lengths(self, transaction: Transaction) -> Mapping[SegmentId, int]:
        return {segment: sum(map(len, parts)) for segment, parts in self.held[transaction.id].items()}

    def _merge(self, target: Transaction, source: Transaction, segments: Sequence[SegmentId]) -> None:
        for segment in segments:
            self.held[target.id][segment] += self.held[source.id].pop(segment)

    def commit(self, transaction: Transaction) -> TransactionState:
        self._step("commit")
        if self.states[transaction.id] is TransactionState.OPEN:
            for segment, parts in self.held[transaction.id].items():
                with self._store.appender(TARGET, segment) as appender:
                    for part in parts:
                        appender.append(part)
            self.states[transaction.id] = TransactionState.COMMITTED
        return self.states[transaction.id]

    def abort(self, transaction: Transaction) -> None:
        if self.states.get(transaction.id) is TransactionState.OPEN:
            self.states[transaction.id] = TransactionState.ABORTED

    def state(self, transaction: Transaction) -> TransactionState:
        return self.states.get(transaction.id, TransactionState.UNKNOWN)


class Place:
    """The target, its writers, and its contents."""

    def __init__(self, folder: Path) -> None:
        self.store = LocalStore(folder)
        self.store.create_scope(TARGET.scope)
        self.store.create_stream(TARGET, StreamConfiguration(scaling=Scaling(min_segments=3)))
        self.transactions = ScriptedTransactions(self.store)
        self.store.transactions = lambda: self.transactions  # type: ignore[assignment,method-assign,return-value]

    @contextmanager
    def lend(self) -> Iterator[LocalStore]:
        yield self.store

    def writing(self, app: str = "", version: int | None = None, key: bool = False) -> Writing:
        address: Any = SimpleNamespace(lend=self.lend, uri=self.store.uri)
        return Writing(address, TARGET, 30, app, version, 0, 1 if key else None)

    def task(self, *events: bytes, query: str = "query") -> TaskDone:
        rows = iter([pa.record_batch({"payload": pa.array(events, pa.binary())})])
        return TaskDone(write_rows(self.writing(), self.transactions, rows), query)

    @property
    def events(self) -> list[bytes]:
        return sorted(payload for _, payload in events_of(self.store, TARGET))
