"""Ledger of a named write, so that a repetition writes nothing.

A write prepares a transaction with all of its events, records it, commits it, and records the commit. After a kill,
the next run finds one of: no record, so nothing was committed; a prepared transaction, which is committed or aborted
already, or still open and then committed now; or a committed one.

A record is valid only for the same query and the same target. A query whose checkpoint was lost numbers its batches
from 0 again, and a target that was deleted and recreated lacks the committed events. To treat new events as written
would lose them silently, so both cases are rejected.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from streamvault.common.errors import Conflict
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.own import SPARK_LEDGER, stream_beside
from streamvault.streamstore.services.ledger import Ledger, LedgerConflict, LedgerNameTaken
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.transactions import Transaction


@dataclass(frozen=True, slots=True)
class NamedWrite:
    """State of a named write.

    Attributes:
        version: version of the write.
        transaction: the transaction with its events.
        committed: whether the transaction is known to be committed.
        query: id of the streaming query, as stored in its checkpoint; empty for a batch job.
    """

    version: int
    transaction: Transaction
    committed: bool
    query: str = ""


class WriteLedger:
    """The records of one writer to one stream.

    Args:
        store: the store of the target, and of the ledger in the same scope.
        target: the stream that is written to.
        app: name of the writer.
    """

    def __init__(self, store: StreamStore, target: StreamName, app: str) -> None:
        self._store = store
        self._target = target
        self._app = app
        self._ledger = Ledger(store, stream_beside(target, SPARK_LEDGER, app), target)
        self._first_segment_id = ""

    @property
    def stream(self) -> StreamName:
        """The ledger's stream."""
        return self._ledger.name

    def newest(self, query: str = "") -> NamedWrite | None:
        """Return the newest record; None if there is none.

        Args:
            query: the query that is about to write; see `NamedWrite`.

        Raises:
            Conflict: the newest record is of another query, or of an earlier stream with the target's name; or a user's
                stream has the ledger's name.
            StreamStoreError: the ledger cannot be read.
        """
        self._first_segment_id = _first_segment_id(self._store, self._target)
        try:
            last = self._ledger.newest()
        except LedgerNameTaken as taken:
            todo = "Rename or delete it, or give the write another txnAppId."
            raise LedgerNameTaken(taken.what, where=taken.where, todo=todo) from None
        if last is None:
            return None
        if last["target"] != self._first_segment_id:
            raise Conflict(
                "the target was deleted and recreated since the last write with this txnAppId",
                where=f"{self._app}, to {self._target}",
                todo=f"Delete the stream {self.stream} to continue with the new target, or use another txnAppId.",
            )
        if last["query"] != query:
            writer = f"query {last['query']}" if last["query"] else "a batch job"
            raise Conflict(
                f"another writer, {writer}, has written up to version {last['version']} with this txnAppId; "
                "a query that lost its checkpoint counts as another writer",
                where=f"{self._app}, to {self._target}",
                todo="Use that query's checkpoint, or another txnAppId.",
            )
        transaction = Transaction(self._target, UUID(last["transaction"]), {})
        return NamedWrite(last["version"], transaction, last["committed"], last["query"])

    def record(self, write: NamedWrite) -> None:
        """Append a record after the newest one, which must have been read before.

        Raises:
            Conflict: another process has appended one: another run of the same query is alive.
        """
        try:
            self._ledger.record(
                {
                    "app": self._app,
                    "query": write.query,
                    "target": self._first_segment_id,
                    "version": write.version,
                    "transaction": write.transaction.id.hex,
                    "committed": write.committed,
                }
            )
        except LedgerConflict:
            raise Conflict(
                "another process writes with the same txnAppId",
                where=f"{self._app}, to {self._target}",
                todo="Run one query at a time, or give each its own txnAppId.",
            ) from None


def _first_segment_id(store: StreamStore, target: StreamName) -> str:
    """Identify a stream among those of the same name: after a deletion, a new stream has higher segment numbers."""
    return str(min(store.describe(target).epochs[0].segments))
