"""The *append* and *join* commands: sources are appended to a stream by one transaction.

`streamstore.transaction_log` says what makes that safe. Each step leads from one record of the ledger to the next,
and begins with what the newest record says. A step that finds that something has changed meanwhile leaves the record
as it is, or begins a new transaction for the same plan; in both cases the loop looks again.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise

from streamvault.common.errors import Conflict, Failed, Overtaken, Problem
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.concat.planning import (
    OtherBytes,
    Places,
    SourceCuts,
    StitchLog,
    StitchPlanner,
    StitchRecord,
    StitchTask,
    Stretch,
    TargetScale,
    digest_of,
    fill_transaction,
    open_sources,
    shared_ranges,
)
from streamvault.concat.reports import AppendOptions, JoinOptions, PlaceReport, StitchOptions, StitchReport
from streamvault.concat.room import former_ranges, give_back, make_room
from streamvault.importer.target import (
    OTHER_NAME,
    TargetTaken,
    check_other_stream,
    first_segment_id,
    marked_import,
    target_exists_error,
)
from streamvault.runner.opening import Tasks
from streamvault.sources.identity import AnotherSource
from streamvault.sources.source import Source
from streamvault.sources.sources import StreamSource
from streamvault.streamstore.byte_source import SourceTruncated
from streamvault.streamstore.cuts import Cut, is_before, later_of, parse_cut, sealed_ends, segments_between
from streamvault.streamstore.errors import InvalidCut, ScaleRefused, StreamChanged, StreamExists, StreamStoreError
from streamvault.streamstore.filling import Pinger
from streamvault.streamstore.lease import Lease, LeaseHeld
from streamvault.streamstore.ledger import LedgerConflict
from streamvault.streamstore.model import Epoch, Scaling, SegmentId, StreamConfiguration, StreamCut, StreamDescription
from streamvault.streamstore.own import (
    APPEND_LEASE,
    APPEND_LEDGER,
    JOIN,
    OWN,
    UNFINISHED,
    ScaleNote,
    check_users,
    is_own,
    stream_beside,
)
from streamvault.streamstore.store import Transaction, TransactionState, Written
from streamvault.streamstore.transaction_log import Stage
from streamvault.streamstore.uri import OpenStream, open_stream


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
    "the stream ended the transaction before it was complete: it keeps one open for a day at most, until it is sealed"
)
DELETED = "the ledger that says what was appended was deleted meanwhile"
DELETED_TODO = "Look whether the sources are in the stream. Run again, the command appends them from their heads."
NOTHING_APPENDED = "Nothing was appended."
READ_BEFORE = "What was read before is appended."
ANOTHER_TODO = "To append what is there now from its head, delete the stream"


@dataclass
class Stitched:
    """What a run has done.

    Attributes:
        record: the newest record, which is committed; None if there was nothing to append.
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


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a run would do.

    Attributes:
        record: the plan; None if there is nothing to append.
        resumed: whether an earlier run had begun.
        scale: the scale that the target needs first.
    """

    record: StitchRecord | None
    resumed: bool
    scale: TargetScale | None


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

    def rehearse(self, tasks: Tasks) -> Rehearsal:
        """Return what `run` would do; changes nothing. Errors as `run`."""
        record = self._log.newest()
        resumed = record is not None and not record.is_committed
        with self._saying_what_to_do():
            if record is None or record.is_committed or not self._planner.keeps(record):
                record = self._planner.plan(record, tasks)
            if record is None:
                return Rehearsal(None, resumed, None)
            if record.stage is not Stage.COMMITTING:
                return Rehearsal(record, resumed, self._target.scale_for(self._planner.stretches(record)))
        self.check_sources(record)
        return Rehearsal(record, resumed, None)

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
        held = LeaseHeld("another process appends the same sources", where=where, todo="Wait for it.")
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
            "the stream or a source changes too often to append to it",
            where=self._target.stream.uri,
            todo="Nothing was appended. Run it again when it is not scaled or truncated all the time.",
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
                    for index, filled in tasks.runner.run(fill_transaction, specs, progress=progress):
                        pinger.check()
                        lease.check()
                        stitched.moved += filled.appended
                        stitched.digests.update(zip(specs[index].keys, filled.digests, strict=True))
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
            todo = "Run it again; if that takes longer than a day, append the source by cuts (--to)."
            raise Failed(ENDED, where=self._log.where(record.begun), todo=todo) from None


@dataclass(frozen=True, slots=True)
class Reporting:
    """Makes reports of what a planner planned for a stream."""

    planner: StitchPlanner
    stream: OpenStream

    def rehearsed(self, rehearsal: Rehearsal, *, seconds: float) -> StitchReport:
        """Return the report of a dry run."""
        report = self.report(rehearsal.record, seconds)
        if rehearsal.record is None:
            return replace(report, dry_run=True)
        merged = rehearsal.scale.seal if rehearsal.scale else ()
        places = tuple(map(_unplaced, self._stretches(rehearsal.record)))
        merged_segments = tuple(segment.in_stream(self.stream.name) for segment in merged)
        return replace(
            report,
            dry_run=True,
            resumed=rehearsal.resumed,
            bytes=sum(place.end - place.start for place in places),
            merged_segments=merged_segments,
            places=places,
        )

    def done(self, stitched: Stitched, target: StitchTarget, *, seconds: float) -> StitchReport:
        """Return the report of what was appended to a target, which is not finished yet if it was made for it."""
        record = stitched.record
        report = self.report(record, seconds)
        if record is None:
            return report
        name = self.stream.name
        return replace(
            report,
            resumed=stitched.resumed,
            segments=len(target.describe(may_be_sealed=True).epochs[-1].segments),
            bytes=sum(record.lengths.values()),
            moved_bytes=stitched.moved,
            merged_segments=tuple(segment.in_stream(name) for segment in stitched.merged),
            commit_seconds=stitched.commit_seconds,
            places=tuple(self._places(stitched, record, target)),
        )

    def report(self, record: StitchRecord | None, seconds: float) -> StitchReport:
        """Return what a report says of a record's plan; None is a run that had nothing to do."""
        uris = [part.uri for part in record.parts] if record else [one.uri for one in self.planner.sources.sources]
        return StitchReport(
            sources=tuple(uris),
            stream=self.stream.uri,
            unchanged=record is None,
            left_out=tuple(self.planner.left_out(record)) if record else (),
            warnings=tuple(self.planner.warnings),
            seconds=seconds,
        )

    def _stretches(self, record: StitchRecord) -> list[Stretch]:
        try:
            return self.planner.stretches(record)
        except (SourceTruncated, AnotherSource):  # since it was appended
            return []

    def _places(self, stitched: Stitched, record: StitchRecord, target: StitchTarget) -> Iterator[PlaceReport]:
        transaction = record.begun
        landed = target.find_landed(transaction, record.lengths, record.ends)
        places, before = Places(transaction.segments), dict.fromkeys(transaction.segments, 0)
        for stretch in self._stretches(record):
            segment = places.of(stretch.keys)[0]
            yield replace(
                _unplaced(stretch),
                target_segment=landed[segment].segment.in_stream(transaction.stream),
                offset=landed[segment].offset + before[segment],
                exact=landed[segment].exact,
                digest=stitched.digests.get(stretch.key, ""),
            )
            before[segment] += stretch.size


