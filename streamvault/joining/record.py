"""What has become of a stitch: the records of the ledger beside its target.

A stitch is planned, filled into a transaction, and committed; each step is recorded before it is taken, by a
conditional append. So a process that was paused cannot commit: it would have to record that first, behind a record that
is not the newest any more. And a commit that is recorded can be finished by anybody, as it names one transaction, which
is committed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self
from uuid import UUID

from streamvault.reading.identity import SourcePosition
from streamvault.reading.source import SourceState
from streamvault.streamstore.model import KeyRange, SegmentId, StreamCut, StreamName
from streamvault.streamstore.scale_note import ScaleNote
from streamvault.streamstore.services.ledger import Ledger, LedgerConflict
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.transactions import Transaction

LeftOut = frozenset[tuple[int, SegmentId]]
"""Segments that are left out, each with the index of its source."""


class Stage(StrEnum):
    """How far a stitch has come."""

    PLANNED = "planned"
    """What is appended is decided."""
    FILLING = "filling"
    """A transaction is being filled; nobody has tried to commit it."""
    COMMITTING = "committing"
    """The transaction is complete, and may be committed."""
    COMMITTED = "committed"
    """It is committed."""
    FINISHED = "finished"
    """It is committed, and the target, which was made for it, gets nothing more before it is its user's."""


@dataclass(frozen=True, slots=True)
class SourceCuts:
    """What is appended of a source.

    Attributes:
        uri: the source.
        from_cut: from here on; use `between` to read it.
        to: up to here.
    """

    uri: str
    from_cut: StreamCut
    to: SourcePosition

    def between(self, look: SourceState) -> tuple[StreamCut, StreamCut]:
        """Return the two cuts, after comparing the source; errors as `SourcePosition.reached`."""
        return self.from_cut, self.to.reached(look, self.uri)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"uri": self.uri, "from": self.from_cut.to_json(), **self.to.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Parse the output of `to_json`."""
        return cls(value["uri"], StreamCut.from_json(value["from"]), SourcePosition.from_json(value))


@dataclass(frozen=True, slots=True)
class StitchRecord:
    """The newest state of a stitch.

    Attributes:
        stage: how far it has come.
        parts: what is appended, in this order.
        distinct: whether segments that another source gave already are left out.
        left_out: those segments.
        transaction: the transaction; None if none was begun.
        lengths: the bytes that each of its segments gets; empty before it is complete.
        ends: where each segment of the target ended to which the transaction would be appended, shortly before the
            commit (bytes).
        note: the newest scale of the target for this stitch; None if there was none. It is known here even if the
            target's user has replaced its tags, and the note with them.
    """

    stage: Stage
    parts: tuple[SourceCuts, ...]
    distinct: bool
    left_out: LeftOut
    transaction: Transaction | None = None
    lengths: Mapping[SegmentId, int] = field(default_factory=dict)
    ends: Mapping[SegmentId, int] = field(default_factory=dict)
    note: ScaleNote | None = None

    @property
    def is_committed(self) -> bool:
        """Whether everything is appended."""
        return self.stage in {Stage.COMMITTED, Stage.FINISHED}

    def planned(self) -> Self:
        """Return the record of a plan whose transaction is given up."""
        return replace(self, stage=Stage.PLANNED, transaction=None)

    def filling(self, transaction: Transaction) -> Self:
        """Return the record of a transaction that is about to be filled."""
        return replace(self, stage=Stage.FILLING, transaction=transaction, lengths={}, ends={})

    def committing(self, lengths: Mapping[SegmentId, int], ends: Mapping[SegmentId, int]) -> Self:
        """Return the record of a transaction that is complete."""
        return replace(self, stage=Stage.COMMITTING, lengths=lengths, ends=ends)

    def committed(self) -> Self:
        """Return the record of a transaction that is committed."""
        return replace(self, stage=Stage.COMMITTED)

    def finished(self) -> Self:
        """Return the record of a target that gets nothing more."""
        return replace(self, stage=Stage.FINISHED)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for the ledger."""
        held = self.transaction
        return {
            "stage": self.stage.value,
            "parts": [part.to_json() for part in self.parts],
            "distinct": self.distinct,
            "left_out": sorted((index, str(segment)) for index, segment in self.left_out),
            "transaction": held.id.hex if held else "",
            "segments": {str(s): [r.low, r.high] for s, r in held.segments.items()} if held else {},
            "lengths": {str(segment): length for segment, length in self.lengths.items()},
            "ends": {str(segment): end for segment, end in self.ends.items()},
            "note": self.note.tag() if self.note else "",
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], target: StreamName) -> Self:
        """Parse the output of `to_json`.

        Args:
            value: the record.
            target: the stream that is appended to.
        """
        segments = {SegmentId.parse(name): KeyRange(*bounds) for name, bounds in value["segments"].items()}
        return cls(
            stage=Stage(value["stage"]),
            parts=tuple(map(SourceCuts.from_json, value["parts"])),
            distinct=value["distinct"],
            left_out=frozenset((index, SegmentId.parse(name)) for index, name in value["left_out"]),
            transaction=Transaction(target, UUID(value["transaction"]), segments) if value["transaction"] else None,
            lengths=_by_segment(value["lengths"]),
            ends=_by_segment(value["ends"]),
            note=ScaleNote.parse(value.get("note", "")),
        )


def _by_segment(values: Mapping[str, int]) -> dict[SegmentId, int]:
    return {SegmentId.parse(name): value for name, value in values.items()}


class StitchLedger:
    """The ledger of a stitch.

    Args:
        store: the store of the target, and of the ledger beside it.
        name: the ledger's stream.
        target: the stream that is appended to.
    """

    def __init__(self, store: StreamStore, name: StreamName, target: StreamName) -> None:
        self._ledger = Ledger(store, name, target)
        self._target = target
        self._newest: StitchRecord | None = None
        self.name = name

    def newest(self, *, create: bool = False) -> StitchRecord | None:
        """Return the newest record; None if there is none. Errors as `Ledger.newest`."""
        known = self._ledger.newest(create=create)
        self._newest = None if known is None else StitchRecord.from_json(known, self._target)
        return self._newest

    @property
    def note(self) -> ScaleNote | None:
        """The note in the newest record that this process has read or appended; None if there is none."""
        return None if self._newest is None else self._newest.note

    def note_scale(self, note: ScaleNote) -> None:
        """Append the newest record again, with a note. Errors as `record`."""
        if self._newest is None:
            raise LedgerConflict("the ledger was deleted", where=str(self.name))
        self.record(replace(self._newest, note=note), self._newest)

    def record(self, record: StitchRecord, after: StitchRecord | None) -> StitchRecord:
        """Append a record that follows from another one, and return it.

        Args:
            record: the record.
            after: what it follows from.

        Raises:
            LedgerConflict: ``after`` is not the newest record, or the ledger was deleted.
        """
        if after != self._newest:
            raise LedgerConflict("another process has gone on", where=str(self.name))
        self._ledger.record(record.to_json())
        self._newest = record
        return record
