"""A transaction log: what a writer puts into a stream by transactions, so that a kill neither loses nor doubles it.

What every writer can rely on:

- Each step is recorded before it is taken, by a conditional append after the entry that it follows from. So a process
  that was paused takes at most one step after another process has appended an entry.
- An entry that says ``committing`` names one complete transaction. A process that continues from this entry commits it;
  the store does so once, however often it is asked.
- A transaction is given up for another one only if it is known to be aborted, or was never allowed to be committed. If
  the store no longer knows one that was, the writer has to say whether its events are there, or to stop.
- `TransactionLog.settle` alone decides what becomes of a transaction after a kill.

A writer that cannot go on filling the transaction of a process that was killed begins with ``committing``.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Generic, TypeVar

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from streamvault.common.errors import Failed, Problem
from streamvault.common.waiting import pauses
from streamvault.streamstore.ledger import Ledger, LedgerConflict
from streamvault.streamstore.model import StreamCut, StreamName
from streamvault.streamstore.store import Segment, StreamStore, Transaction, TransactionState

END_SECONDS = 60.0
"""How long to wait until an aborted transaction has ended."""

LOOK_SECONDS = 0.1

Cut = Annotated[StreamCut, PlainValidator(StreamCut.from_json), PlainSerializer(StreamCut.to_json)]
Bytes = Mapping[Segment, int]
"""An offset or a length for each of some segments (bytes)."""


class Stage(StrEnum):
    """The progress of a writer."""

    PLANNED = "planned"
    """What is written is decided; no transaction of it can be committed."""
    FILLING = "filling"
    """A transaction is being filled; nobody has tried to commit it."""
    COMMITTING = "committing"
    """The transaction is complete, and may be committed."""
    COMMITTED = "committed"
    """It is committed."""
    CLOSED = "closed"
    """It is committed, and the writer is done with the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of a log; each kind of log adds what is written. See `TransactionLog` for the types of its fields.

    Attributes:
        stage: the writer's progress.
        transaction: the transaction; None if none was begun, or it was given up.
    """

    stage: Stage
    transaction: Transaction | None = None

    @property
    def is_committed(self) -> bool:
        """Whether everything is written."""
        return self.stage in {Stage.COMMITTED, Stage.CLOSED}

    @property
    def begun(self) -> Transaction:
        """The transaction of an entry that has one, as its stage says."""
        assert self.transaction is not None  # noqa: S101
        return self.transaction


E = TypeVar("E", bound=Entry)


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""What reads and writes entries of a kind; building it takes longer than all else that opens a log."""