def _unplaced(stretch: Stretch) -> PlaceReport:
    return PlaceReport(source=stretch.uri, segment=stretch.segment, start=stretch.start, end=stretch.end)


STITCH_TASKS = (fill_transaction, digest_of)
"""The tasks of a stitch, for opening a runner."""


@verb(AppendOptions)
def append_streams(sources: Sequence[str], into: str, options: AppendOptions, progress: Progress) -> StitchReport:
    """Append streams and archives to a stream: everything becomes readable at once, after its last event.

    Events keep their bytes and, for each routing key, their order: a source's own, and that of the sources. Whoever
    writes to the stream goes on meanwhile. After a kill, repeat the call to resume. A call that is repeated later
    appends what the sources have got since, or nothing.

    If a source's segment covers the keys of several segments of the stream, these are merged into one for the commit,
    and split again after it, whatever the stream's policy; the report of a dry run names them.

    Args:
        sources: the streams and archives to append, in this order.
        into: the stream to append to, which exists; its cluster's login may be given by ``PRAVEGA_TARGET_USERNAME``,
            ``…_PASSWORD``, ``…_CA_FILE`` and ``…_TLS_VERIFY_HOSTNAME``.
        own_segments: put the bytes into segments of their own, from offset 0, sealed at once. The stream gets three
            more epochs for it, and its segments' numbers cannot be given again (an import needs ``numbers="map"``).
        to_cut: append only events before this cut (JSON text or a mapping) of the only source.
        distinct: leave out a segment of which an earlier source has one with the same length and SHA-256.
        window: maximum data a task buffers in memory (bytes).
        master: a Spark master, or ``"inline"`` for no Spark.
        dry_run: only report what would be appended.
        progress: receives the progress.

    Raises:
        Problem: nothing was appended; the exception has the command's exit code.
    """
    with ExitStack() as stack:
        opened = open_sources(sources, stack)
        stream = open_into(into, opened, stack)
        target = StitchTarget(stream)
        planner = StitchPlanner(opened, distinct=options.distinct, to_cut=options.to_cut, window=options.window)
        stitching = Stitching(target, planner, own_segments=options.own_segments, window=options.window)
        tasks, reporting = Tasks(options.master, stack, STITCH_TASKS), Reporting(planner, stream)
        if options.dry_run:
            return reporting.rehearsed(stitching.rehearse(tasks), seconds=tasks.seconds)
        stitched = stitching.run(tasks, progress)
        report = reporting.done(stitched, target, seconds=tasks.seconds)
        stitching.check_sources(stitched.record)
        return report


