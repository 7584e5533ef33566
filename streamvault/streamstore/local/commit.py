"""Commits: decided by one change of the stream's record, and finished by whoever opens the stream next.

Until the record says so, nothing of a transaction is in a segment. Afterwards nobody sees the stream before all of it
is: whoever reads the record copies what a killed process did not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from streamvault.streamstore.local.record import StreamRecord, save_record
from streamvault.streamstore.local.segment_files import SegmentFiles
from streamvault.streamstore.local.transaction_record import StreamTransactions
from streamvault.streamstore.model import Epoch, KeyRange, SegmentId

_PART = re.compile(r"([0-9a-f]{32})-[0-9]+\.part(-state)?\Z")


def decided(record: StreamRecord, id_: UUID, lengths: Mapping[int, int], ends: Mapping[SegmentId, int]) -> StreamRecord:
    """Return a stream's record with the commit of an open transaction decided.

    If the stream was scaled since the transaction began, there are two more epochs, as on Pravega: one for the
    transaction, whose segments are sealed at once, and one that repeats the epoch that was current.

    Args:
        record: the record.
        id_: the transaction.
        lengths: the parts' bytes by the number of their segment.
        ends: the ends of the open segments (bytes).
    """
    transaction, current = record.transactions.going[id_], record.current
    began = record.epochs[transaction.epoch]
    epochs, rolls = record.epochs, _numbers(began) != _numbers(current)
    if rolls:
        own = renumbered(began, current.number + 1)
        epochs = (*epochs, Epoch(current.number + 1, own))
        epochs = (*epochs, Epoch(current.number + 2, renumbered(current, current.number + 2)))
    into = {}
    for segment in own if rolls else current.segments:
        if length := lengths.get(segment.number, 0):
            into[segment] = 0 if rolls else ends[segment], length
    noted = record.transactions.changed(id_, replace(transaction, into=into))
    return replace(record, epochs=epochs, transactions=noted)


def first_of_kind(record: StreamRecord) -> Epoch:
    """Return the current epoch, or the one that it repeats: a transaction's parts are named after that."""
    numbers = _numbers(record.current)
    return next(epoch for epoch in record.epochs if _numbers(epoch) == numbers)


def renumbered(epoch: Epoch, number: int) -> dict[SegmentId, KeyRange]:
    """Return an epoch's segments as another epoch names them."""
    return {SegmentId(number, segment.number): held for segment, held in epoch.segments.items()}


def reserve(folder: Path, record: StreamRecord, id_: UUID) -> None:
    """Take the room on the disk that a commit needs, before it is decided."""
    for segment, (offset, length) in (record.transactions.going[id_].into or {}).items():
        SegmentFiles.of_segment(folder, segment).reserve(offset, length)


def finish_commit(folder: Path, record: StreamRecord) -> None:
    """Finish the commit that is decided, if there is one; the stream's lock is held alone."""
    id_ = record.transactions.committing
    if id_ is None:
        return
    for segment, (offset, length) in (record.transactions.going[id_].into or {}).items():
        part = SegmentFiles.of_part(folder, id_, segment.number)
        files = SegmentFiles.of_segment(folder, segment)
        files.take(part, offset, length)
    transactions = record.transactions.finished(id_)
    save_record(folder, replace(record, transactions=transactions))
    remove_ended(folder, transactions)


def remove_ended(folder: Path, transactions: StreamTransactions) -> None:
    """Remove the parts of transactions that have ended, and what a kill left of them."""
    for path in folder.iterdir():
        if (match := _PART.match(path.name)) and UUID(hex=match[1]) not in transactions.going:
            path.unlink(missing_ok=True)


def _numbers(epoch: Epoch) -> set[int]:
    """An epoch has the numbers of another one only if a rolled transaction repeated it."""
    return {segment.number for segment in epoch.segments}
