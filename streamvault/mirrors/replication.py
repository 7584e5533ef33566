"""Brings a replica up to its source, round by round."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamvault.common.errors import Conflict, Overtaken
from streamvault.common.progress import Progress
from streamvault.common.rounds import Round
from streamvault.common.times import now_utc
from streamvault.importer.options import TargetOptions
from streamvault.importer.ownership import TargetBusy, reporting_lost_lease, take_lease
from streamvault.importer.plan import RestorePlan, plan_restore
from streamvault.importer.replay import CannotReplay
from streamvault.importer.run import ImportRun
from streamvault.importer.unfinished import LOOKS, Unfinished, check_missing_filler, look_again
from streamvault.mirrors.carried_groups import CarryingGroups
from streamvault.mirrors.content import mirrored_content
from streamvault.mirrors.reach import Reach
from streamvault.mirrors.record import Record, configuration_document
from streamvault.mirrors.replica import Replica
from streamvault.mirrors.sealing import is_sealed_by_user
from streamvault.mirrors.target import ReplicaTarget
from streamvault.reading.source import Source, SourceState, bytes_after
from streamvault.sparkrun.inline import InlineRunner
from streamvault.sparkrun.opening import Tasks
from streamvault.streamstore.arithmetic.byte_source import SourceTruncated
from streamvault.streamstore.arithmetic.cuts import is_before
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import SegmentId, StreamDescription
from streamvault.streamstore.services.lease import Lease

SHORT_BYTES = 64 * 1024 * 1024
"""A round of fewer bytes runs in threads of this process, without Spark."""

SHORT_THREADS = 4

REMEMBERED = 100
"""Maximum warnings in a report."""

COMPARED_IN_A_ROUND = 64 * 1024
"""How many of the last bytes of each open segment a round compares with the source before it appends to any."""

RECORD_SECONDS = 10.0
"""How often the ledger is told that a source has nothing new."""


class Replication:
    """Brings a replica up to its source, round by round.

    Args:
        source: the source.
        replica: the target; it need not exist.
        options: how the source becomes a new stream.
        keep_head: keep what the source truncates. Once given, it holds for the replica.
        progress: receives the progress.
        tasks: opens the runner of long rounds.

    Attributes:
        source: the source.
        replica: the replica.
        target: whether the target is this replica.
        reach: how far the replica has come.
        cutover_seconds: from sealing the source until the replica could be written to.
        moved_bytes: bytes that were appended, without filler.
        rounds: rounds that found something new.
        lag: from taking the tail to having it, in the newest round that found something new (seconds).
        most_lag: the longest such time.
        segments: the source's segment → the replica's.
        claim: names this run in `Record.claim`.
        groups: the reader groups to record with each round; None for none.
        warnings: the newest ones.
    """

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
        self.source = source
        self.replica = replica
        self.target = ReplicaTarget(source, replica, options, keep_head=keep_head)
        self.reach = Reach(source, replica, options.offsets)
        self._options = options
        self._progress = progress
        self._tasks = tasks
        self._lease: Lease | None = None
        self.claim = uuid.uuid4().hex
        self._claimed_before = ""  # `Record.claim` when the lease was taken
        self._noted = -math.inf
        self.cutover_seconds = 0.0
        self.moved_bytes = self.rounds = 0
        self._look: SourceState | None = None  # of the newest round
        self.warnings: deque[str] = deque(maxlen=REMEMBERED)
        self.lag = self.most_lag = 0.0
        self.segments: Mapping[SegmentId, SegmentId] = {}
        self.groups: CarryingGroups | None = None

    def look_first(self) -> StreamDescription:
        """Check the source, the target and what a replica still needs, and change nothing; return the source.

        Raises:
            TargetTaken: the target is neither free nor this replica, or something else has changed it.
            Conflict: as `round`.
            NoSuchStream, NoSuchArchive: there is no such source.
            Usage: too much filler is needed.
            CannotReplay: the source's numbers cannot be kept.
        """
        return look_again(self._look_first, SourceTruncated, SegmentTruncated, NoSuchSegment, Overtaken)

    def _look_first(self) -> StreamDescription:
        self.replica.check_promoting()
        unfinished = Unfinished.find(self.replica.stream)
        look = self.source.look()
        self.target.find(look.described)
        try:
            self.target.check_same(look.described)
        except Conflict:  # a running replication may have recorded a later tail meanwhile
            look = self.source.look()
            self.target.check_same(look.described)
        plan = self._plan(look)
        check_missing_filler(plan, self._options.filler_limit, unfinished)
        if unfinished is not None and not self.target.is_new:
            self._is_truncated(look, unfinished)
            with look.reading("replicated"):
                self._run(plan).check_unfinished(unfinished)
        return look.described

    def begin(self) -> StreamDescription:
        """As `look_first`, and take the lease; return the source.

        Raises:
            Problem: as `look_first`.
            TargetBusy: another process brings the replica up to date.
        """
        described = self.look_first()
        self.hold()
        return described

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
        self.target.check_same(look.described)
        if self.target.was_deleted:
            # replaces the record of a deleted replica, before another one has data
            self.target.begin(look.described, "")
        if record is not None and self.target.keep_head and not record.keep_head:
            self.replica.note(keep_head=True)
        moved, overtaken = -self.moved_bytes, 0
        while True:
            try:
                with look.reading("replicated"):
                    ends = self._bring_up(look, lease)
                break
            except Overtaken:  # what was read was merged, or has expired
                look, overtaken = self.source.look(), overtaken + 1
                self.target.check_same(look.described)
                if overtaken == LOOKS:
                    raise
            except SourceTruncated:
                before, look = look, self.source.look()
                self.target.check_same(look.described)
                if before.described.head == look.described.head:
                    raise
        moved += self.moved_bytes
        self._look = look
        after = self.replica.note(
            tail=look.described.tail.to_json(),
            ends=ends,
            taken=look.taken.isoformat(),
            target=self.target.first,
            source_head=look.described.head.to_json(),
            of_sealed=look.described.sealed,
            configuration=configuration_document(look.described),
            sealed=is_sealed_by_user(self.source, look.described),
            filler_limit=self._options.filler_limit,
            skipping=False,
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

    def _bring_up(self, look: SourceState, lease: Lease) -> dict[str, int]:
        """Run one import up to a tail; return `Record.ends`."""
        unfinished = Unfinished.find(self.replica.stream)
        self.target.check_stays(unfinished)
        is_first = self.replica.record is None or self.replica.record.tail is None
        if self._is_truncated(look, unfinished):
            if not self.replica.newest.skipping:
                self.replica.note(skipping=True)
            warning = "the source was truncated beyond what the replica had; the replica continues at the source's head"
            self.warnings.append(warning)
            self._progress.warn(warning)
        left = bytes_after(look, self.reach.cut(look.described, unfinished))
        plan = self._plan(look)
        check_missing_filler(plan, self._options.filler_limit, unfinished)
        run = self._run(plan)
        if unfinished is not None:
            run.check_unfinished(unfinished, COMPARED_IN_A_ROUND)
        runner = InlineRunner(SHORT_THREADS) if left < SHORT_BYTES else self._tasks.runner
        try:
            with reporting_lost_lease(lease):
                target = self.target.take(run, look.described, lease)
                run.fill(target, lease, runner, self._progress)
                if not self.target.keeps_head or is_first:
                    target.move_head()
        finally:
            self.moved_bytes += run.moved_bytes
        self.segments = target.segments
        return {str(self.segments[segment]): end for segment, end in plan.tail.items()}

    def _plan(self, look: SourceState) -> RestorePlan:
        content = mirrored_content(look, import_id=self.target.id, first_head=self.reach.beginning(look.described))
        try:
            return plan_restore(content, self._options)
        except CannotReplay:
            # A transaction that was open before a scale may be committed at the last moment. The source is sealed for
            # this replica, so other numbers are better than no stream to write to.
            record = self.replica.record
            if record is None or not (record.sealing and look.described.sealed):
                raise
        mapped = self._options.model_copy(update={"numbers": "map"})
        return plan_restore(content, mapped)

    def _run(self, plan: RestorePlan) -> ImportRun:
        return ImportRun(self.replica.stream, plan, window=self._options.window, mirrors=True)

    def _is_truncated(self, look: SourceState, unfinished: Unfinished | None) -> bool:
        """Return whether the source has truncated what the replica does not have.

        Raises:
            Conflict: it has, and what it truncates is to be kept, so the replica would have a hole.
        """
        described = look.described
        if is_before(described, described.head, self.reach.cut(described, unfinished)):
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
            TargetBusy: another process brings the replica up to date.
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
    return replace(record, taken="", ends={}, reader_groups=None)