def open_into(into: str, sources: Sequence[Source], stack: ExitStack) -> OpenStream:
    """Open the target of a stitch; ``stack`` closes it.

    Raises:
        Usage: it is one of the sources.
    """
    stream = stack.enter_context(open_stream(into, target=True))
    for source in sources:
        if isinstance(source, StreamSource):
            check_other_stream(source.stream, stream)
    return stream


class NewTarget:
    """The target of a join, which exists or not.

    Args:
        stream: the stream.
        planner: of the sources.
        window: maximum data a task buffers in memory (bytes).
    """

    def __init__(self, stream: OpenStream, planner: StitchPlanner, *, window: int) -> None:
        self._stream = stream
        self._planner = planner
        self._window = window
        asked = json.dumps([planner.names, planner.order, planner.distinct])
        self._join_id = f"{JOIN}{hashlib.sha256(asked.encode()).hexdigest()[:32]}"

    def find(self) -> tuple[Stitching, StitchTarget] | None:
        """Return the stitch into this join's unfinished target; None if there is no stream of that name.

        Raises:
            TargetTaken: there is another one.
        """
        described = self._stream.find()
        if described is None:
            return None
        if not marked_import(described).startswith(f"{self._join_id}."):
            raise target_exists_error(self._stream.store, described)
        return self._stitching(described)

    def is_finished(self) -> bool:
        """Return whether this join has made the stream, and nothing else was appended by the same sources since.

        Raises:
            AnotherSource: it has, of another source than there is now.
            TargetTaken: it was joined of the same sources in another order, or with other options.
        """
        described = self._stream.find()
        if described is None or is_own(described.configuration) or described.sealed:
            return False
        stitching, _ = self._stitching(described)
        record = stitching.newest()
        if record is None or record.stage is not Stage.CLOSED:
            return False
        if not self._planner.is_asked(record):
            what = "the stream was joined of these sources in another order, or with another --distinct"
            raise TargetTaken(what, where=self._stream.uri, todo=OTHER_NAME)
        self._planner.check_sources(record)
        return True

    def make(self) -> tuple[Stitching, StitchTarget]:
        """Create the stream, unless it is there, with the key ranges that all sources share.

        It is always scaled before anything is recorded. So a process that is late with its scale, which may be another
        one, finds that the segment it would replace is sealed.

        Raises:
            TargetTaken: there is another stream of that name.
        """
        # a source or a cut that is not possible is found before anything is made
        ranges = None if self._stream.find() else shared_ranges(self._planner.ranges())
        tags = (OWN, f"{UNFINISHED}{self._join_id}.{secrets.token_hex(8)}")
        with suppress(StreamExists):
            self._stream.store.create_stream_and_scope(self._stream.name, StreamConfiguration(tags=tags))
        found = self.find()
        if found is None:
            raise Overtaken("the stream was deleted meanwhile", where=self._stream.uri)
        stitching, target = found
        described = target.describe()
        if len(described.epochs) == 1 and stitching.newest() is None:
            ranges = ranges or shared_ranges(self._planner.ranges())
            with suppress(ScaleRefused):
                self._stream.store.scale(self._stream.name, list(described.tail.offsets), ranges)
        return found

    def finish(self, target: StitchTarget) -> None:
        """Make the stream its user's, unless another process has; a record says that nothing more is appended.

        Raises:
            Overtaken: it is not the stream that was filled.
        """
        described = self._stream.describe()
        if first_segment_id(described) != target.first_segment_id:
            raise Overtaken("the stream was deleted and created again meanwhile", where=self._stream.uri)
        if not marked_import(described).startswith(f"{self._join_id}."):
            return
        segments = len(described.epochs[-1].segments)
        finished = StreamConfiguration(Scaling(min_segments=segments))
        with suppress(StreamChanged):  # another process has finished it, and its user has configured it
            self._stream.store.update_stream(self._stream.name, finished, was=described.configuration)

    def _stitching(self, described: StreamDescription) -> tuple[Stitching, StitchTarget]:
        marked = marked_import(described)
        target = StitchTarget(self._stream, f"{UNFINISHED}{marked}" if marked else "")
        return Stitching(target, self._planner, own_segments=False, window=self._window), target


