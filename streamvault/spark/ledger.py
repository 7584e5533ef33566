"""Ledger of a named write, so that a repetition writes nothing.

A write prepares a transaction with all of its events, records it, commits it, and records the commit. After a kill,
the next run finds one of: no record, so nothing was committed; a prepared transaction, which is committed or aborted
already, or still open and then committed now; or a committed one.

A record is valid only for the same query and the same target, whose history and last bytes it has. A query whose
checkpoint was lost numbers its batches from 0 again, and a target that was deleted and recreated lacks the committed
events. To treat new events as written would lose them silently, so both cases are rejected.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from streamvault.common.errors import Conflict
from streamvault.importer.ownership import first_segment_id
from streamvault.importer.unfinished import look_again
from streamvault.reading.identity import COMPARED_SEGMENTS, SourcePosition
from streamvault.reading.stream_source import StreamSource
from streamvault.streamstore.arithmetic.byte_source import SourceTruncated
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import SPARK_LEDGER, stream_beside
from streamvault.streamstore.services.ledger import Ledger, LedgerConflict, LedgerNameTaken
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
        stream: the stream that is written to; the ledger is in the same scope.
        app: name of the writer.
    """

    def __init__(self, stream: OpenStream, app: str) -> None:
        self._source = StreamSource(stream)
        self._target = target = stream.name
        self._app = app
        self._ledger = Ledger(stream.store, stream_beside(target, SPARK_LEDGER, app), target)
        self._first_segment_id = ""
        self._reached: SourcePosition | None = None

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
        look = self._source.look()
        self._first_segment_id = first_segment_id(look.described)
        try:
            last = self._ledger.newest()
        except LedgerNameTaken as taken:
            todo = "Rename or delete it, or give the write another txnAppId."
            raise LedgerNameTaken(taken.what, where=taken.where, todo=todo) from None
        if last is None:
            return None
        self._reached = SourcePosition.from_json(last["reached"]) if "reached" in last else None
        difference = self._reached.difference(look) if self._reached else ""
        if last["target"] != self._first_segment_id or difference:
            raise Conflict(
                "the target was deleted and recreated since the last write with this txnAppId, or is in another cluster"
                + (f": {difference}" if difference else ""),
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

    def _position(self) -> SourcePosition:
        """Return where the target ends, so that it is recognized by the next write."""
        look = self._source.look()
        return SourcePosition.at(look, look.described.tail, self._reached, most=COMPARED_SEGMENTS)

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
                    "reached": look_again(self._position, SourceTruncated).to_json(),
                }
            )
        except LedgerConflict:
            raise Conflict(
                "another process writes with the same txnAppId",
                where=f"{self._app}, to {self._target}",
                todo="Run one query at a time, or give each its own txnAppId.",
            ) from None
