"""What is recorded of a stitch, in the log beside its target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from streamvault.reading.identity import Position
from streamvault.reading.source import SourceState
from streamvault.streamstore.model import StreamCut, StreamName
from streamvault.streamstore.scale_note import ScaleNote
from streamvault.streamstore.services.ledger import LedgerConflict
from streamvault.streamstore.services.transaction_log import Bytes, Cut, Entry, TransactionLog
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.transactions import Segment

UNKNOWN = "the store no longer knows the transaction, so it is unknown whether an earlier run has appended the sources"

LeftOut = frozenset[tuple[int, Segment]]
"""Segments that are left out, each with the index of its source."""


@dataclass(frozen=True, slots=True)
class SourceCuts:
    """What is appended of a source.

    Attributes:
        uri: the source.
        from_cut: from here on; use `between` to read it.
        to: up to here.
    """

    uri: str
    from_cut: Cut
    to: Position

    def between(self, look: SourceState) -> tuple[StreamCut, StreamCut]:
        """Return the two cuts, after comparing the source; errors as `SourcePosition.reached`."""
        return self.from_cut, self.to.reached(look, self.uri)


@dataclass(frozen=True, slots=True, kw_only=True)
class StitchRecord(Entry):
    """The newest state of a stitch.

    Attributes:
        parts: what is appended, in this order.
        distinct: whether segments that another source gave already are left out.
        left_out: those segments.
        lengths: the bytes that each of the transaction's segments gets; empty before it is complete.
        ends: where each segment of the target ended to which the transaction would be appended, shortly before the
            commit (bytes).
        note: the newest scale of the target for this stitch; None if there was none. It is known here even if the
            target's user has replaced its tags, and the note with them.
    """

    parts: tuple[SourceCuts, ...]
    distinct: bool
    left_out: LeftOut = frozenset()
    lengths: Bytes = field(default_factory=dict)
    ends: Bytes = field(default_factory=dict)
    note: Annotated[ScaleNote, PlainValidator(ScaleNote.parse), PlainSerializer(ScaleNote.tag)] | None = None


class StitchLog(TransactionLog[StitchRecord]):
    """The log of a stitch.

    Args:
        store: the store of the target, and of the log beside it.
        name: the log's stream.
        target: the stream that is appended to.
    """

    def __init__(self, store: StreamStore, name: StreamName, target: StreamName) -> None:
        conflict = LedgerConflict("another process has gone on", where=str(name))
        super().__init__(store, name, target, StitchRecord, conflict)

    @property
    def note(self) -> ScaleNote | None:
        """The note in the newest record that this process has read or appended; None if there is none."""
        return None if self.last is None else self.last.note

    def note_scale(self, note: ScaleNote) -> None:
        """Append the newest record again, with a note. Errors as `record`."""
        if self.last is None:
            raise LedgerConflict("the ledger was deleted", where=str(self.name))
        self.advance(self.last, self.last.stage, note=note)

    def is_there(self, entry: StitchRecord) -> bool:
        """See `TransactionLog.is_there`: others write to the target, so it cannot be known."""
        raise self.failed(entry, UNKNOWN, f"To append again, delete the stream {self.name} first.")
