"""What is recorded of a copy by events, in the log beside its target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from streamvault.importer.ownership import first_segment_id
from streamvault.reading.identity import Position
from streamvault.streamstore.model import StreamDescription
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import APPEND_LEDGER, stream_beside
from streamvault.streamstore.services.ledger import LedgerConflict
from streamvault.streamstore.services.transaction_log import Bytes, Cut, Entry, TransactionLog
from streamvault.streamstore.transactions import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord(Entry):
    """A batch; once the log is closed, what the finished copy has.

    Attributes:
        head: where the copied part of the source begins.
        begin: where the batch begins in the source.
        end: where it ends, and the next one begins; with the source's last bytes before it.
        before: the ends of the target's segments before the commit (bytes).
        after: the same after it.
        lasts: length (bytes) and SHA-256 of the last block of each of the target's segments, if it has any.
        copied: bytes that were copied up to the end of the batch.
    """

    head: Cut
    begin: Cut
    end: Position
    before: Bytes
    after: Bytes
    lasts: Mapping[Segment, tuple[int, str]]
    copied: int

    def without_batch(self) -> Self:
        """Return the record as if its batch, whose transaction was given up, were empty."""
        lasts = {segment: last for segment, last in self.lasts.items() if self.before[segment] == self.after[segment]}
        copied = self.copied - sum(self.after.values()) + sum(self.before.values())
        return replace(self, after=self.before, lasts=lasts, copied=copied)


class BatchLog(TransactionLog[BatchRecord]):
    """The log of one copy; it stays as long as the copy.

    Args:
        target: the target.
        described: which stream of this name it is.
        id_: tells the copy from others: by the source and the options.
    """

    def __init__(self, target: OpenStream, described: StreamDescription, id_: str) -> None:
        self._target = target
        name = stream_beside(target.name, APPEND_LEDGER, first_segment_id(described), id_)
        what, todo = "another process copies into this stream", "Let one of them continue."
        conflict = LedgerConflict(what, where=target.uri, todo=todo)
        super().__init__(target.store, name, target.name, BatchRecord, conflict)

    def is_there(self, entry: BatchRecord) -> bool:
        """See `TransactionLog.is_there`: nobody else writes to the target, so its length tells."""
        return self._target.describe().tail.offsets == entry.after
