"""Appends sources to a stream by one transaction; `streamstore.transaction_log` says what makes that safe.

Each step leads from one record of the ledger to the next, and begins with what the newest record says. A step that
finds that something has changed meanwhile leaves the record as it is, or begins a new transaction for the same plan; in
both cases the loop looks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from streamvault.common.errors import Conflict, Failed, Overtaken, Problem
from streamvault.common.progress import Progress
from streamvault.concat.planning import (
    OtherBytes,
    Places,
    StitchLog,
    StitchPlanner,
    StitchRecord,
    StitchTask,
    Stretch,
    TargetScale,
    fill_transaction,
)
from streamvault.concat.room import former_ranges, give_back, make_room
from streamvault.importer.target import first_segment_id
from streamvault.runner.opening import Tasks
from streamvault.sources.identity import AnotherSource
from streamvault.streamstore.byte_source import SourceTruncated
from streamvault.streamstore.cuts import sealed_ends
from streamvault.streamstore.errors import ScaleRefused, StreamStoreError
from streamvault.streamstore.filling import Pinger
from streamvault.streamstore.lease import Lease, LeaseHeld
from streamvault.streamstore.ledger import LedgerConflict
from streamvault.streamstore.model import Epoch, SegmentId, StreamDescription
from streamvault.streamstore.own import APPEND_LEASE, APPEND_LEDGER, ScaleNote, check_users, stream_beside
from streamvault.streamstore.store import Transaction, TransactionState, Written
from streamvault.streamstore.transaction_log import Stage
from streamvault.streamstore.uri import OpenStream


@dataclass(frozen=True, slots=True)
class Landed:
    """Where a transaction's segment is in the target.

    Attributes:
        segment: the target's segment.
        offset: where its first byte is (bytes); the lowest possible place if it is not exact.
        exact: whether that is exact.
    """

    segment: SegmentId
    offset: int
    exact: bool


class StitchTarget:
    """An open stream that others may write to, scale, seal, delete and create again meanwhile.

    Args:
        stream: the stream, which exists.
        mark: the tag of a stream that is made for a stitch, and is not finished; empty for a user's stream.

    Attributes:
        stream: the stream.
        first_segment_id: which stream of this name it is, see `importer.target.first_segment_id`.

    Raises:
        OwnStream: it is an internal stream.
        Conflict: it is sealed.
    """

    def __init__(self, stream: OpenStream, mark: str = "") -> None:
        self.stream = stream
        self._mark = mark
        self.first_segment_id = first_segment_id(self._look(may_be_sealed=False))

    def describe(self, *, may_be_sealed: bool = False) -> StreamDescription:
        """Describe the stream.

        Raises:
            Conflict: it is another stream now, or sealed, or was made for a stitch and is finished.
        """
        described = self._look(may_be_sealed=may_be_sealed)
        if first_segment_id(described) != self.first_segment_id:
            todo = "Nothing was appended to the new one. Run the same command again to append to it."
            raise Conflict("the stream was deleted and created again meanwhile", where=self.stream.uri, todo=todo)
        return described

    def _look(self, *, may_be_sealed: bool) -> StreamDescription:
        store, name = self.stream.store, self.stream.name
        described = store.describe(name)
        if not self._mark:
            check_users(store, described)
        elif self._mark not in described.configuration.tags:
            raise Overtaken("another process has finished the stream, or replaced it", where=self.stream.uri)
        if described.sealed and not may_be_sealed:
            raise Conflict("the stream is sealed, so nothing can be appended", where=self.stream.uri)
        return described

    def scale_for(self, stretches: Iterable[Stretch]) -> TargetScale | None:
        """Return the scale that makes room for the stretches, so that each key keeps its order; None if none is needed.

        Errors as `describe`.
        """
        return Places(self.describe().epochs[-1].segments).scale_for(stretch.keys for stretch in stretches)

    def make_room(self, stretches: Iterable[Stretch], lease: Lease, ledger: StitchLog) -> tuple[SegmentId, ...]:
        """Scale the stream so that there is room for the stretches; return the segments that were merged.

        If somebody scales or configures the stream meanwhile, nothing is merged, or not enough. Errors as `describe`
        and `concat.room.make_room`.
        """
        described = self.describe()
        scale = Places(described.epochs[-1].segments).scale_for(stretch.keys for stretch in stretches)
        if scale is None or not make_room(self.stream, described, scale, lease, ledger):
            return ()
        return scale.seal

    def ends_of_parents(self, transaction: Transaction) -> dict[SegmentId, int]:
        """Return where the segments end that a transaction would be appended to, or was if they are sealed (bytes).

        Segments that are truncated are absent.

        Raises:
            Conflict: as `describe`; so a transaction that is open is known to be of this very stream.
        """
        _, parents = _epochs_like(self.describe(), transaction)
        return sealed_ends(self.stream.store, self.stream.name, list(parents[-1].segments))

    def make_roll(
        self, transaction: Transaction, lengths: Mapping[SegmentId, int], known: ScaleNote | None = None
    ) -> None:
        """Make the commit of an open transaction roll, so that it becomes segments of its own.

        It rolls if the stream was scaled since it began. So a segment is replaced to which bytes would be appended:
        as it does not grow any more, it is seen afterwards that the commit has rolled. If the stream was scaled to make
        room, it gets its key ranges back by the same scale.

        Args:
            transaction: the transaction.
            lengths: how many bytes its segments have, of those that have some.
            known: see `concat.room.give_back`.
        """
        described = self.describe()
        current = described.epochs[-1]
        if _numbers(current.segments) == _numbers(transaction.segments):
            full, scale = _numbers(lengths), former_ranges(described, known) or TargetScale((), ())
            if not full & _numbers(scale.seal):
                segment, held = next(item for item in current.segments.items() if item[0].number in full)
                scale = TargetScale((*scale.seal, segment), (*scale.ranges, held))
            with suppress(ScaleRefused):
                self.stream.store.scale(self.stream.name, scale.seal, scale.ranges)

    def find_landed(
        self, transaction: Transaction, lengths: Mapping[SegmentId, int], ends: Mapping[SegmentId, int]
    ) -> dict[SegmentId, Landed]:
        """Return where each segment of a committed transaction is, of those that have bytes.

        Args:
            transaction: the transaction.
            lengths: how many bytes each of its segments has.
            ends: see `ends_of_parents`; as they were before the commit.

        Raises:
            Conflict: the stream was deleted and created again since.
        """
        rolled, parents = _epochs_like(self.describe(may_be_sealed=True), transaction)
        last = next((index for index, epoch in enumerate(parents) if ends.keys() & epoch.segments.keys()), 0)
        full = {segment.number: segment for segment in transaction.segments if lengths.get(segment)}
        places = []
        for epoch in parents[last:] + rolled:
            own = {segment: full[segment.number] for segment in epoch.segments if segment.number in full}
            now = sealed_ends(self.stream.store, self.stream.name, list(own))
            left = {
                segment: now[segment] - ends.get(segment, 0) - lengths[own[segment]]
                for segment in own
                if segment in now
            }
            landed = {own[s]: Landed(s, ends.get(s, 0), exact=left.get(s) == 0) for s in own}
            places.append((all(more >= 0 for more in left.values()), landed))
        possible = [landed for is_possible, landed in places if is_possible]
        if len(possible) == 1:
            return possible[0]
        return {segment: replace(one, exact=False) for segment, one in (possible or [places[0][1]])[0].items()}


def _numbers(segments: Iterable[SegmentId]) -> frozenset[int]:
    return frozenset(segment.number for segment in segments)


def _epochs_like(described: StreamDescription, transaction: Transaction) -> tuple[list[Epoch], list[Epoch]]:
    """Return the epochs that a transaction may have become when it was committed, and those it may be appended to.

    All of them have segments with the numbers of the transaction's. Only a commit that rolls uses numbers again: it
    makes an epoch with those of its transaction, and another one that repeats the epoch before.
    """
    rolled: list[Epoch] = []
    parents: list[Epoch] = []
    known, rolls = set[frozenset[int]](), False
    for epoch in described.epochs:
        numbers = _numbers(epoch.segments)
        rolls = not rolls and numbers in known
        known.add(numbers)
        if numbers == _numbers(transaction.segments):
            (rolled if rolls else parents).append(epoch)
    return rolled, parents


LEASE_SECONDS = 600.0
"""How long a transaction stays open without a ping: Pravega's default maximum."""

