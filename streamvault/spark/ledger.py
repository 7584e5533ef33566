"""Log of a named write, so that a repetition writes nothing.

A write prepares a transaction with all of its events, records it, commits it, and records the commit
(`streamstore.services.transaction_log`).

A record is valid only for the same query and the same target, whose history and last bytes it has. A query whose
checkpoint was lost numbers its batches from 0 again, and a target that was deleted and recreated lacks the committed
events. To treat new events as written would lose them silently, so both cases are rejected.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamvault.common.errors import Conflict, Failed
from streamvault.importer.ownership import first_segment_id
from streamvault.importer.unfinished import look_again
from streamvault.reading.identity import COMPARED_SEGMENTS, Position, SourcePosition
from streamvault.reading.stream_source import StreamSource
from streamvault.streamstore.arithmetic.byte_source import SourceTruncated
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import SPARK_LEDGER, stream_beside
from streamvault.streamstore.services.ledger import LedgerConflict, LedgerNameTaken
from streamvault.streamstore.services.transaction_log import Entry, Stage, TransactionLog
from streamvault.streamstore.transactions import Transaction


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
        what = "another process writes with the same txnAppId"
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
        return SourcePosition.at(look, look.described.tail, before, most=COMPARED_SEGMENTS)
