"""The ledger beside the target: which batch was put into which transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from streamvault.common.errors import Conflict
from streamvault.importer.ownership import first_segment_id
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription, StreamName
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import TARGET_LEDGER, stream_beside
from streamvault.streamstore.services.ledger import Ledger, LedgerConflict


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch, recorded before its transaction is committed.

    Attributes:
        begin: where the batch begins in the source.
        end: where it ends, and the next one begins.
        transaction: id of its transaction.
        before: the ends of the target's segments before the commit (bytes).
        after: the same after it.
        lasts: length (bytes) and SHA-256 of the last block of each of the target's segments, if it has any.
        copied: bytes that were copied up to the end of the batch.
        witness: length (bytes) and SHA-256 of the source's last bytes before ``end``, of segments of the batch.
    """

    begin: StreamCut
    end: StreamCut
    transaction: UUID
    before: Mapping[SegmentId, int]
    after: Mapping[SegmentId, int]
    lasts: Mapping[SegmentId, tuple[int, str]]
    copied: int
    witness: Mapping[SegmentId, tuple[int, str]]


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

    def newest(self, described: StreamDescription) -> BatchRecord | None:
        """Return the newest record about this very target; None if there is none.

        Raises:
            LedgerNameTaken: another stream has the ledger's name.
        """
        self._first = first_segment_id(described)
        held = self._ledger.newest()
        if held is None or held.get("events") != self._id or held["target"] != self._first:
            return None
        return BatchRecord(
            StreamCut(self._source, _parsed(held["begin"])),
            StreamCut(self._source, _parsed(held["end"])),
            UUID(hex=held["transaction"]),
            _parsed(held["before"]),
            _parsed(held["after"]),
            _digests(held["lasts"]),
            held["copied"],
            _digests(held["witness"]),
        )

    def record(self, batch: BatchRecord) -> None:
        """Append a record after the newest one, which must have been read before.

        Raises:
            Conflict: another process copies into the target.
        """
        value = {
            "events": self._id,
            "target": self._first,
            "begin": _named(batch.begin.offsets),
            "end": _named(batch.end.offsets),
            "transaction": batch.transaction.hex,
            "before": _named(batch.before),
            "after": _named(batch.after),
            "lasts": {str(segment): list(last) for segment, last in batch.lasts.items()},
            "copied": batch.copied,
            "witness": {str(segment): list(last) for segment, last in batch.witness.items()},
        }
        try:
            self._ledger.record(value)
        except LedgerConflict:
            todo = "Let one of them go on."
            raise Conflict("another process copies into this stream", where=self._target.uri, todo=todo) from None

    def delete(self, described: StreamDescription) -> None:
        """Delete the ledger if it is there, and about this very target: a late call finds that of another one."""
        held = self._ledger.newest(create=False)
        if held is None or (held.get("events"), held.get("target")) == (self._id, first_segment_id(described)):
            with suppress(LedgerConflict):
                self._ledger.retire()


def _named(offsets: Mapping[SegmentId, int]) -> dict[str, int]:
    return {str(segment): offset for segment, offset in offsets.items()}


def _digests(named: Mapping[str, Sequence[Any]]) -> dict[SegmentId, tuple[int, str]]:
    return {SegmentId.parse(name): (length, digest) for name, (length, digest) in named.items()}


def _parsed(offsets: Mapping[str, int]) -> dict[SegmentId, int]:
    return {SegmentId.parse(name): offset for name, offset in offsets.items()}
