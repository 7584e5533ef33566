"""Copies a stream by events: batch after batch, each in a transaction that is recorded before it is committed.

A batch's record says how long the target's segments are before it and after it. Nobody else writes to the target while
it has the mark of an unfinished one, so after a kill its length tells whether the batch is there, even if the store no
longer knows the transaction; and the last block of each segment is compared, so that nothing is appended to a stream
that is not the one that was left, nor from a source that is not the one that was read. Each target's mark has a token
of its own, so a late run does not finish another target of the same copy. A process that was paused cannot commit a
batch that another one has taken up: either it has recorded it, and then it is the same transaction, or its record is
refused.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from streamvault.common.errors import Conflict, Failed, Problem
from streamvault.common.progress import Progress
from streamvault.importer.ownership import first_segment_id, marked_import
from streamvault.importer.target import target_exists_error
from streamvault.joining.events.batches import BatchPlanner
from streamvault.joining.events.fill import LEASE, BatchFiller, FilledBatch
from streamvault.joining.events.keys import EventKey
from streamvault.joining.events.record import BatchLedger, BatchRecord
from streamvault.joining.events.shape import choose_count
from streamvault.streamstore.arithmetic.cuts import segments_between
from streamvault.streamstore.errors import (
    NoSuchSegment,
    SegmentSealed,
    SegmentTruncated,
    StreamExists,
    TransactionEnded,
)
from streamvault.streamstore.model import (
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
)
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import (
    COPY_OF,
    LONGEST_TAG,
    OWN,
    UNFINISHED,
    describe_source,
    is_own,
    tag_of,
    users_tags,
)
from streamvault.streamstore.transactions import Transaction, TransactionState, Written

Ends = Mapping[SegmentId, int]


@dataclass(frozen=True, slots=True)
class CopiedEvents:
    """Result of a copy by events.

    Attributes:
        head: where the copied part of the source begins.
        tail: where it ends.
        segments: segments of the copy.
        bytes: bytes of the copy; of a rehearsal, what is still to be copied.
        moved_bytes: bytes that this run copied.
        resumed: whether an unfinished copy was resumed.
        unchanged: whether the copy had been finished before.
        truncated: whether events are missing in it because the source was truncated meanwhile.
    """

    head: StreamCut
    tail: StreamCut
    segments: int
    bytes: int
    moved_bytes: int = 0
    resumed: bool = False
    unchanged: bool = False
    truncated: bool = False


class EventCopying:
    """A copy by events.

    Args:
        source: the source.
        target: the stream to create.
        key: how the events' keys are found (`EventKey`); empty if they are not needed.
        segments: how many segments the target gets; None for as many as the source has, if that works.

    Attributes:
        source: the source.
        target: the target.
        count: how many segments the target gets.

    Raises:
        Usage: a segment of the source does not fit into one of the target, or the key is not valid.
        OwnStream: the source is an internal stream.
    """

    def __init__(self, source: OpenStream, target: OpenStream, key: str, segments: int | None) -> None:
        self.source = source
        self.target = target
        self._key = EventKey(key) if key else None
        self._described = describe_source(source.store, source.name)
        ranges, ends = self._described.ranges(), (self._described.head, self._described.tail)
        held = {segment: ranges[segment] for segment in segments_between(self._described, *ends)}
        current = len(self._described.epochs[-1].segments)
        text = json.dumps([source.address.uri, str(source.name), first_segment_id(self._described), key, segments])
        self._digest = hashlib.sha256(text.encode()).hexdigest()
        self._id = f"events.{self._digest[:20]}"
        self._ledger = BatchLedger(target, source.name, self._id)
        self._found = target.find()
        self._mark = ""
        if self._found is not None and self._is_begun(self._found):
            segments = len(self._found.epochs[0].segments)
        self.count = (segments or current) if self._key else choose_count(source.name, held, current, segments)

    @property
    def _tag(self) -> str:
        """The tag of the finished copy."""
        end = f"#{self._digest[:8]}"
        return COPY_OF + str(self.source.name)[: LONGEST_TAG - len(COPY_OF) - len(end)] + end

    def rehearse(self) -> CopiedEvents:
        """Return what a copy would do.

        Raises:
            TargetTaken: the stream exists and is not this copy's.
        """
        if (finished := self._finished()) is not None:
            return finished
        return self._result(BatchPlanner(self.source.store, self._described, None).left)

    def run(self, progress: Progress) -> CopiedEvents:
        """Copy what is not there yet.

        Raises:
            TargetTaken: the stream exists and is not this copy's.
            Conflict: another process writes to it.
            SourceTruncated: the source was truncated meanwhile.
            Usage: an event has no key.
        """
        if (finished := self._finished()) is not None:
            if self._found is not None:
                self._ledger.delete(self._found)
            return finished
        target = self._found or self._create()
        if not self._is_begun(target):
            raise self._taken_up()
        self._mark = marked_import(target)
        newest = self._ledger.newest(target)
        resumed = newest is not None
        ends: Ends = dict.fromkeys(target.epochs[0].segments, 0)
        begin, copied = None, 0
        if newest is not None:
            self._check_source(newest)
            newest = self._settled(newest)
            ends, begin, copied = newest.after, newest.end, newest.copied
        self._check_end(ends)
        self._check_lasts(newest)
        batches = BatchPlanner(self.source.store, self._described, begin)
        filler = BatchFiller(self.source, self._described, self._key)
        lasts = dict(newest.lasts) if newest else {}
        progress.begin("copying", batches.left + copied, copied)
        before = copied
        while stretches := batches.next():
            transaction, filled = self._fill(filler, stretches, ends, progress)
            moved = sum(filled.lengths.values())
            lasts |= filled.lasts
            begin = batches.cut
            batches.copied(filled.ends)
            copied += moved
            after = {segment: end + filled.lengths.get(segment, 0) for segment, end in ends.items()}
            noted = BatchRecord(begin, batches.cut, transaction.id, ends, after, lasts, copied, filled.witness)
            self._commit(transaction, noted)
            ends = after
            self._check_end(ends)
        if batches.left:
            raise Failed("not all of the source was copied", where=self.source.uri, todo="Run it again.")
        progress.end()
        self._finish(target)
        return replace(
            self._result(sum(ends.values())),
            moved_bytes=copied - before,
            resumed=resumed,
            truncated=batches.truncated,
        )

    def _finished(self) -> CopiedEvents | None:
        """Return what a finished copy has; None if there is none.

        Raises:
            TargetTaken: the stream exists and is not this copy's.
        """
        found = self._found
        if found is None or self._is_begun(found):
            return None
        if tag_of(found.configuration, COPY_OF) != self._tag.removeprefix(COPY_OF) or is_own(found.configuration):
            raise target_exists_error(self.target.store, found)
        held = BatchPlanner(self.target.store, found, None).left
        return replace(self._result(held), segments=len(found.epochs[-1].segments), unchanged=True)

    def _create(self) -> StreamDescription:
        """Create the target. It has as many tags as it will have, so that one too many is refused now."""
        mark = f"{UNFINISHED}{self._id}.{secrets.token_hex(8)}"
        tags = (*users_tags(self._described.configuration), OWN, mark)
        try:
            self.target.store.create_stream_and_scope(
                self.target.name, StreamConfiguration(Scaling(min_segments=self.count), tags=tags)
            )
        except StreamExists:
            raise self._taken_up() from None
        return self.target.describe()

    def _is_begun(self, described: StreamDescription) -> bool:
        """Whether a stream is the unfinished target of this copy, if perhaps not the one that this run began with."""
        return marked_import(described).startswith(f"{self._id}.")

    def _settled(self, newest: BatchRecord) -> BatchRecord:
        """Return the newest record with its commit finished; if it was aborted, as if the batch were empty."""
        transactions = self.target.store.transactions()
        transaction = Transaction(self.target.name, newest.transaction, {})
        state = transactions.state(transaction)
        if state in {TransactionState.OPEN, TransactionState.COMMITTING}:
            state = transactions.commit(transaction)
        if state is TransactionState.UNKNOWN and self.target.describe().tail.offsets == newest.after:
            state = TransactionState.COMMITTED
        if state.is_committed:
            return newest
        lasts = {s: last for s, last in newest.lasts.items() if newest.before[s] == newest.after[s]}
        dropped = sum(newest.after.values()) - sum(newest.before.values())
        return replace(newest, end=newest.begin, after=newest.before, lasts=lasts, copied=newest.copied - dropped)

    def _fill(
        self, filler: BatchFiller, stretches: Mapping[SegmentId, tuple[int, int]], ends: Ends, progress: Progress
    ) -> tuple[Transaction, FilledBatch]:
        transactions = self.target.store.transactions()
        transaction = transactions.begin(self.target.name, LEASE)
        if transaction.segments.keys() != ends.keys():
            self._drop(transaction)
            raise self._changed()
        try:
            filled = filler.fill(transactions, transaction, stretches, progress)
            transactions.check_holds(Written(transaction, filled.lengths))
        except (NoSuchSegment, SegmentSealed, TransactionEnded):
            what = "the transaction of a batch has ended; this process was paused, or the batch took too long"
            raise Failed(what, where=self.target.uri, todo="Run it again.") from None
        except BaseException:
            self._drop(transaction)
            raise
        return transaction, filled

    def _commit(self, transaction: Transaction, record: BatchRecord) -> None:
        try:
            self._ledger.record(record)
        except BaseException:
            self._drop(transaction)
            raise
        state = self.target.store.transactions().commit(transaction)
        if not state.is_committed:
            where = f"{self.target.uri}, transaction {transaction.id}"
            raise Failed(f"a batch was not committed: its transaction is {state}", where=where, todo="Run it again.")

    def _drop(self, transaction: Transaction) -> None:
        with suppress(Problem):  # else it ends with its lease
            self.target.store.transactions().abort(transaction)

    def _check_end(self, ends: Ends) -> None:
        """Check that the target has what was copied, and nothing else."""
        found = self.target.describe()
        if marked_import(found) != self._mark:
            raise self._taken_up()
        if found.sealed or len(found.epochs) > 1 or found.tail.offsets != ends:
            raise self._changed()

    def _check_lasts(self, newest: BatchRecord | None) -> None:
        """Compare the last block of each of the target's segments with the record."""
        if newest is None:
            return
        store, name = self.target.store, self.target.name
        for segment, (length, digest) in newest.lasts.items():
            end = newest.after[segment]
            if hashlib.sha256(store.read_bytes(name, segment, end - length, end)).hexdigest() != digest:
                raise self._changed()

    def _check_source(self, newest: BatchRecord) -> None:
        """Compare the last bytes that were copied with the source, as far as it still has them.

        Another cluster's stream may have this one's name and first segment.
        """
        store, name = self.source.store, self.source.name
        for segment, (length, digest) in newest.witness.items():
            end = newest.end.offsets[segment]
            try:
                held = store.read_bytes(name, segment, end - length, end)
            except (SegmentTruncated, NoSuchSegment):
                continue
            except ValueError:  # it is shorter
                held = b""
            if hashlib.sha256(held).hexdigest() != digest:
                raise Conflict(
                    "the source is another stream than the one that was copied",
                    where=segment.in_stream(name),
                    todo=f"Give the stream with which the copy was begun, or delete {self.target.uri} and begin again.",
                )

    def _finish(self, target: StreamDescription) -> None:
        """Make it an ordinary stream with the source's policies."""
        given = self._described.configuration
        least = self.count if given.scaling.kind is ScaleKind.FIXED else min(given.scaling.min_segments, self.count)
        final = replace(
            given,
            scaling=replace(given.scaling, min_segments=least),
            tags=(*users_tags(given), self._tag),
        )
        self.target.store.update_stream(self.target.name, final, was=target.configuration)
        self._ledger.delete(target)

    def _result(self, size: int) -> CopiedEvents:
        return CopiedEvents(self._described.head, self._described.tail, self.count, size)

    def _changed(self) -> Conflict:
        what = "the unfinished copy was changed by another process"
        todo = "Run it again. If it says the same then, delete the copy, and begin again; the source is unchanged."
        return Conflict(what, where=self.target.uri, todo=todo)

    def _taken_up(self) -> Conflict:
        todo = "Run it again, to see how far that one has come."
        return Conflict("another process copies into this stream", where=self.target.uri, todo=todo)
