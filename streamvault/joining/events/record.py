"""The ledger beside the target: which batch was put into which transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from streamvault.common.errors import Conflict
from streamvault.importer.ownership import first_segment_id
from streamvault.reading.identity import SourcePosition
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription, StreamName
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import APPEND_LEDGER, TARGET_LEDGER, stream_beside
from streamvault.streamstore.services.ledger import Ledger, LedgerConflict


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch, recorded before its transaction is committed.

    Attributes:
        head: where the copied part of the source begins.
        begin: where the batch begins in the source.
        end: where it ends, and the next one begins; with the source's last bytes before it.
        transaction: id of its transaction.
        before: the ends of the target's segments before the commit (bytes).
        after: the same after it.
        lasts: length (bytes) and SHA-256 of the last block of each of the target's segments, if it has any.
        copied: bytes that were copied up to the end of the batch.
    """

    head: StreamCut
    begin: StreamCut
    end: SourcePosition
    transaction: UUID
    before: Mapping[SegmentId, int]
    after: Mapping[SegmentId, int]
    lasts: Mapping[SegmentId, tuple[int, str]]
    copied: int


@dataclass(frozen=True, slots=True)
class FinishedRecord:
    """What a finished copy had when it was finished.

    Attributes:
        head: where the copied part of the source begins.
        tail: where it ends.
        ends: the ends of the copy's segments (bytes).
        lasts: as `BatchRecord.lasts`.
    """

    head: StreamCut
    tail: SourcePosition
    ends: Mapping[SegmentId, int]
    lasts: Mapping[SegmentId, tuple[int, str]]


class BatchLedger:
    """The records of one copy.

    Args:
        target: the target.
        source: the source's name.
        id_: tells the copy from others: by the source and the options.
    """

    def __init__(self, target: OpenStream, source: StreamName, id_: str) -> None:
        self._target = target
        self._source = source
        self._id = id_
        self._first = ""
        self._ledger = Ledger(target.store, stream_beside(target.name, TARGET_LEDGER), target.name)

    def newest(self, described: StreamDescription) -> BatchRecord | FinishedRecord | None:
        """Return the newest record about this very target; None if there is none.

        Raises:
            LedgerNameTaken: another stream has the ledger's name.
        """
        self._first = first_segment_id(described)
        held = self._ledger.newest()
        if held is None or held.get("events") != self._id or held["target"] != self._first:
            return None
        if "ends" in held:
            return _finished(held)
        return BatchRecord(
            StreamCut(self._source, _parsed(held["head"])),
            StreamCut(self._source, _parsed(held["begin"])),
            SourcePosition.from_json(held["reached"]),
            UUID(hex=held["transaction"]),
            _parsed(held["before"]),
            _parsed(held["after"]),
            _digests(held["lasts"]),
            held["copied"],
        )

    def finished(self, described: StreamDescription) -> FinishedRecord | None:
        """Return the record of this very finished copy; None if it is gone."""
        held = self._of_finished(described).newest(create=False)
        return None if held is None else _finished(held)

    def finish(self, described: StreamDescription, record: FinishedRecord, check: Callable[[], None]) -> None:
        """Record what a copy has that is about to be finished; the record stays as long as the copy.

        Args:
            described: the copy.
            record: what it has.
            check: raises if the copy is finished already, or has something else. It is called after the ledger was
                read, so no late run replaces the record of another one.
        """
        ledger = self._of_finished(described)
        while True:
            ledger.newest(create=True)
            check()
            with suppress(LedgerConflict):
                return ledger.record({"stage": "finished", **_noted(record)})

    def _of_finished(self, described: StreamDescription) -> Ledger:
        name = stream_beside(self._target.name, APPEND_LEDGER, first_segment_id(described), self._id)
        return Ledger(self._target.store, name, self._target.name)

    def close(self, record: FinishedRecord) -> None:
        """Append the last record: from now on no batch is committed, whoever has filled one. Errors as `record`."""
        self._append(_noted(record))

    def record(self, batch: BatchRecord) -> None:
        """Append a record after the newest one, which must have been read before.

        Raises:
            Conflict: another process copies into the target.
        """
        value = {
            "head": _named(batch.head.offsets),
            "begin": _named(batch.begin.offsets),
            "reached": batch.end.to_json(),
            "transaction": batch.transaction.hex,
            "before": _named(batch.before),
            "after": _named(batch.after),
            "lasts": _listed(batch.lasts),
            "copied": batch.copied,
        }
        self._append(value)

    def _append(self, value: Mapping[str, Any]) -> None:
        try:
            self._ledger.record({"events": self._id, "target": self._first, **value})
        except LedgerConflict:
            todo = "Let one of them go on."
            raise Conflict("another process copies into this stream", where=self._target.uri, todo=todo) from None

    def delete(self, described: StreamDescription) -> None:
        """Delete the ledger if it is there, and about this very target: a late call finds that of another one."""
        held = self._ledger.newest(create=False)
        if held is None or (held.get("events"), held.get("target")) == (self._id, first_segment_id(described)):
            with suppress(LedgerConflict):
                self._ledger.retire()


def _noted(record: FinishedRecord) -> dict[str, Any]:
    return {
        "head": record.head.to_json(),
        "reached": record.tail.to_json(),
        "ends": _named(record.ends),
        "lasts": _listed(record.lasts),
    }


def _finished(held: Mapping[str, Any]) -> FinishedRecord:
    head, tail = StreamCut.from_json(held["head"]), SourcePosition.from_json(held["reached"])
    return FinishedRecord(head, tail, _parsed(held["ends"]), _digests(held["lasts"]))


def _named(offsets: Mapping[SegmentId, int]) -> dict[str, int]:
    return {str(segment): offset for segment, offset in offsets.items()}


def _listed(lasts: Mapping[SegmentId, tuple[int, str]]) -> dict[str, list[Any]]:
    return {str(segment): list(last) for segment, last in lasts.items()}


def _digests(named: Mapping[str, Sequence[Any]]) -> dict[SegmentId, tuple[int, str]]:
    return {SegmentId.parse(name): (length, digest) for name, (length, digest) in named.items()}


def _parsed(offsets: Mapping[str, int]) -> dict[SegmentId, int]:
    return {SegmentId.parse(name): offset for name, offset in offsets.items()}
