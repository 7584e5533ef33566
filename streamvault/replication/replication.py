"""Brings a replica up to its source, round by round; and finds its target, which is from then on that very stream.

The target is free, or its source's replica, when it is found. The source has to stay the same, too. A stream of the
same name and first segments may be another one: in a cluster that was rebuilt, numbering begins anew. So the ledger has
the source's tail and head of the newest round, and each round compares the last bytes of all open segments with the
replica's (`ImportRun.check_unfinished`) before it appends to any.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamvault.common.errors import Conflict, Failed, Overtaken
from streamvault.common.progress import Progress
from streamvault.common.units import now_utc
from streamvault.common.waiting import Round
from streamvault.importer.plan import CannotReplay, Content, RestorePlan, plan_restore
from streamvault.importer.reports import TargetOptions
from streamvault.importer.run import COMPARED_BYTES, ImportRun
from streamvault.importer.target import (
    LOOKS,
    Target,
    TargetBusy,
    TargetTaken,
    Unfinished,
    check_filler,
    has_data,
    look_again,
    reporting_lost_lease,
    take_lease,
    target_exists_error,
    unfinished_import,
)
from streamvault.manifests.archive import NoSuchArchive
from streamvault.replication.content import CarryingGroups, mirrored_content
from streamvault.replication.replica import (
    REPLICA,
    Record,
    Replica,
    configuration_document,
    is_sealed_by_user,
    replica_id,
    replica_tag,
)
from streamvault.runner.inline import InlineRunner
from streamvault.runner.opening import Tasks
from streamvault.runner.runner import Runner
from streamvault.sources.identity import COMPARED_SEGMENTS, AnotherSource, SourcePosition, compare_witness
from streamvault.sources.source import Source, SourceState, bytes_after
from streamvault.sources.sources import StreamSource
from streamvault.streamstore.byte_source import SourceTruncated
from streamvault.streamstore.cuts import counterparts, is_before, later_of
from streamvault.streamstore.errors import InvalidCut, NoSuchScope, NoSuchSegment, NoSuchStream, SegmentTruncated
from streamvault.streamstore.lease import Lease
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription
from streamvault.streamstore.own import REPLICA_OF, is_own, tag_of


class ReplicaTarget:
    """The target of a replication, and the ledger that is about it.

    Args:
        source: the source.
        replica: the target; it need not exist.
        options: how the source becomes a new stream.
        keep_head: keep what the source truncates. Once given, it holds for the replica.

    Attributes:
        source, replica, options: as above.
        id: see `Record.work`; known after `find`.
        first: see `Record.target`; empty before `begin`.
        keep_head: as above.
        is_new: whether there was no target when it was read.
        deleted: the newest record of the ledger that was read if that is about a target that was deleted, else None.
    """

    def __init__(self, source: Source, replica: Replica, options: TargetOptions, *, keep_head: bool) -> None:
        self.source = source
        self.replica = replica
        self.options = options
        self.deleted: Record | None = None
        self._described: StreamDescription
        self.keep_head = keep_head
        self.id = self.first = ""
        self.is_new = False

    @property
    def keeps_head(self) -> bool:
        """Whether the replica keeps what the source truncates. An omitted option must not delete the only copy."""
        record = self.replica.record
        return self.keep_head or (record is not None and record.keep_head)

    def find(self, described: StreamDescription) -> None:
        """As `read`, for the replica of a source that was looked at.

        Args:
            described: the source.
        """
        self.id, self._described = self.id_of(described), described
        self.read()

    def id_of(self, described: StreamDescription) -> str:
        """Return `Record.work` of the replica of a source."""
        return replica_id(self.source, described, self.options)

    def check_free(self) -> str | None:
        """Check that the target is free or this replica; return `unfinished_import`.

        Raises:
            TargetTaken: it is neither.
        """
        replica, source, options = self.replica, self.source, self.options
        begun = unfinished_import(replica.stream)
        if begun is None:
            return None
        described = replica.stream.describe()
        if begun == self.id:
            if not is_own(described.configuration):
                raise replica.promoting_error()
            return begun
        where = replica.uri
        record = replica.read()
        is_replica = begun.startswith(REPLICA) and record is not None and record.work == begun
        if is_replica and record is not None and record.source == source.uri:
            if (record.offsets, record.numbers) != (options.offsets, options.numbers):
                what = f"the replica was started with --offsets {record.offsets} --numbers {record.numbers}"
                raise TargetTaken(what, where=where, todo="Give these options, or choose another name.")
            raise TargetTaken(
                "the source was deleted and created again, so it is not the stream that was replicated",
                where=source.uri,
                todo=f"Promote {where} as it is, or choose another name.",
            )
        if promoted := tag_of(described.configuration, REPLICA_OF):
            todo = "Choose another name. This stream may have events that no other one has."
            raise TargetTaken(f"the stream is a promoted replica of {promoted}", where=where, todo=todo)
        if not begun and self._is_origin():
            raise TargetTaken(
                f"the stream is the one that {source.uri} was a replica of",
                where=where,
                todo="Choose another name. It may have events that were never replicated.",
            )
        raise target_exists_error(replica.stream.store, described, begun=begun)

    def _is_origin(self) -> bool:
        """Whether the source is a promoted replica of the target: the old cluster is back."""
        if not isinstance(self.source, StreamSource):
            return False
        described = self.source.stream.find()
        return described is not None and tag_of(described.configuration, REPLICA_OF) == replica_tag(self.replica.uri)

    def read(self) -> None:
        """Check the target, and read the ledger. `Replica.record` is None if that is not about the target.

        Raises:
            TargetTaken: it is neither free nor this replica, its promotion has begun, or its ledger is missing.
        """
        replica = self.replica
        begun = self.check_free()
        record = replica.read()
        self.is_new, self.deleted = begun is None, None
        if begun is None:
            self.deleted, replica.record = record, None
            return
        if record is not None and record.is_promoting:
            raise replica.promoting_error()
        described = replica.stream.describe()
        if record is not None and not record.is_about(described):
            self.deleted, replica.record = record, None
        if is_own(described.configuration) and has_data(described) and self.lacks_record:
            raise self.no_ledger_error()

    @property
    def lacks_record(self) -> bool:
        """Whether a target that has data cannot be continued, because of what its ledger does not say."""
        return self.replica.record is None and self.options.offsets == "shift"

    def no_ledger_error(self) -> TargetTaken:
        """Build the error for an unfinished target whose offsets are counted from a place that is no longer known."""
        return TargetTaken(
            "the replica's ledger, which records the offset shifts, is missing",
            where=self.replica.uri,
            todo="Replicate into another stream. Delete this one only if the source still has all its events.",
        )

    def begins(self, described: StreamDescription) -> StreamDescription:
        """Return a source with the head at which this target begins if it has no record."""
        return described

    def check_same(self, look: SourceState) -> None:
        """Check that the source is still the stream that the target is made of.

        Its tail and its head only move on, its history grows, and what was recorded of it before it was read last is
        still there, unless it was truncated.

        Args:
            look: the source as it is now.

        Raises:
            Conflict: it was deleted and created again.
        """
        described, record = look.described, self.replica.record
        if self.id_of(described) != (self.id if record is None else record.work):
            raise self.recreated_error()
        if record is not None and not _goes_on(self.begins(described), record):
            raise self.recreated_error()
        if record is not None and record.reading is not None and record.reading.difference(look):
            raise self.recreated_error()

    def recreated_error(self) -> Conflict:
        """Build the error for a target whose source is another stream of its name now."""
        return Conflict(
            "the source was deleted and created again, so it is not the stream that was replicated",
            where=self.source.uri,
            todo=f"Promote {self.replica.uri} as it is, or replicate into another stream.",
        )

    def check_stays(self, unfinished: Unfinished | None) -> None:
        """Check that the target is the one that the ledger is about.

        Args:
            unfinished: the target; None if there is none.

        Raises:
            Conflict: it was deleted meanwhile, or is another one of its name.
        """
        record = self.replica.record
        if record is None or not record.target:
            return  # it is still to be created
        if unfinished is None and self.check_free() == self.id:  # it may have been promoted
            return  # of a copy, only the seal is missing
        if unfinished is None or not record.is_about(unfinished.described):
            raise self._gone()

    def take(self, run: ImportRun, described: StreamDescription, lease: Lease, reading: SourcePosition) -> Target:
        """Create or resume the target, and record what is read, before it gets data.

        Args:
            run: fills the target.
            described: the source; a new ledger says that the target began at its head.
            lease: the lease on the target.
            reading: see `Record.reading`.

        Raises:
            TargetTaken, TargetBusy, Conflict: as `ImportRun.take` and `begin`.
        """
        target, is_new = run.take(lease), self.replica.record is None
        if target.marked:  # else it gets no data
            self.begin(described, target.first_segment_id, reading)
            if is_new:
                # another run may have finished the target, and deleted its ledger, before this one began a ledger anew
                try:
                    target.check_unfinished()
                except (TargetTaken, NoSuchStream, NoSuchScope):
                    self.replica.retire()
                    raise
        return target

    def begin(self, described: StreamDescription, first: str, reading: SourcePosition | None = None) -> None:
        """Record what is read; begin the ledger if there is none, after the target was created.

        So no ledger is left if the store refuses the target.

        Args:
            described: the source.
            first: see `Record.target`; empty if it is still to be created.
            reading: see `Record.reading`.

        Raises:
            TargetBusy: another process has begun it.
            Conflict: the replica that the ledger is about was deleted meanwhile.
        """
        replica = self.replica
        self.first = first
        record = replica.record
        if record is not None:
            if record.target != first and record.target:
                raise self._gone()
            replica.note(target=first, reading=reading)
            return
        if self.deleted is None and replica.read(create=True) is not None:
            raise TargetBusy("another process is updating the replica", where=replica.uri)
        replica.note(self._first_record(self.begins(described), reading))
        self.is_new, self.deleted = False, None

    def _first_record(self, described: StreamDescription, reading: SourcePosition | None) -> Record:
        former = self.deleted
        sealing = former is not None and former.work == self.id and former.sealing
        return Record(
            work=self.id,
            source=self.source.uri,
            stream=str(described.name),
            offsets=self.options.offsets,
            numbers=self.options.numbers,
            filler_limit=self.options.filler_limit,
            keep_head=self.keep_head,
            head=described.head.to_json(),
            configuration=configuration_document(described),
            sealed=former.sealed if former is not None and sealing else is_sealed_by_user(self.source, described),
            sealing=sealing,
            target=self.first,
            reading=reading,
        )

    def beginning(self, described: StreamDescription) -> StreamCut:
        """Return the cut of the source at which the target began, or begins.

        Args:
            described: the source.
        """
        record = self.replica.record
        return self.begins(described).head if record is None else StreamCut.from_json(record.head, self.source.name)

    def reached(self, described: StreamDescription, unfinished: Unfinished | None) -> StreamCut:
        """Return the cut of the source up to which the target has its bytes.

        Args:
            described: the source.
            unfinished: the target; None if there is none.
        """
        beginning = self.beginning(described)
        if unfinished is None:
            return beginning
        copied = unfinished.described
        reached = self.cut_of(copied, copied.tail, described)
        return beginning if reached is None else later_of(described, reached, beginning)

    def cut_of(self, copied: StreamDescription, cut: StreamCut, described: StreamDescription) -> StreamCut | None:
        """Return the source's cut that corresponds to one of the target's; None if a segment has no counterpart.

        Args:
            copied: the target.
            cut: a cut of it.
            described: the source.
        """
        segments = counterparts(described.epochs, copied.epochs)
        names = {} if segments is None else {new: old for old, new in segments.items()}
        if not names.keys() >= cut.offsets.keys():
            return None
        record, shifted = self.replica.record, self.options.offsets == "shift"
        bases = StreamCut.from_json(record.head, self.source.name).offsets if record is not None and shifted else {}
        reached = {names[s]: offset + bases.get(names[s], 0) for s, offset in cut.offsets.items()}
        return StreamCut(self.source.name, reached)

    def behind(self) -> int:
        """Return how many bytes the source has that the target does not have."""
        while True:
            unfinished = Unfinished.find(self.replica.stream)
            look = self.source.look()
            try:
                return bytes_after(look, self.reached(look.described, unfinished))
            except (SourceTruncated, Overtaken):
                continue

    def check_complete(self) -> None:
        """Check that the target ends where its source ends.

        Raises:
            Failed: it does not.
        """
        described = self.source.look().described
        copied = self.replica.stream.describe()
        if len(described.epochs) != len(copied.epochs) or self.cut_of(copied, copied.tail, described) != described.tail:
            raise Failed(
                "the replica does not end where its source ends",
                where=f"{self.replica.uri}: {json.dumps(copied.tail.to_json())}",
                todo="Run the same command again.",
            )

    def _gone(self) -> Conflict:
        return Conflict(
            "the replica was deleted while it was replicated",
            where=self.replica.uri,
            todo="Run the same command again to begin a new one.",
        )


def _goes_on(described: StreamDescription, record: Record) -> bool:
    """Whether a source can be the one of a record, later."""
    try:
        heads = ((before, described.head) for before in (record.head, record.source_head))
        for before, now in ((record.tail, described.tail), *heads):
            if before is not None and not is_before(described, StreamCut.from_json(before, described.name), now):
                return False
    except InvalidCut:  # it never had such segments
        return False
    return True


SHORT_BYTES = 64 * 1024 * 1024
"""A round of fewer bytes runs in threads of this process, without Spark."""

SHORT_THREADS = 4

REMEMBERED = 100
"""Maximum warnings in a report."""

COMPARED_IN_A_ROUND = 64 * 1024
"""How many of the last bytes of each open segment a round compares with the source before it appends to any."""

RECORD_SECONDS = 10.0
"""How often the ledger is told that a source has nothing new."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The source at one moment, and what its target is to hold.

    Attributes:
        look: the source.
        content: what the target gets of it.
        plan: the plan.
    """

    look: SourceState
    content: Content
    plan: RestorePlan


class Mirror:
    """A target that is brought up to its source: a replica in rounds, a copy in one.

    Args:
        target: the target, and the ledger that is about it.
        progress: receives the progress.
        tasks: opens the runner.

    Attributes:
        target: see above.
        source, replica: the target's.
        moved_bytes: bytes that were appended, without filler.
    """

    read_back = False
    """Whether everything is read back and compared at the end."""

    compared_bytes = COMPARED_BYTES
    """How many of the last bytes of each open segment are compared with the source before any is appended."""

    recognized_by: int | None = None
    """By how many segments' last bytes a source is recognized that is replaced meanwhile; None for all."""

    def __init__(self, target: ReplicaTarget, progress: Progress, tasks: Tasks) -> None:
        self.source = target.source
        self.replica = target.replica
        self.target = target
        self.moved_bytes = 0
        self._seen: SourcePosition | None = None  # of an earlier look than the one that is copied
        self._options = target.options
        self._progress = progress
        self._tasks = tasks

    def content(self, look: SourceState) -> Content:
        """Return what the target gets of the source."""
        begin = self.target.beginning(look.described)
        return mirrored_content(look, import_id=self.target.id, first_head=begin)

    def check_reach(self, look: SourceState, unfinished: Unfinished | None) -> bool:  # noqa: ARG002
        """Return whether the source has truncated what the target does not have, and needs to know."""
        return False

    def prepare(self, look: SourceState, unfinished: Unfinished | None) -> None:
        """Record what has to be known before a plan for this look is carried out."""

    def runner(self, look: SourceState, unfinished: Unfinished | None) -> Runner:  # noqa: ARG002
        """Return what runs the tasks that bring the target up to a look."""
        return self._tasks.runner

    def look_first(self) -> Planned:
        """Check the source, the target and what it still needs, and change nothing; return what it would get.

        Raises:
            TargetTaken: the target is neither free nor this source's, or something else has changed it.
            Conflict: as `bring_up`.
            NoSuchStream, NoSuchArchive: there is no such source.
            Usage: too much filler is needed.
            CannotReplay: the source's numbers cannot be kept.
        """
        changed = (SourceTruncated, SegmentTruncated, NoSuchSegment, NoSuchStream, Overtaken)
        return look_again(self._look_first, *changed)

    def _look_first(self) -> Planned:
        unfinished = Unfinished.find(self.replica.stream)
        look = self.source.look()
        self.target.find(look.described)
        try:
            self.target.check_same(look)
        except Conflict:  # a running replication may have recorded a later tail meanwhile
            look = self.source.look()
            self.target.check_same(look)
        planned = self.plan(look)
        self._identify(planned, None)
        check_filler(planned.plan, self._options.filler_limit, unfinished)
        if unfinished is not None and not self.target.is_new:
            self.check_reach(look, unfinished)
            with look.reading("replicated"):
                self.run(planned).check_unfinished(unfinished)
        return planned

    def _identify(self, planned: Planned, before: SourcePosition | None) -> SourcePosition:
        """Return what identifies the source that a plan is of, after comparing that with an earlier look.

        Raises:
            Conflict: it is another one than at the earlier look.
            SourceTruncated: it was truncated since the look of the plan.
        """
        tail, earlier = planned.content.tail, self._seen or before
        try:
            self._seen = SourcePosition.at(planned.look, tail, before, earlier=earlier, most=self.recognized_by)
        except AnotherSource:
            raise self.target.recreated_error() from None
        return self._seen

    def plan(self, look: SourceState) -> Planned:
        """Plan what the target gets of a source."""
        content = self.content(look)
        try:
            return Planned(look, content, plan_restore(content, self._options))
        except CannotReplay:
            # A transaction that was open before a scale may be committed at the last moment. The source is sealed for
            # this replica, so other numbers are better than no stream to write to.
            record = self.replica.record
            if record is None or not (record.sealing and look.described.sealed):
                raise
        mapped = self._options.model_copy(update={"numbers": "map"})
        return Planned(look, content, plan_restore(content, mapped))

    def run(self, planned: Planned) -> ImportRun:
        """Return what fills the target."""
        window = self._options.window
        return ImportRun(self.replica.stream, planned.plan, window=window, read_back=self.read_back, mirrors=True)

    def bring_up(self, look: SourceState, lease: Lease) -> tuple[Planned, ImportRun, Target]:
        """Bring the target up to a look at its source, or to a later one if what it needs is gone meanwhile.

        The target stays unfinished. What is returned has the look to which it was brought up.

        Args:
            look: the source.
            lease: the lease on the target, whose ledger was read since it was taken.

        Raises:
            TargetTaken: something else has changed the target.
            Conflict: the source is not the stream that the target is made of, or was replaced while it was read.
            Problem: it failed.
        """
        overtaken = 0
        while True:
            try:
                with look.reading("replicated"):
                    return self._bring_up(look, lease)
            except Overtaken:  # what was read was merged, or has expired
                overtaken += 1
                if overtaken == LOOKS:
                    raise
                look = self.source.look()
            except SourceTruncated:
                before, look = look, self.source.look()
                if before.described.head == look.described.head:
                    self.target.check_same(look)
                    raise

    def _bring_up(self, look: SourceState, lease: Lease) -> tuple[Planned, ImportRun, Target]:
        self.target.check_same(look)
        unfinished = Unfinished.find(self.replica.stream)
        self.target.check_stays(unfinished)
        self.prepare(look, unfinished)
        planned = self.plan(look)
        check_filler(planned.plan, self._options.filler_limit, unfinished)
        run, record = self.run(planned), self.replica.record
        # before the target is compared, so that both are the same stream
        before = None if record is None else record.reading
        reading = self._identify(planned, before)
        if unfinished is not None:
            run.check_unfinished(unfinished, self.compared_bytes)
        runner = self.runner(look, unfinished)
        try:
            with reporting_lost_lease(lease):
                target = self.target.take(run, look.described, lease, reading)
                run.fill(target, lease, runner, self._progress)
        finally:
            self.moved_bytes += run.moved_bytes
        try:
            self.target.check_same(self.source.look())
        except (NoSuchStream, NoSuchScope, NoSuchArchive):  # it may have been replaced before it was deleted
            if compare_witness(run.digest, reading.witness)[1]:
                raise self.target.recreated_error() from None
        return planned, run, target