@verb(JoinOptions)
def join_streams(sources: Sequence[str], into: str, options: JoinOptions, progress: Progress) -> StitchReport:
    """Put streams and archives together in a new stream, one after the other.

    For each routing key, events keep their order: a source's own, and that of the sources. The stream has the key
    ranges that all sources share, a fixed number of segments, no retention and no tags. Until everything is there, it
    is an internal stream. After a kill, repeat the call to resume. To add what the sources get later, append them.

    Args:
        sources: the streams and archives, in this order.
        into: the stream to create, as for `append_streams`; its scope is created if it does not exist.
        distinct: as for `append_streams`.
        window: maximum data a task buffers in memory (bytes).
        master: a Spark master, or ``"inline"`` for no Spark.
        dry_run: only report what would be joined.
        progress: receives the progress.

    Raises:
        Problem: the join failed; the exception has the command's exit code.
        TargetTaken: the stream exists and is neither this call's unfinished one nor a finished one (exit code 4).
    """
    with ExitStack() as stack:
        opened = open_sources(sources, stack)
        planner = StitchPlanner(opened, distinct=options.distinct, window=options.window, joins=True)
        stream, tasks = open_into(into, opened, stack), Tasks(options.master, stack, STITCH_TASKS)
        return join_parts(planner, stream, options, tasks, progress)


def join_parts(
    planner: StitchPlanner, stream: OpenStream, options: StitchOptions, tasks: Tasks, progress: Progress
) -> StitchReport:
    """Make a stream of what a planner plans; see `join_streams`.

    Args:
        planner: decides what is joined.
        stream: the stream to create.
        options: how.
        tasks: open the runner.
        progress: receives the progress.
    """
    new, reporting = NewTarget(stream, planner, window=options.window), Reporting(planner, stream)
    if new.is_finished():
        return replace(reporting.report(None, tasks.seconds), dry_run=options.dry_run)
    found = new.find()
    if options.dry_run:
        nothing_begun = Rehearsal(planner.plan(None, tasks), resumed=False, scale=None)
        rehearsal = found[0].rehearse(tasks) if found else nothing_begun
        segments = len(shared_ranges(planner.ranges()))
        return replace(reporting.rehearsed(rehearsal, seconds=tasks.seconds), segments=segments)
    stitching, target = new.make()
    stitched = stitching.run(tasks, progress)
    report = reporting.done(stitched, target, seconds=tasks.seconds)
    new.finish(target)
    stitching.check_sources(stitched.record)
    return report


class RangePlanner(StitchPlanner):
    """Plans a stitch of some parts of one source.

    Args:
        source: the source.
        ranges: the parts, each between two cuts, in the stream's order.
        window: maximum data a task buffers in memory (bytes).

    Raises:
        InvalidCut: a cut is not one of the source, a part ends before it begins, or parts overlap or are out of order.
    """

    def __init__(self, source: Source, ranges: Sequence[tuple[Cut, Cut]], *, window: int) -> None:
        super().__init__([source], distinct=False, window=window, joins=True)
        described = self.sources.looks[0].described
        self._ranges = [(self._cut(one), self._cut(other)) for one, other in ranges]
        for begin, end in self._ranges:
            _check_order(described, begin, end, "a range ends before it begins")
        for (_, end), (begin, _) in pairwise(self._ranges):
            _check_order(described, end, begin, "the ranges overlap, or are not in the stream's order")

    def _cut(self, given: Cut) -> StreamCut:
        source = self.sources.sources[0]
        cut = parse_cut(given, source.name, source.end_of)
        assert cut is not None  # noqa: S101  (one is given)
        return cut

    @property
    def names(self) -> list[str]:
        """See the base class."""
        cuts = [[cut.to_json() for cut in both] for both in self._ranges]
        return [*super().names, json.dumps(cuts)]

    def _parts(self, newest: StitchRecord | None) -> list[SourceCuts]:
        """Return what the source still has of each range; the cuts are checked at first."""
        source, look = self.sources.sources[0], self.sources.looks[0]
        described, found = look.described, list[SourceCuts]()
        for part in newest.parts if newest is not None else ():
            part.between(look)
        known = newest.parts if newest is not None else (None,) * len(self._ranges)
        for (given, until), before in zip(self._ranges, known, strict=True):
            begin = later_of(described, given, described.head)
            end = later_of(described, until, begin)
            if begin != given:
                self.warnings.append(f"{source.uri} was truncated beyond the beginning of a range")
            if newest is None:
                look.parts(begin, end, known=() if begin == given else (begin,))
            found.append(SourceCuts(source.uri, begin, self.sources.position(0, end, before.to if before else None)))
        return found


def _check_order(described: StreamDescription, one: StreamCut, other: StreamCut, what: str) -> None:
    """Check that a cut is not after another one for any key.

    Raises:
        InvalidCut: it is; names the segment.
    """
    if not is_before(described, one, other):
        try:
            segments_between(described, one, other)
        except InvalidCut as error:
            raise InvalidCut(what, where=error.where) from None
