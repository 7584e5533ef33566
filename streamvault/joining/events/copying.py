"""Copies a stream by events: batch after batch, each in a transaction (`streamstore.services.transaction_log`).

A batch's record says how long the target's segments are before it and after it. Nobody else writes to the target while
it has the mark of an unfinished one, so after a kill its length tells whether the batch is there, even if the store no
longer knows the transaction; and the last block of each segment is compared, so that nothing is appended to a stream
that is not the one that was left, nor from a source that is not the one that was read. The last record says what the
finished copy has, and no batch follows it: whoever finds it only finishes the copy. Each target's mark has a token
of its own, so a late run does not finish another target of the same copy.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from streamvault.common.errors import Conflict, Failed
from streamvault.common.progress import Progress
from streamvault.importer.ownership import first_segment_id, marked_import
from streamvault.importer.plan import fitting_configuration, scaling_warnings
from streamvault.importer.target import OTHER_NAME, TargetTaken, target_exists_error
from streamvault.joining.events.batches import BatchPlanner
from streamvault.joining.events.fill import LEASE, BatchFiller
from streamvault.joining.events.keys import EventKey
from streamvault.joining.events.record import BatchLog, BatchRecord
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
from streamvault.streamstore.services.transaction_log import Stage
from streamvault.streamstore.transactions import Written

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
        self._filler = BatchFiller(source, self._described, self._key)
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
            return finished
        target = self._found or self._create()
        if not self._is_begun(target):
            raise self._taken_up()
        self._mark = marked_import(target)
        self._log = BatchLog(self.target, target, self._id)
        newest = self._log.newest(create=True)
        if newest is None or newest.stage is not Stage.CLOSED:
            return self._go_on(target, newest, progress)
        tail = newest.end.reached(self._look, self.source.uri)
        self._finish(target, newest)
        size, behind = sum(newest.after.values()), bytes_after(self._look, tail)
        return replace(self._result(size), head=newest.head, tail=tail, resumed=True, behind=behind)

    def _go_on(self, target: StreamDescription, newest: BatchRecord | None, progress: Progress) -> CopiedEvents:
        """Copy what follows the newest record's batch; None is before the first one. Errors as `run`."""
        resumed, begin, none = newest is not None, self._described.head, dict.fromkeys(target.epochs[0].segments, 0)
        start = self._position(begin, ())
        done = BatchRecord(
            stage=Stage.PLANNED, head=begin, begin=begin, end=start, before=none, after=none, lasts={}, copied=0
        )
        if newest is not None:
            begin = newest.end.reached(self._look, self.source.uri)
            done = newest = self._log.settle(newest)
            if not newest.is_committed:
                begin, done = newest.begin, newest.without_batch()
        self._check_end(done.after)
        if not self._has(target, done.lasts, done.after):
            raise self._changed()
        places, ranges = Places(target.epochs[0].segments), self._described.ranges()
        batches = BatchPlanner(
            self.source.store,
            self._described,
            begin,
            lambda segment: self._key is not None or len(places.of(ranges[segment])) == 1,
        )
        before = done.copied
        progress.begin("copying", batches.left + before, before)
        while stretches := batches.next():
            done = newest = self._put(batches, stretches, done, newest, progress)
            self._check_end(done.after)
        cut_short = self._cut_short(batches.left, done.copied) if batches.left and batches.is_cut_short else ""
        if batches.left and not cut_short:
            raise Failed("not all of the source was copied", where=self.source.uri, todo="Run it again.")
        progress.end()
        closed = replace(done, stage=Stage.CLOSED, end=self._position(batches.cut, done.end.witness))
        self._finish(target, self._log.record(closed, newest))
        return replace(
            self._result(sum(done.after.values())),
            tail=batches.cut if cut_short else self._described.tail,
            moved_bytes=done.copied - before,
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
        what = f"the source was scaled since the copy was started, and {left} bytes do not fit into its segments"
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
        record = BatchLog(self.target, found, self._id).newest()
        segments, held = len(found.epochs[-1].segments), BatchPlanner(self.target.store, found, None).left
        if record is None or record.stage is not Stage.CLOSED:
            unknown = replace(self._result(held), segments=segments, unchanged=True, warnings=(UNKNOWN,))
            return replace(unknown, tail=None)
        tail = record.end.reached(self._look, self.source.uri)
        self._check_untouched(found, record)
        behind = bytes_after(self._look, tail)
        return CopiedEvents(record.head, tail, segments, held, unchanged=True, behind=behind)

    def _check_untouched(self, found: StreamDescription, record: BatchRecord) -> None:
        """Compare a finished copy with its record, as far as it was not truncated.

        Raises:
            TargetTaken: it was written to or scaled since.
        """
        if (
            len(found.epochs) > 1
            or found.tail.offsets != record.after
            or not self._has(found, record.lasts, record.after)
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

    def _put(
        self,
        batches: BatchPlanner,
        stretches: Mapping[SegmentId, tuple[int, int]],
        done: BatchRecord,
        newest: BatchRecord | None,
        progress: Progress,
    ) -> BatchRecord:
        """Copy a batch, and return its record. The source is compared again, now that the batch is read.

        Args:
            batches: what is copied.
            stretches: where the batch is taken from.
            done: what was copied before.
            newest: the record that it follows from.
            progress: receives the progress.
        """
        transactions = self.target.store.transactions()
        transaction = transactions.begin(self.target.name, LEASE)
        if transaction.segments.keys() != done.after.keys():
            self._log.abort(transaction)
            raise self._changed()
        begin = batches.cut
        try:
            filled = self._filler.fill(transactions, transaction, stretches, progress)
            transactions.check_holds(Written(transaction, filled.lengths))
            batches.copied(filled.ends)
            # what is before the new cut: of other segments, what former batches had
            known = (one for one in done.end.witness if one.segment in batches.cut.offsets.keys() - filled.ends)
            end = self._position(batches.cut, (*known, *filled.witness))
            self._check_source(done.end, end)
        except (NoSuchSegment, SegmentSealed, TransactionEnded):
            self._check_end(done.after)  # raises if the copy is another stream now
            what = "the transaction of a batch has ended; this process was paused, or the batch took too long"
            raise Failed(what, where=self.target.uri, todo="Run it again.") from None
        except BaseException as error:
            self._log.abort(transaction)
            if isinstance(error, StreamStoreError):
                self._check_source(done.end)  # if it is another one, that is why
            raise
        batch = replace(
            done,
            stage=Stage.COMMITTING,
            transaction=transaction,
            begin=begin,
            end=end,
            before=done.after,
            after={segment: at + filled.lengths.get(segment, 0) for segment, at in done.after.items()},
            lasts={**done.lasts, **filled.lasts},
            copied=done.copied + sum(filled.lengths.values()),
        )
        settled = self._log.commit(batch, newest)
        if not settled.is_committed:
            what = "a batch was not committed: its transaction is aborted"
            raise Failed(what, where=self._log.where(transaction), todo="Run it again.")
        return settled

    def _check_source(self, *positions: SourcePosition) -> None:
        """Compare the source as it is now with positions that it was read at; errors as `SourcePosition.reached`."""
        look = StreamSource(self.source).look()
        for position in positions:
            position.reached(look, self.source.uri)

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

    def _position(self, cut: StreamCut, witness: Sequence[LastBytes]) -> SourcePosition:
        return SourcePosition(cut, history_digest(self._described.epochs), tuple(witness))

    def _finish(self, target: StreamDescription, record: BatchRecord) -> None:
        """Make it an ordinary stream with the source's policies, if it has what was recorded."""
        self._check_end(record.after)
        given = self._described.configuration
        least = self.count if given.scaling.kind is ScaleKind.FIXED else min(given.scaling.min_segments, self.count)
        final = replace(
            given,
            scaling=replace(given.scaling, min_segments=least),
            tags=(*users_tags(given), self._tag),
        )
        self.target.store.update_stream(self.target.name, final, was=target.configuration)

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
