"""Copies a stream by events: batch after batch, each in a transaction that is recorded before it is committed.

A batch's record says how long the target's segments are before it and after it. Nobody else writes to the target while
it has the mark of an unfinished one, so after a kill its length tells whether the batch is there, even if the store no
longer knows the transaction; and the last block of each segment is compared, so that nothing is appended to a stream
that is not the one that was left, nor from a source that is not the one that was read. The last record says what the
finished copy has, and no batch follows it: whoever finds it only finishes the copy. Each target's mark has a token
of its own, so a late run does not finish another target of the same copy. A process that was paused cannot commit a
batch that another one has taken up: either it has recorded it, and then it is the same transaction, or its record is
refused.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from streamvault.common.errors import Conflict, Failed, Problem
from streamvault.common.progress import Progress
from streamvault.importer.ownership import first_segment_id, marked_import
from streamvault.importer.plan import fitting_configuration, scaling_warnings
from streamvault.importer.target import OTHER_NAME, TargetTaken, target_exists_error
from streamvault.joining.events.batches import BatchPlanner
from streamvault.joining.events.fill import LEASE, BatchFiller, FilledBatch
from streamvault.joining.events.keys import EventKey
from streamvault.joining.events.record import BatchLedger, BatchRecord, FinishedRecord
from streamvault.joining.events.shape import choose_count, fitting_count
from streamvault.joining.placing import Places
from streamvault.reading.identity import LastBytes, SourcePosition, history_digest
from streamvault.reading.source import bytes_after
from streamvault.reading.stream_source import StreamSource
from streamvault.streamstore.arithmetic.cuts import segments_between
from streamvault.streamstore.errors import (
    NoSuchSegment,
    SegmentSealed,
    StreamExists,
    StreamStoreError,
    TransactionEnded,
)
from streamvault.streamstore.model import (
    KeyRange,
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
    is_own,
    tag_of,
    users_tags,
)
from streamvault.streamstore.transactions import Transaction, TransactionState, Written

UNKNOWN = "it is not known how far the source was copied, as the record of it is gone"

Ends = Mapping[SegmentId, int]


@dataclass(frozen=True, slots=True)
class CopiedEvents:
    """Result of a copy by events.

    Attributes:
        head: where the copied part of the source begins.
        tail: where it ends; None if that is not known of a finished copy.
        segments: segments of the copy.
        bytes: bytes of the copy; of a rehearsal, what is still to be copied.
        moved_bytes: bytes that this run copied.
        resumed: whether an unfinished copy was resumed.
        unchanged: whether the copy had been finished before.
        truncated: whether events are missing in it because the source was truncated meanwhile.
        behind: bytes that the source has and a finished copy does not have.
        warnings: what the user is to be warned of.
    """

    head: StreamCut
    tail: StreamCut | None
    segments: int
    bytes: int
    moved_bytes: int = 0
    resumed: bool = False
    unchanged: bool = False
    truncated: bool = False
    behind: int = 0
    warnings: tuple[str, ...] = ()


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
        self._look = StreamSource(source).look()
        self._described = self._look.described
        current = len(self._described.epochs[-1].segments)
        text = json.dumps([source.address.uri, str(source.name), first_segment_id(self._described), key, segments])
        self._digest = hashlib.sha256(text.encode()).hexdigest()
        self._id = f"events.{self._digest[:20]}"
        self._ledger = BatchLedger(target, source.name, self._id)
        self._found = target.find()
        self._mark = ""
        if self._found is not None:  # if it is this copy's, its segments are chosen
            self.count = len(self._found.epochs[0].segments)
        elif self._key:
            self.count = segments or current
        else:
            self.count = choose_count(source.name, self._held, current, segments)
        given = self._described.configuration
        self._warnings: tuple[str, ...] = ()
        if segments is None and self.count == current:
            self._warnings = scaling_warnings(given, fitting_configuration(given, current))

    @property
    def _held(self) -> dict[SegmentId, KeyRange]:
        """The source's segments that are to be copied."""
        described = self._described
        ranges, ends = described.ranges(), (described.head, described.tail)
        return {segment: ranges[segment] for segment in segments_between(described, *ends)}

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
        if not isinstance(newest, FinishedRecord):
            return self._go_on(target, newest, progress)
        tail = newest.tail.reached(self._look, self.source.uri)
        self._finish(target, newest)
        size, behind = sum(newest.ends.values()), bytes_after(self._look, tail)
        return replace(self._result(size), head=newest.head, tail=tail, resumed=True, behind=behind)

    def _go_on(self, target: StreamDescription, newest: BatchRecord | None, progress: Progress) -> CopiedEvents:
        """Copy what follows the newest record's batch; None is before the first one. Errors as `run`."""
        resumed = newest is not None
        ends: Ends = dict.fromkeys(target.epochs[0].segments, 0)
        head, begin, copied = self._described.head, None, 0
        known: SourcePosition | None = None
        witness: dict[SegmentId, list[LastBytes]] = {}
        if newest is not None:
            known = newest.end
            begin = known.reached(self._look, self.source.uri)
            for one in newest.end.witness or ():
                witness.setdefault(one.segment, []).append(one)
            newest, is_there = self._settled(newest)
            begin = begin if is_there else newest.begin
            head, ends, copied = newest.head, newest.after, newest.copied
        self._check_end(ends)
        if newest is not None and not self._has(target, newest.lasts, newest.after):
            raise self._changed()
        places, ranges = Places(target.epochs[0].segments), self._described.ranges()
        batches = BatchPlanner(
            self.source.store,
            self._described,
            begin,
            lambda segment: self._key is not None or len(places.of(ranges[segment])) == 1,
        )
        filler = BatchFiller(self.source, self._described, self._key)
        lasts = dict(newest.lasts) if newest else {}
        progress.begin("copying", batches.left + copied, copied)
        before = copied
        while stretches := batches.next():
            transaction, filled = self._fill(filler, stretches, ends, known, progress)
            moved = sum(filled.lengths.values())
            lasts |= filled.lasts
            begin = batches.cut
            batches.copied(filled.ends)
            copied += moved
            after = {segment: end + filled.lengths.get(segment, 0) for segment, end in ends.items()}
            # what is before the new cut: of other segments, what former batches had
            fresh = {segment: [one for one in filled.witness if one.segment == segment] for segment in filled.ends}
            witness = {s: lasts_of for s, lasts_of in witness.items() if s in batches.cut.offsets} | fresh
            reached = self._position(batches.cut, witness)
            noted = BatchRecord(head, begin, reached, transaction.id, ends, after, lasts, copied)
            self._commit(transaction, noted, known)
            known, ends = reached, after
            self._check_end(ends)
        cut_short = self._cut_short(batches.left, copied) if batches.left and batches.is_cut_short else ""
        if batches.left and not cut_short:
            raise Failed("not all of the source was copied", where=self.source.uri, todo="Run it again.")
        progress.end()
        record = FinishedRecord(head, self._position(batches.cut, witness), ends, lasts)
        self._ledger.close(record)
        self._finish(target, record)
        return replace(
            self._result(sum(ends.values())),
            tail=batches.cut if cut_short else self._described.tail,
            moved_bytes=copied - before,
            resumed=resumed,
            truncated=batches.truncated,
            warnings=(*self._warnings, *((cut_short,) if cut_short else ())),
        )

    def _cut_short(self, left: int, copied: int) -> str:
        """Return the warning about what cannot be copied, as its segments do not fit into those of the copy.

        The source's segments fitted when the copy was begun, so that is what was written since.

        Raises:
            Conflict: nothing was copied.
        """
        what = f"the source was scaled since the copy was begun, and {left} bytes do not fit into its segments"
        again = f"with --key, or with --segments {fitting_count(self._held, self.count)}"
        if not copied:
            todo = f"Delete the unfinished copy, and begin again {again}."
            raise Conflict(what, where=self.target.uri, todo=todo)
        return f"{what}; the copy ends before them; to have them, delete it, and copy again {again}"

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
        record = self._ledger.finished(found)
        segments, held = len(found.epochs[-1].segments), BatchPlanner(self.target.store, found, None).left
        if record is None:
            unknown = replace(self._result(held), segments=segments, unchanged=True, warnings=(UNKNOWN,))
            return replace(unknown, tail=None)
        tail = record.tail.reached(self._look, self.source.uri)
        self._check_untouched(found, record)
        behind = bytes_after(self._look, tail)
        return CopiedEvents(record.head, tail, segments, held, unchanged=True, behind=behind)

    def _check_untouched(self, found: StreamDescription, record: FinishedRecord) -> None:
        """Compare a finished copy with its record, as far as it was not truncated.

        Raises:
            TargetTaken: it was written to or scaled since.
        """
        if (
            len(found.epochs) > 1
            or found.tail.offsets != record.ends
            or not self._has(found, record.lasts, record.ends)
        ):
            raise TargetTaken("the copy was written to since", where=self.target.uri, todo=OTHER_NAME)

    def _has(self, found: StreamDescription, lasts: Mapping[SegmentId, tuple[int, str]], ends: Ends) -> bool:
        """Whether the last block of each of the target's segments is the one that was noted, if it is still there."""
        store, name = self.target.store, self.target.name
        for segment, (length, digest) in lasts.items():
            start, end = ends[segment] - length, ends[segment]
            if start < found.head.offsets[segment]:
                continue
            if hashlib.sha256(store.read_bytes(name, segment, start, end)).hexdigest() != digest:
                return False
        return True

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

    def _settled(self, newest: BatchRecord) -> tuple[BatchRecord, bool]:
        """Finish the newest record's commit; return the record, and whether the batch is there.

        If it was aborted, the record is as if the batch were empty.
        """
        transactions = self.target.store.transactions()
        transaction = Transaction(self.target.name, newest.transaction, {})
        state = transactions.state(transaction)
        if state in {TransactionState.OPEN, TransactionState.COMMITTING}:
            state = transactions.commit(transaction)
        if state is TransactionState.UNKNOWN and self.target.describe().tail.offsets == newest.after:
            state = TransactionState.COMMITTED
        if state.is_committed:
            return newest, True
        lasts = {s: last for s, last in newest.lasts.items() if newest.before[s] == newest.after[s]}
        dropped = sum(newest.after.values()) - sum(newest.before.values())
        return replace(newest, after=newest.before, lasts=lasts, copied=newest.copied - dropped), False

    def _fill(
        self,
        filler: BatchFiller,
        stretches: Mapping[SegmentId, tuple[int, int]],
        ends: Ends,
        known: SourcePosition | None,
        progress: Progress,
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
            self._check_end(ends)  # raises if the copy is another stream now
            what = "the transaction of a batch has ended; this process was paused, or the batch took too long"
            raise Failed(what, where=self.target.uri, todo="Run it again.") from None
        except BaseException as error:
            self._drop(transaction)
            if isinstance(error, StreamStoreError):
                self._check_source(known)  # if it is another one, that is why
            raise
        return transaction, filled

    def _commit(self, transaction: Transaction, record: BatchRecord, known: SourcePosition | None) -> None:
        """Commit a batch, after comparing the source again, now that the batch is read.

        Args:
            transaction: what the batch was written to.
            record: the batch.
            known: the position that it goes on from; None for the first one.
        """
        try:
            self._check_source(known, record.end)
            self._ledger.record(record)
        except BaseException:
            self._drop(transaction)
            raise
        state = self.target.store.transactions().commit(transaction)
        if not state.is_committed:
            where = f"{self.target.uri}, transaction {transaction.id}"
            raise Failed(f"a batch was not committed: its transaction is {state}", where=where, todo="Run it again.")

    def _check_source(self, *positions: SourcePosition | None) -> None:
        """Compare the source as it is now with positions that it was read at; errors as `SourcePosition.reached`."""
        look = StreamSource(self.source).look()
        for position in positions:
            if position is not None:
                position.reached(look, self.source.uri)

    def _drop(self, transaction: Transaction) -> None:
        with suppress(Problem):  # else it ends with its lease
            self.target.store.transactions().abort(transaction)

    def _check_end(self, ends: Ends) -> None:
        """Check that the target has what was copied, and nothing else."""
        found = self.target.describe()
        if marked_import(found) != self._mark:
            if self._is_begun(found):
                raise self._taken_up()
            what = "another process has finished the copy, or another stream has its name now"
            raise Conflict(what, where=self.target.uri, todo="Run it again, to see what it is.")
        if found.sealed or len(found.epochs) > 1 or found.tail.offsets != ends:
            raise self._changed()

    def _position(self, cut: StreamCut, witness: Mapping[SegmentId, Sequence[LastBytes]]) -> SourcePosition:
        return SourcePosition(cut, history_digest(self._described.epochs), tuple(chain.from_iterable(witness.values())))

    def _finish(self, target: StreamDescription, record: FinishedRecord) -> None:
        """Record what it has, and make it an ordinary stream with the source's policies."""
        self._ledger.finish(target, record, partial(self._check_end, record.ends))
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
        head, tail = self._described.head, self._described.tail
        return CopiedEvents(head, tail, self.count, size, warnings=self._warnings)

    def _changed(self) -> Conflict:
        what = "the unfinished copy was changed by another process"
        todo = "Run it again. If it says the same then, delete the copy, and begin again; the source is unchanged."
        return Conflict(what, where=self.target.uri, todo=todo)

    def _taken_up(self) -> Conflict:
        todo = "Run it again, to see how far that one has come."
        return Conflict("another process copies into this stream", where=self.target.uri, todo=todo)