TURNS = 20
"""How often a stitch begins again because the target or a source changes, or a transaction ends."""

ENDED = (
    "the stream ended the transaction before it was complete: a transaction stays open for at most a day, and until "
    "the stream is sealed"
)
DELETED = "the ledger that records what was appended was deleted meanwhile"
DELETED_TODO = "Check whether the sources are in the stream: if run again, the command appends them from their heads."
NOTHING_APPENDED = "Nothing was appended."
READ_BEFORE = "What was read before has been appended."
ANOTHER_TODO = "To append what is there now from its head, delete the stream"


@dataclass
class Stitched:
    """What a run has done, or would do.

    Attributes:
        record: the newest record, which is committed, or the plan; None if there is nothing to append.
        resumed: whether an earlier run had begun.
        moved: bytes that this run appended.
        commit_seconds: how long the commit took; 0 if an earlier run made it.
        merged: the segments that were merged first.
        digests: `Stretch.key` → SHA-256 of the stretch, hexadecimal, of those that this run read.
    """

    record: StitchRecord | None
    resumed: bool
    moved: int = 0
    commit_seconds: float = 0.0
    merged: tuple[SegmentId, ...] = ()
    digests: dict[tuple[str, str, int], str] = field(default_factory=dict)


class Stitching:
    """Appends sources to a target.

    Args:
        target: the target.
        planner: decides what is appended.
        own_segments: whether the bytes become segments of their own.
        window: maximum data a task buffers in memory (bytes).
    """

    def __init__(self, target: StitchTarget, planner: StitchPlanner, *, own_segments: bool, window: int) -> None:
        self._target = target
        self._planner = planner
        self._own_segments = own_segments
        self._window = window
        stream = target.stream
        self._transactions = stream.store.transactions()
        # a target that was created again is another one
        what = (target.first_segment_id, *planner.names)
        self._log = StitchLog(stream.store, stream_beside(stream.name, APPEND_LEDGER, *what), stream.name)
        self._lease_name = stream_beside(stream.name, APPEND_LEASE, *what)

    def newest(self) -> StitchRecord | None:
        """Return the newest record; None if there is none."""
        return self._log.newest()

    def rehearse(self, tasks: Tasks) -> Stitched:
        """Return what `run` would do; changes nothing. Errors as `run`."""
        record = self._log.newest()
        resumed = record is not None and not record.is_committed
        with self._saying_what_to_do():
            if record is None or record.is_committed or not self._planner.keeps(record):
                record = self._planner.plan(record, tasks)
            if record is None:
                return Stitched(None, resumed)
            if record.stage is not Stage.COMMITTING:
                scale = self._target.scale_for(self._planner.stretches(record))
                return Stitched(record, resumed, merged=scale.seal if scale else ())
        self.check_sources(record)
        return Stitched(record, resumed)

    def run(self, tasks: Tasks, progress: Progress) -> Stitched:
        """Append what is new in the sources, or finish what an earlier run has begun.

        Raises:
            LeaseHeld: another process does the same.
            Conflict: the target is sealed, or was deleted and created again.
            AnotherSource: a source is not the one that was appended before.
            Damaged: an archive is damaged.
            Failed: it is unknown whether an earlier run has committed.
        """
        where = self._target.stream.uri
        held = LeaseHeld("another process is appending the same sources", where=where, todo="Wait for it.")
        lease = Lease.take(self._target.stream.store, self._lease_name, "append", held=held)
        try:
            with self._saying_what_to_do():
                stitched = self._run(lease, tasks, progress)
            warning = self._give_back(lease)
        except (Problem, KeyboardInterrupt):  # also if it was interrupted while it gave everything back
            with suppress(Problem):
                self._give_back(lease)
            raise
        else:
            if warning:
                self._planner.warnings.append(warning)
            return stitched
        finally:
            lease.release(remove=True)

    def check_sources(self, record: StitchRecord | None) -> None:
        """Check that what is committed, perhaps by an earlier run, is of the sources that this run was given.

        Call it when everything else is done: what may be committed is finished, even if its source is gone.

        Raises:
            AnotherSource: a source is not the one that was appended.
        """
        if record is not None:
            with self._saying_what_to_do(READ_BEFORE):
                self._planner.check_sources(record)

    def _give_back(self, lease: Lease) -> str:
        """Give the target back what it had before it was scaled, unless another append that goes on needs it so."""
        with suppress(LeaseHeld):
            return give_back(self._target.stream, lease, self._log.note)
        return ""

    def _run(self, lease: Lease, tasks: Tasks, progress: Progress) -> Stitched:
        record = self._log.newest(create=True)
        stitched = Stitched(record, resumed=record is not None and (self._planner.joins or not record.is_committed))
        for _ in range(TURNS):
            try:
                record = self._step(stitched, lease, tasks, progress)
            except LedgerConflict:
                lease.confirm()  # another process has taken over
                if (record := self._log.newest()) is None:
                    raise Conflict(DELETED, where=str(self._log.name), todo=DELETED_TODO) from None
            except SourceTruncated:
                record = self._plan(stitched.record, tasks)
            stitched.record = record
            if record is None or (record.is_committed and not self._planner.joins) or record.stage is Stage.CLOSED:
                return stitched
        raise Failed(
            "the stream or a source changes too often to append",
            where=self._target.stream.uri,
            todo="Nothing was appended. Run the same command again once they are scaled or truncated less often.",
        )

    def _step(self, stitched: Stitched, lease: Lease, tasks: Tasks, progress: Progress) -> StitchRecord | None:
        """Go on from the newest record; return the one that is the newest then, None if there is nothing to append."""
        record = stitched.record
        if record is not None and record.is_committed and self._planner.joins:
            return record if record.stage is Stage.CLOSED else self._log.advance(record, Stage.CLOSED)
        if record is None or record.is_committed or not self._planner.keeps(record):
            return self._plan(record, tasks)
        if record.transaction is None:
            return self._begin(record, stitched, lease)
        settled = self._log.settle(record)
        stitched.commit_seconds = self._log.commit_seconds
        return self._fill(settled, stitched, lease, tasks, progress) if settled.stage is Stage.FILLING else settled

    def _plan(self, record: StitchRecord | None, tasks: Tasks) -> StitchRecord | None:
        """Decide what is appended next, and record it; None if there is nothing.

        The transaction of a record that is not committed is given up first, so that it never will be.
        """
        before = None if record is None else self._log.give_up(record)
        planned = self._planner.plan(before, tasks)
        if planned is None:
            return None
        self._target.describe()  # it must still be there
        return self._log.record(replace(planned, note=self._log.note), before)

    def _begin(self, record: StitchRecord, stitched: Stitched, lease: Lease) -> StitchRecord:
        """Begin a transaction for a plan, of which no other transaction can be committed any more, and record it."""
        stretches = self._planner.stretches(record)
        stitched.merged += self._target.make_room(stretches, lease, self._log)

        def fits(transaction: Transaction) -> bool:  # else the stream was scaled meanwhile
            return Places(transaction.segments).scale_for(stretch.keys for stretch in stretches) is None

        return self._log.begin(replace(record, note=self._log.note), LEASE_SECONDS, fits)

    def _fill(
        self, record: StitchRecord, stitched: Stitched, lease: Lease, tasks: Tasks, progress: Progress
    ) -> StitchRecord:
        """Fill the transaction that the newest record names; record that it may be committed, or is given up."""
        transaction = record.begun
        places = Places(transaction.segments)
        by_segment: dict[SegmentId, list[Stretch]] = {}
        for stretch in self._planner.stretches(record):
            by_segment.setdefault(places.of(stretch.keys)[0], []).append(stretch)
        address, window = self._target.stream.address, self._window
        specs = [StitchTask(address, transaction, s, tuple(held), window) for s, held in by_segment.items()]
        progress.begin("appending", sum(task.size for task in specs))
        lengths = {task.segment: task.size for task in specs}
        try:
            with self._explaining_end(record), self._planner.reading():
                self._transactions.ping(transaction, LEASE_SECONDS)
                with Pinger(self._transactions, transaction, LEASE_SECONDS) as pinger:
                    for index, (appended, digests) in tasks.runner.run(fill_transaction, specs, progress=progress):
                        pinger.check()
                        lease.check()
                        stitched.moved += appended
                        keys = (stretch.key for stretch in specs[index].stretches)
                        stitched.digests.update(zip(keys, digests, strict=True))
                        progress.advance(0, specs[index].size)
                self._transactions.check_holds(Written(transaction, lengths))
            self._planner.check_sources(record, again=True)  # they may have been replaced while they were read
        except OtherBytes:  # an earlier run has read a source that was damaged then, or is another one now
            return self._log.give_up(record)
        progress.end()
        if self._own_segments:
            self._target.make_roll(transaction, lengths, record.note)
        ends = self._target.ends_of_parents(transaction)
        return self._log.advance(record, Stage.COMMITTING, lengths=lengths, ends=ends)

    @contextmanager
    def _saying_what_to_do(self, done: str = NOTHING_APPENDED) -> Iterator[None]:
        """Say what was done, and what to do, if a source is another one."""
        try:
            yield
        except AnotherSource as error:
            todo = "Name another stream." if self._planner.joins else f"{ANOTHER_TODO} {self._log.name} first."
            raise AnotherSource(error.what, where=error.where, todo=f"{done} {todo}") from None

    @contextmanager
    def _explaining_end(self, record: StitchRecord) -> Iterator[None]:
        """Say why a transaction ended while it was filled."""
        try:
            yield
        except SourceTruncated:
            raise
        except StreamStoreError:
            self._log.check(record)
            self._target.describe()  # raises if the stream is sealed, gone, or another one now
            if self._log.state(record.begun) is TransactionState.OPEN:
                raise
            todo = "Run the same command again; if that takes longer than a day, append the source in parts (--to)."
            raise Failed(ENDED, where=self._log.where(record.begun), todo=todo) from None
