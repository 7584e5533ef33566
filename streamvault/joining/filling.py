"""Fill one segment of a transaction: one task, stretches one behind the other, blocks at known offsets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from streamvault.common.errors import Conflict
from streamvault.common.underway import task_progress
from streamvault.importer.fill import FOREIGN_APPENDS
from streamvault.joining.sources import Stretch
from streamvault.streamstore.arithmetic.byte_source import StoredBytes
from streamvault.streamstore.arithmetic.framing import MAX_BLOCK_BYTES
from streamvault.streamstore.errors import OffsetConflict
from streamvault.streamstore.model import SegmentId
from streamvault.streamstore.transactions import Transaction, Transactions
from streamvault.streamstore.uri import StoreAddress


class OtherBytes(Conflict):
    """A transaction has other bytes than the sources: it must not be committed."""


@dataclass(frozen=True, slots=True)
class StitchTask:
    """Specification of a task that fills one segment of a transaction.

    Attributes:
        address: the target's store.
        transaction: the transaction.
        segment: its segment.
        stretches: what the segment gets, in order.
        window: maximum data buffered in memory (bytes).
    """

    address: StoreAddress
    transaction: Transaction
    segment: SegmentId
    stretches: tuple[Stretch, ...]
    window: int

    @property
    def keys(self) -> list[tuple[str, str, int]]:
        """`Stretch.key` of each stretch."""
        return [stretch.key for stretch in self.stretches]

    @property
    def size(self) -> int:
        """How many bytes the segment gets."""
        return sum(stretch.size for stretch in self.stretches)


@dataclass(frozen=True, slots=True)
class StitchedSegment:
    """Result of filling a segment of a transaction.

    Attributes:
        segment: the transaction's segment, now complete.
        appended: bytes that this run appended.
        digests: SHA-256 of each stretch, hexadecimal.
    """

    segment: SegmentId
    appended: int
    digests: tuple[str, ...]


def fill_transaction(task: StitchTask) -> StitchedSegment:
    """Append what the transaction's segment does not have yet.

    What it has already, another run has appended, which perhaps ended before it had compared it with its digest. So
    that is read back, and compared with the sources, whose digests are compared now.

    Raises:
        OtherBytes: the segment has other bytes than the sources, or more.
        Conflict: another process appends to it.
        Damaged: an object of an archive is missing or has the wrong size or digest.
        SourceTruncated: a source was truncated meanwhile.
        NoSuchSegment, SegmentSealed, TransactionEnded: the transaction has ended.
    """
    with task.address.lend() as store:
        for _ in range(FOREIGN_APPENDS):
            try:
                return _append_rest(task, store.transactions())
            except OffsetConflict:
                continue
    raise Conflict("another process is appending to the transaction", where=_where(task))


def _append_rest(task: StitchTask, transactions: Transactions) -> StitchedSegment:
    with transactions.appender(task.transaction, task.segment) as appender:
        begun = appender.offset
        if begun > task.size:
            raise OtherBytes(f"the transaction has {begun} bytes instead of {task.size}", where=_where(task))
        stored = StoredBytes(transactions.read(task.transaction, task.segment, begun) if begun else ())
        at, counted, digests = 0, begun, []
        for stretch in task.stretches:
            digest = hashlib.sha256()
            for block in stretch.blocks(task.window):
                if stored.difference(block) is not None:
                    raise OtherBytes("the transaction has other bytes than the sources", where=_where(task))
                digest.update(block)
                for piece in _pieces(memoryview(block)[max(begun - at, 0) :]):
                    appender.append(piece)
                    task_progress().acknowledge(appender.acknowledged - counted)
                    counted = appender.acknowledged
                at += len(block)
            digests.append(digest.hexdigest())
        return StitchedSegment(task.segment, appender.flush() - begun, tuple(digests))


def _pieces(data: memoryview) -> Iterator[memoryview]:
    return (data[at : at + MAX_BLOCK_BYTES] for at in range(0, len(data), MAX_BLOCK_BYTES))


def _where(task: StitchTask) -> str:
    return f"{task.address.uri}/{task.segment.in_stream(task.transaction.stream)}, {task.transaction.id}"


def digest_of(spec: tuple[Stretch, int]) -> str:
    """Return the SHA-256 of a stretch, hexadecimal; ``spec`` is the stretch and the window of the task (bytes)."""
    stretch, window = spec
    digest = hashlib.sha256()
    for block in stretch.blocks(window):
        digest.update(block)
    return digest.hexdigest()