class TransactionLog(ABC, Generic[E]):
    """The log of one writer to one stream; see the module for what it promises.

    Args:
        store: the store of the stream, and of the log beside it.
        name: the log's own stream.
        about: the stream that is written to.
        kind: the kind of entries. Its fields need types that pydantic can write as JSON and read again.
        conflict: the error if another process has appended a newer entry.

    Attributes:
        name: see above.
        last: the newest entry that this process has read or recorded.
        commit_seconds: how long this process has waited for the last commit that it made.
    """

    def __init__(
        self, store: StreamStore, name: StreamName, about: StreamName, kind: type[E], conflict: LedgerConflict
    ) -> None:
        self._ledger = Ledger(store, name, about)
        self._transactions = store.transactions()
        self._where = f"{store.uri}/{about}"
        self._about = about
        self._kind = _adapter(kind)
        self._conflict = conflict
        self.name = name
        self.last: E | None = None
        self.commit_seconds = 0.0

    @abstractmethod
    def is_there(self, entry: E) -> bool:
        """Return whether an entry was committed whose transaction the store no longer knows.

        Raises:
            Failed: that cannot be known.
        """

    def landed(self, entry: E) -> E:
        """Return what is recorded once an entry's transaction is committed; its stage is replaced."""
        return entry

    def newest(self, *, create: bool = False) -> E | None:
        """Return the newest entry; None if there is none. Errors as `Ledger.newest`."""
        known = self._ledger.newest(create=create)
        try:
            self.last = None if known is None else self._kind.validate_python(known)
        except ValidationError:
            raise self._ledger.taken() from None
        return self.last

    def check(self, entry: E) -> None:
        """Read the log, and raise the conflict unless an entry is the newest."""
        if self.newest() != entry:
            raise self._conflict

    def record(self, entry: E, after: E | None) -> E:
        """Append an entry that follows from another one, and return it.

        Args:
            entry: the entry.
            after: what it follows from; None for the first one.

        Raises:
            LedgerConflict: ``after`` is not the newest entry, or the log was deleted; it is the log's ``conflict``.
        """
        if after != self.last:
            raise self._conflict
        try:
            self._ledger.record(self._kind.dump_python(entry, mode="json"))
        except LedgerConflict:
            raise self._conflict from None
        self.last = entry
        return entry

    def advance(self, entry: E, stage: Stage, **changes: Any) -> E:
        """Record that an entry has come to a stage, with other changes. Errors as `record`."""
        return self.record(replace(entry, stage=stage, **changes), entry)

    def begin(self, entry: E, lease: float, fits: Callable[[Transaction], bool]) -> E:
        """Begin a transaction for a plan, and record it before it is filled; if it does not fit, return the plan.

        Args:
            entry: the plan, of which no other transaction can be committed any more.
            lease: see `Transactions.begin` (seconds).
            fits: tells whether the transaction has the right segments.
        """
        transaction = self._transactions.begin(self._about, lease)
        try:
            if fits(transaction):
                return self.advance(entry, Stage.FILLING, transaction=transaction)
        except BaseException:
            self.abort(transaction)
            raise
        self.abort(transaction)
        return entry

    def commit(self, entry: E, after: E | None) -> E:
        """Record that a complete transaction may be committed, and commit it; return the outcome as `settle`.

        If it cannot be recorded, the transaction is aborted. Errors as `record` and `settle`.
        """
        try:
            self.record(entry, after)
        except BaseException:
            self.abort(entry.begun)
            raise
        return self.settle(entry, TransactionState.OPEN)

    def settle(self, entry: E, state: TransactionState | None = None) -> E:
        """Finish the newest entry's transaction if it may be committed, and record what has become of it.

        Args:
            entry: the newest entry.
            state: the state of its transaction if that is known.

        Returns:
            An entry that is committed; or one that is still ``FILLING``, whose transaction is open; or one that is
            ``PLANNED``, as its transaction is aborted or was never allowed to be committed.

        Raises:
            LedgerConflict: another process has appended a newer entry.
            Failed: something else has committed the transaction; or as `is_there`.
        """
        if entry.transaction is None or entry.is_committed:
            return entry
        may_be_committed = entry.stage is Stage.COMMITTING
        state = state or self.state(entry.transaction)
        if may_be_committed and state in {TransactionState.OPEN, TransactionState.COMMITTING}:  # it is waited for
            began = time.monotonic()
            state = self._transactions.commit(entry.transaction)
            self.commit_seconds = round(time.monotonic() - began, 3)
        if not may_be_committed and state is TransactionState.OPEN:
            return entry
        if not may_be_committed and state.is_committed:
            raise self.failed(entry, "something else has committed the transaction")
        if may_be_committed and state is TransactionState.UNKNOWN:
            self.check(entry)
            state = TransactionState.COMMITTED if self.is_there(entry) else TransactionState.ABORTED
        if state.is_committed:
            return self.record(replace(self.landed(entry), stage=Stage.COMMITTED), entry)
        return self.advance(entry, Stage.PLANNED, transaction=None)

    def give_up(self, entry: E) -> E:
        """Give up the newest entry's transaction if it was never allowed to be committed; else errors as `settle`."""
        if entry.stage is not Stage.FILLING:
            return self.settle(entry)
        planned = self.advance(entry, Stage.PLANNED, transaction=None)
        self.abort(entry.begun)
        return planned

    def abort(self, transaction: Transaction) -> None:
        """Abort a transaction; if that fails, it ends when its lease expires."""
        with suppress(Problem):
            self._transactions.abort(transaction)

    def state(self, transaction: Transaction) -> TransactionState:
        """Return a transaction's state once it is not being aborted any more.

        Raises:
            Failed: that takes too long.
        """
        for _ in pauses(END_SECONDS, first=LOOK_SECONDS):
            if (state := self._transactions.state(transaction)) is not TransactionState.ABORTING:
                return state
        raise Failed(
            "the transaction is not aborted yet", where=self.where(transaction), todo="Run the same command again."
        )

    def failed(self, entry: E, what: str, todo: str = "Run the same command again.") -> Problem:
        """Return the error about an entry's transaction.

        Raises:
            LedgerConflict: another process has appended a newer entry, which explains the failure.
        """
        self.check(entry)
        return Failed(what, where=self.where(entry.begun), todo=todo)

    def where(self, transaction: Transaction) -> str:
        """Return a transaction's stream and id, for messages."""
        return f"{self._where}, transaction {transaction.id}"