class Replication(Mirror):
    """A replica that is brought up to its source, round by round.

    Args:
        source: the source.
        replica: the target; it need not exist.
        options: how the source becomes a new stream.
        keep_head: keep what the source truncates. Once given, it holds for the replica.
        progress: receives the progress.
        tasks: opens the runner of long rounds.

    Attributes:
        cutover_seconds: from sealing the source until the replica could be written to.
        rounds: rounds that found something new.
        lag: from taking the tail to having it, in the newest round that found something new (seconds).
        most_lag: the longest such time.
        segments: the source's segment → the replica's.
        claim: names this run in `Record.claim`.
        groups: the reader groups to record with each round; None for none.
        warnings: the newest ones.
    """

    compared_bytes = COMPARED_IN_A_ROUND
    recognized_by = COMPARED_SEGMENTS

    def __init__(
        self,
        source: Source,
        replica: Replica,
        options: TargetOptions,
        *,
        keep_head: bool = False,
        progress: Progress,
        tasks: Tasks,
    ) -> None:
        super().__init__(ReplicaTarget(source, replica, options, keep_head=keep_head), progress, tasks)
        self._lease: Lease | None = None
        self.claim = uuid.uuid4().hex
        self._claimed_before = ""  # `Record.claim` when the lease was taken
        self._noted = -math.inf
        self.cutover_seconds = 0.0
        self.rounds = 0
        self._look: SourceState | None = None  # of the newest round
        self.warnings: deque[str] = deque(maxlen=REMEMBERED)
        self.lag = self.most_lag = 0.0
        self.segments: Mapping[SegmentId, SegmentId] = {}
        self.groups: CarryingGroups | None = None

    def _look_first(self) -> Planned:
        self.replica.check_promoting()
        return super()._look_first()

    @property
    def is_claimed(self) -> bool:
        """Whether a cut-over was begun since this process took the lease; its records show that."""
        record = self.replica.record
        return record is not None and record.claim not in ("", self.claim, self._claimed_before)

    def release(self, *, remove: bool = False) -> None:
        """Release the lease. If finishing was begun, it remains for the next run, unless ``remove`` says it is done."""
        lease, self._lease = self._lease, None  # it is not released again if that fails
        if lease is not None:
            lease.release(remove=remove or not lease.is_finishing)

    def round(self) -> Round:
        """Bring the replica up to the source's tail of now.

        Raises:
            Problem: it failed.
        """
        lease = self.hold()
        look = self._look_now()
        record = self.replica.record
        if self._look is not None and look.described == self._look.described:
            self._note_idle(look)
            return Round(changed=False, sealed=look.described.sealed)
        moved = -self.moved_bytes
        planned, _, target = self.bring_up(look, lease)
        look, self.segments = planned.look, target.segments
        if not self.target.keeps_head or self.replica.newest.tail is None:
            with reporting_lost_lease(lease):
                target.move_head()
        moved += self.moved_bytes
        self._look = look
        after = self.replica.note(
            tail=look.described.tail.to_json(),
            ends={str(target.segments[segment]): end for segment, end in planned.plan.tail.items()},
            taken=look.taken.isoformat(),
            target=self.target.first,
            source_head=look.described.head.to_json(),
            of_sealed=look.described.sealed,
            configuration=configuration_document(look.described),
            sealed=is_sealed_by_user(self.source, look.described),
            filler_limit=self._options.filler_limit,
            skipping=False,
            reading=None,
            **self._positions(look),
        )
        self._noted = time.monotonic()
        new = record is None or _unchanging(record) != _unchanging(after)
        if not new and not moved:
            return Round(changed=False, sealed=look.described.sealed)
        self.rounds += 1
        self.lag = max(0.0, (now_utc() - look.taken).total_seconds())
        self.most_lag = max(self.most_lag, self.lag)
        return Round(changed=True, sealed=look.described.sealed)

    def prepare(self, look: SourceState, unfinished: Unfinished | None) -> None:
        """See the base class."""
        if self.target.deleted is not None:
            # replaces the record of a deleted replica, before another one has data
            self.target.begin(look.described, "")
        record = self.replica.record
        if record is not None and self.target.keep_head and not record.keep_head:
            self.replica.note(keep_head=True)
        if self.check_reach(look, unfinished):
            if not self.replica.newest.skipping:
                self.replica.note(skipping=True)
            warning = "the source was truncated beyond what the replica had; the replica continues at the source's head"
            self.warnings.append(warning)
            self._progress.warn(warning)

    def runner(self, look: SourceState, unfinished: Unfinished | None) -> Runner:
        """See the base class."""
        left = bytes_after(look, self.target.reached(look.described, unfinished))
        return InlineRunner(SHORT_THREADS) if left < SHORT_BYTES else self._tasks.runner

    def check_reach(self, look: SourceState, unfinished: Unfinished | None) -> bool:
        """See the base class.

        Raises:
            Conflict: it has, and what it truncates is to be kept, so the replica would have a hole.
        """
        described = look.described
        if is_before(described, described.head, self.target.reached(described, unfinished)):
            return False
        if self.target.keeps_head:
            raise Conflict(
                "the source was truncated beyond what the replica has, so the replica would miss events",
                where=f"{self.source.uri}, head {json.dumps(described.head.to_json())}",
                todo=f"Promote {self.replica.uri} as it is, and replicate into another stream.",
            )
        return True

    def hold(self, wait_seconds: float = 0.0) -> Lease:
        """Return the lease; take it, and wait for it, if this process does not have it, or has lost it in an outage.

        Raises:
            TargetBusy: another process is updating the replica.
            TargetTaken: the target is not this replica any more, or its promotion has begun.
        """
        if self._lease is not None:
            try:
                self._lease.check()
            except TargetBusy:
                self._lease.release(remove=False)
                self._lease = None
        if self._lease is None:
            replica = self.replica
            self._lease = take_lease(replica.stream, self.target.id, wait_seconds=wait_seconds)
            try:
                self.target.read()  # others may have created, promoted or deleted it before the lease was taken
            except BaseException:
                self.release()
                raise
            if self.replica.record is None:
                self._look = None  # what it was brought up to is gone
            self._claimed_before = "" if replica.record is None else replica.record.claim
        return self._lease

    def _note_idle(self, look: SourceState) -> None:
        """Let the ledger know from time to time that the replica still has everything."""
        if time.monotonic() - self._noted >= RECORD_SECONDS:
            self.replica.note(taken=look.taken.isoformat(), **self._positions(look))
            self._noted = time.monotonic()

    def _look_now(self) -> SourceState:
        """Look at the source; before its tail, at its reader groups, so that the replica gets what they have read."""
        if self.groups is not None:
            self.groups.refresh(RECORD_SECONDS)
        return self.source.look()

    def _positions(self, look: SourceState) -> dict[str, Any]:
        """Return what a record says of the reader groups."""
        if self.groups is None:
            return {}
        return {"reader_groups": [one.to_json() for one in self.groups.noted(look.described)]}


def _unchanging(record: Record) -> Record:
    """Return what of a record says that a round has found something new."""
    return replace(record, taken="", ends={}, reader_groups=None, reading=None)
