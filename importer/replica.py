"""A replica: a mirror of a stream or an archive that goes on in rounds until it is promoted.

The target is an unfinished one like that of a copy, so nobody else writes to it. A lease beside it lets one process
bring it up to date at a time, and a ledger says what it repeats and how far it has come, for a promotion after the
source is gone. The ledger's newest record is replaced only by who has read it, so nothing follows a promotion.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from common.errors import Conflict, Failed
from common.progress import Progress
from common.times import moment_text
from importer.lease import TargetBusy, incarnation, marked_work, take_lease, unfinished_work
from importer.options import MirrorOptions
from importer.plan import fitting_configuration, plan_restore
from importer.run import ImportRun
from importer.source import Look, Source, bytes_between
from importer.target import TargetTaken, taken_error
from manifests.model import Configuration, now_utc
from manifests.rounds import Round
from sparkrun.inline import InlineRunner
from sparkrun.opening import Tasks
from streamstore.byte_source import SourceTruncated
from streamstore.counterparts import counterparts
from streamstore.cuts import is_before, later_of
from streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream, ScaleRefused
from streamstore.framing import NotAnEvent
from streamstore.lease import Lease
from streamstore.ledger import Ledger, LedgerConflict
from streamstore.model import ANY_EVENT_BYTES, SegmentId, StreamConfiguration, StreamCut, StreamDescription, StreamName
from streamstore.own import REPLICA_OF, TARGET_LEDGER, is_own, stream_beside, tag_of, users_tags
from streamstore.splitting import EventSplitter
from streamstore.store import StreamStore
from streamstore.uri import StoreAddress

__all__ = ["REPLICA", "NotAReplica", "Record", "Replica", "Replication", "replica_tag", "replica_work"]

LONGEST_TAG = 256
"""Pravega accepts no longer tag (characters)."""

REPLICA = "replica."
"""Prefix of a replica's name (`importer.plan.RestorePlan.work`)."""

SHORT_BYTES = 64 * 1024 * 1024
"""A round of fewer bytes runs in threads of this process, without Spark."""

SHORT_THREADS = 4

REMEMBERED = 100
"""Maximum warnings in a report."""

ATTEMPTS = 10
"""How often a scale is tried if other scales are quicker."""

RECORD_SECONDS = 10.0
"""How often the ledger is told that a source has nothing new."""


class NotAReplica(Conflict):
    """The stream is not a replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The newest record of a replica's ledger.

    Attributes:
        work: see `importer.plan.RestorePlan`.
        source: URI of the source.
        stream: the source's scope and name.
        offsets: as for `replicate_stream`.
        numbers: likewise.
        filler_limit: likewise.
        keep_head: likewise.
        head: the cut at which the replica began; shifted offsets are relative to it.
        configuration: the source's configuration, see `manifests.model.Configuration`.
        sealed: whether the source was sealed by its user.
        tail: the source's tail that the replica has reached; None if it has reached none.
        ends: the replica's segment → its end (bytes) at that tail.
        taken: when that tail was taken, RFC 3339; empty if there is none.
        sealing: whether a promotion has begun to seal the source; if it is promoted, whether that was done.
        skipping: whether a round has begun to append filler in place of what the source has truncated.
        promoted: whether a promotion has begun to finish the replica.
        target: which stream was promoted (`importer.lease.incarnation`); empty if none was.
        closing: segments of the replica that a promotion replaces by new ones of the same key ranges.
    """

    work: str
    source: str
    stream: str
    offsets: str
    numbers: str
    filler_limit: int
    keep_head: bool
    head: Mapping[str, int]
    configuration: Mapping[str, Any]
    sealed: bool
    tail: Mapping[str, int] | None = None
    ends: Mapping[str, int] = field(default_factory=dict)
    taken: str = ""
    sealing: bool = False
    skipping: bool = False
    promoted: bool = False
    target: str = ""
    closing: Sequence[str] = ()

    @property
    def name(self) -> StreamName:
        """The source's name."""
        return StreamName.parse(self.stream)

    @property
    def taken_at(self) -> datetime | None:
        """When the tail was taken."""
        return datetime.fromisoformat(self.taken) if self.taken else None

    @property
    def taken_text(self) -> str:
        """The same for reports; empty if there is none."""
        return moment_text(self.taken_at) if self.taken_at else ""


class Replica:
    """An unfinished target with its ledger.

    Args:
        store: the target's store.
        address: the same store, for tasks.
        name: the target.

    Attributes:
        record: the newest record; None if it has none.
    """

    def __init__(self, store: StreamStore, address: StoreAddress, name: StreamName) -> None:
        self.store = store
        self.address = address
        self.name = name
        self.record: Record | None = None
        self._ledger = Ledger(store, stream_beside(name, TARGET_LEDGER), name)

    @property
    def newest(self) -> Record:
        """The newest record.

        Raises:
            NotAReplica: there is none.
        """
        if self.record is None:
            raise NotAReplica("the replica's ledger is gone", where=f"{self.store.uri}/{self.name}")
        return self.record

    def read(self, *, create: bool = False) -> Record | None:
        """Read the newest record; None if there is none.

        Args:
            create: create the ledger if it does not exist.
        """
        found = self._ledger.newest(create=create)
        self.record = Record(**found) if found is not None and "source" in found else None
        return self.record

    def note(self, begin: Record | None = None, **changes: Any) -> Record:
        """Append a record.

        Args:
            begin: the first record of a new replica; it must not have one.
            changes: what differs from the newest record.

        Raises:
            Conflict: the replica was promoted, or is another one now.
        """
        while True:
            base = begin or self.newest
            if base.sealing:
                changes.pop("sealed", None)  # it says what the source was before
            record = replace(base, **changes)
            try:
                self._ledger.record(asdict(record))
            except (LedgerConflict, NoSuchStream, NoSuchScope, NoSuchSegment):
                newest = self.read()
                if newest is None or newest.work != record.work or newest.promoted or begin is not None:
                    raise Conflict("the replica was promoted or replaced meanwhile", where=str(self.name)) from None
                if "taken" in changes and newest.taken != base.taken:  # of a round that is newer than this one
                    raise Conflict("another process brings the replica up to date", where=str(self.name)) from None
                continue
            self.record = record
            return record

    def forget(self) -> None:
        """Delete the ledger that was read."""
        self._ledger.delete()

    def finish(self, lease: Lease, *, complete: bool) -> None:
        """Give the replica the source's policies and tags, so that it is a stream like any other; seal it if need be.

        If the source may have more than the replica, a replication that was paused could still append that, or repeat a
        scale, after users have begun to read on. So every open segment is replaced by a new one: what comes late is
        refused. Each step is skipped if it was made before.

        Args:
            lease: the lease on it.
            complete: whether the source is sealed and the replica has all of it.

        Raises:
            Failed: the replica ends inside an event, or between what the source has truncated and what it still has.
            NotAReplica: its ledger is gone.
            StreamChanged: another process deleted or configured it.
            TargetTaken: another stream has its name.
        """
        work, described = self.newest.work, self.store.describe(self.name)
        self.read()  # others may have replicated, promoted or replaced it before the lease was taken
        record = self.newest
        if marked_work(described) == record.work == work:
            if not record.promoted:
                _check_whole(self.store, described, record)
                ends = {str(segment): end for segment, end in described.tail.offsets.items()}
                closing = [] if complete or (record.sealed and record.ends == ends) else list(ends)
                record = self.note(promoted=True, sealing=complete, target=incarnation(described), closing=closing)
            lease.finishing(incarnation(described))
            self._close_segments(record)
            wanted = _configuration(record, len(described.tail.offsets))
            self.store.update_stream(self.name, wanted, was=described.configuration)
        elif record.work != work or record.target != incarnation(described):
            raise TargetTaken("another stream has the replica's name now", where=f"{self.store.uri}/{self.name}")
        if record.sealed and not described.sealed:
            lease.confirm()
            self.store.seal(self.name, first=described.epochs[0])

    def _close_segments(self, record: Record) -> None:
        for _ in range(ATTEMPTS):
            current = self.store.describe(self.name).epochs[-1].segments
            left = [segment for segment in current if str(segment) in record.closing]
            if not left:
                return
            with suppress(ScaleRefused):  # a late scale was quicker
                self.store.scale(self.name, left, [current[segment] for segment in left])
        raise Failed("another process scales the replica", where=str(self.name), todo="Run the same command again.")


class Replication:
    """Brings a replica up to its source, round by round.

    Args:
        source: the source.
        replica: the target; it need not exist.
        options: how the source becomes a new stream.
        keep_head: keep what the source truncates.
        progress: receives the progress.
        tasks: opens the runner of long rounds.

    Attributes:
        source: the source.
        replica: the replica.
        work: see `Record.work`; known after `look_first`.
        is_new: whether there was no target then.
        cutover_seconds: from sealing the source until the replica could be written to.
        moved_bytes: bytes that were appended, without filler.
        rounds: rounds that found something new.
        lag: from taking the tail to having it, in the newest round that found something new (seconds).
        most_lag: the longest such time.
        segments: the source's segment → the replica's.
        warnings: the newest ones.
    """

    def __init__(
        self,
        source: Source,
        replica: Replica,
        options: MirrorOptions,
        *,
        keep_head: bool,
        progress: Progress,
        tasks: Tasks,
    ) -> None:
        self.source = source
        self.replica = replica
        self._options = options
        self._keep_head = keep_head
        self._progress = progress
        self._tasks = tasks
        self._lease: Lease | None = None
        self._noted = -math.inf
        self._deleted: Record | None = None
        self.is_new = False
        self.cutover_seconds = 0.0
        self.work = ""
        self.moved_bytes = self.rounds = 0
        self._look: Look | None = None  # of the newest round
        self.warnings: deque[str] = deque(maxlen=REMEMBERED)
        self.lag = self.most_lag = 0.0
        self.segments: Mapping[SegmentId, SegmentId] = {}

    def look_first(self) -> StreamDescription:
        """Look at the source and the target, and change nothing; return the source.

        Raises:
            TargetTaken: the target is neither free nor this replica.
            NoSuchStream, NoSuchArchive: there is no such source.
        """
        described = self.source.look().described
        self.work = replica_work(self.source, described, self._options)
        self.is_new = self._check_target() is None
        return described

    def begin(self, *, wait_seconds: float = 0.0) -> Lease:
        """As `look_first`; take the lease, and wait ``wait_seconds`` for it.

        Raises:
            TargetTaken, NoSuchStream, NoSuchArchive: as `look_first`.
            TargetBusy: another process brings the replica up to date.
        """
        self.look_first()
        return self._hold(wait_seconds)

    def release(self, *, remove: bool = False) -> None:
        """Release the lease. If finishing was begun, it remains for the next run, unless ``remove`` says it is done."""
        if self._lease is not None:
            self._lease.release(remove=remove or not self._lease.is_finishing)
            self._lease = None

    def check_complete(self) -> None:
        """Check that the replica ends where its source ends.

        Raises:
            Failed: it does not.
        """
        described = self.source.look().described
        copied = self.replica.store.describe(self.replica.name)
        if len(described.epochs) != len(copied.epochs) or self.cut_of(copied, copied.tail, described) != described.tail:
            raise Failed(
                "the replica does not end where its source ends",
                where=f"{self.replica.name}: {json.dumps(copied.tail.to_json())}",
                todo="Run the same command again.",
            )

    def behind(self) -> int:
        """Return how many bytes the source has that the replica does not have."""
        while True:
            look = self.source.look()
            try:
                return bytes_between(self.source, look.described, self._reached(look))
            except SourceTruncated:
                continue

    def round(self) -> Round:
        """Bring the replica up to the source's tail of now.

        Raises:
            Problem: it failed.
        """
        look = self.source.look()
        lease = self._hold()
        record = self.replica.record
        if self._look is not None and look.described == self._look.described:
            self._note_idle(look)
            return Round(changed=False, sealed=look.described.sealed)
        self._check_same(look, record)
        if record is None or self.is_new:
            record, self.is_new = self.replica.note(self._first_record(look)), False
        moved = -self.moved_bytes
        while True:
            try:
                ends = self._bring_up(look, record, lease)
                break
            except SourceTruncated:
                before, look = look, self.source.look()
                self._check_same(look, record)
                if before.described.head == look.described.head:
                    raise
        moved += self.moved_bytes
        self._look = look
        after = self.replica.note(
            tail=look.described.tail.to_json(),
            ends=ends,
            taken=look.taken.isoformat(),
            configuration=_document(look.described),
            sealed=look.described.sealed,
            skipping=False,
        )
        self._noted = time.monotonic()
        new = replace(record, taken="", ends={}) != replace(after, taken="", ends={})
        if not new and not moved:
            return Round(changed=False, sealed=look.described.sealed)
        self.rounds += 1
        self.lag = max(0.0, (now_utc() - look.taken).total_seconds())
        self.most_lag = max(self.most_lag, self.lag)
        return Round(changed=True, sealed=look.described.sealed)

    def _bring_up(self, look: Look, record: Record, lease: Lease) -> dict[str, int]:
        """Run one import up to a tail; return `Record.ends`."""
        described = look.described
        first_head = StreamCut.from_json(record.head, self.source.name)
        self._check_truncated(look, first_head)
        left = bytes_between(self.source, described, self._reached(look))
        content = self.source.content(look, self._options, work=record.work, first_head=first_head)
        plan = plan_restore(content, self._options)
        run = ImportRun(
            self.replica.store,
            self.replica.address,
            self.replica.name,
            plan=plan,
            window=self._options.window,
            read_back=False,
            trust_earlier=True,
            whole_events=True,
        )
        runner = InlineRunner(SHORT_THREADS) if left < SHORT_BYTES else self._tasks.runner
        try:
            move_head = not self._keep_head or record.tail is None
            self.segments = run.advance(lease, runner, self._progress, move_head=move_head)
        finally:
            self.moved_bytes += run.moved_bytes
        return {str(self.segments[segment]): end for segment, end in plan.tail.items()}

    def _check_truncated(self, look: Look, first_head: StreamCut) -> None:
        """Note what the source has truncated before it was replicated.

        Raises:
            Conflict: what the source truncates is to be kept, so the replica would have a hole.
        """
        described = look.described
        reached = self._reached(look)
        if is_before(described, described.head, later_of(described, reached, first_head)):
            return
        if self._keep_head:
            raise Conflict(
                "the source was truncated beyond what the replica has, so the replica would miss events",
                where=f"{self.source.uri}, head {json.dumps(described.head.to_json())}",
                todo="Promote the replica as it is, or delete it and replicate again.",
            )
        if not self.replica.newest.skipping:
            self.replica.note(skipping=True)
        warning = "the source was truncated beyond what the replica had; the replica continues at the source's head"
        self.warnings.append(warning)
        self._progress.warn(warning)

    def _reached(self, look: Look) -> StreamCut:
        """Return the cut up to which the replica has the source's bytes."""
        record = self.replica.record
        first_head = look.described.head if record is None else StreamCut.from_json(record.head, self.source.name)
        if not self.replica.store.exists(self.replica.name):
            return first_head
        copied = self.replica.store.describe(self.replica.name)
        reached = self.cut_of(copied, copied.tail, look.described)
        return first_head if reached is None else later_of(look.described, reached, first_head)

    def cut_of(self, copied: StreamDescription, cut: StreamCut, described: StreamDescription) -> StreamCut | None:
        """Return the source's cut that corresponds to a replica's; None if a segment has no counterpart.

        Args:
            copied: the replica.
            cut: a cut of it.
            described: the source.
        """
        segments = counterparts(described.epochs, copied.epochs)
        names = {} if segments is None else {new: old for old, new in segments.items()}
        if not names.keys() >= cut.offsets.keys():
            return None
        record = self.replica.record
        bases = StreamCut.from_json(record.head, self.source.name).offsets if record is not None else {}
        shifted = bases if self._options.offsets == "shift" else {}
        reached = {names[s]: offset + shifted.get(names[s], 0) for s, offset in cut.offsets.items()}
        return StreamCut(self.source.name, reached)

    def _hold(self, wait_seconds: float = 0.0) -> Lease:
        """Return the lease; take it again if it was lost in an outage."""
        if self._lease is not None:
            try:
                self._lease.check()
            except TargetBusy:
                self._lease.release(remove=False)
                self._lease = None
        if self._lease is None:
            replica = self.replica
            self._lease = take_lease(replica.store, replica.name, self.work, wait_seconds=wait_seconds)
            try:
                self._read()
            except BaseException:
                self.release()
                raise
        return self._lease

    def _read(self) -> None:
        """Read the ledger; others may have created, promoted or deleted the replica before the lease was taken.

        Raises:
            TargetTaken: it is not this replica any more, or its promotion has begun.
        """
        self.is_new = self._check_target() is None
        record = self.replica.read(create=True)
        if self.is_new:
            self._deleted, self.replica.record = record, None  # of a replica that was deleted
        elif record is not None and record.promoted:
            raise self._promoting()

    def _check_target(self) -> str | None:
        """Check that the target is free, or this replica; return `unfinished_work`.

        Raises:
            TargetTaken: it is neither.
        """
        replica = self.replica
        begun = unfinished_work(replica.store, replica.name)
        if begun is None:
            return None
        described = replica.store.describe(replica.name)
        if begun == self.work:
            if not is_own(described.configuration):
                raise self._promoting()
            return begun
        where = str(replica.name)
        record = replica.read()
        if begun and record is not None and record.work == begun and record.source == self.source.uri:
            if (record.offsets, record.numbers) != (self._options.offsets, self._options.numbers):
                what = f"the replica was begun with --offsets {record.offsets} --numbers {record.numbers}"
                raise TargetTaken(what, where=where, todo="Give these options, or choose another name.")
            raise TargetTaken(
                "the source was deleted and created again, so it is not the stream that was replicated",
                where=self.source.uri,
                todo=f"Promote {where} as it is, or choose another name.",
            )
        if promoted := tag_of(described.configuration, REPLICA_OF):
            todo = "Choose another name, or delete it first."
            raise TargetTaken(f"the stream is a promoted replica of {promoted}", where=where, todo=todo)
        raise taken_error(replica.store, described, begun=begun)

    def _promoting(self) -> Conflict:
        where = f"{self.replica.store.uri}/{self.replica.name}"
        return TargetTaken("a promotion of the replica has not ended", where=where, todo="Run it again.")

    def _check_same(self, look: Look, record: Record | None) -> None:
        """Check that the source is still the stream that is replicated.

        Raises:
            Conflict: it was deleted and created again.
        """
        if record is not None and replica_work(self.source, look.described, self._options) != record.work:
            raise Conflict(
                "the source was deleted and created again, so it is not the stream that was replicated",
                where=self.source.uri,
                todo=f"Promote {self.replica.name} as it is, or replicate into another stream.",
            )

    def _first_record(self, look: Look) -> Record:
        described, former = look.described, self._deleted
        sealing = former is not None and former.work == self.work and former.sealing
        return Record(
            work=self.work,
            source=self.source.uri,
            stream=str(described.name),
            offsets=self._options.offsets,
            numbers=self._options.numbers,
            filler_limit=self._options.filler_limit,
            keep_head=self._keep_head,
            head=described.head.to_json(),
            configuration=_document(described),
            sealed=former.sealed if former is not None and sealing else described.sealed,
            sealing=sealing,
        )

    def _note_idle(self, look: Look) -> None:
        """Let the ledger know from time to time that the replica still has everything."""
        if time.monotonic() - self._noted >= RECORD_SECONDS:
            self.replica.note(taken=look.taken.isoformat())
            self._noted = time.monotonic()


def replica_tag(source: str) -> str:
    """Return what follows `REPLICA_OF` in a promoted replica's tag, given the source's URI; tags are limited."""
    return source[: LONGEST_TAG - len(REPLICA_OF)]


def replica_work(source: Source, described: StreamDescription, options: MirrorOptions) -> str:
    """Return a replica's name (`RestorePlan.work`): the same for the same source and options.

    A source that was deleted and created again is another one.
    """
    first = [segment.value for segment in described.epochs[0].segments]
    content = [source.uri, str(described.name), first, options.offsets, options.numbers]
    return REPLICA + hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _document(described: StreamDescription) -> Mapping[str, Any]:
    return Configuration.of(described.configuration).document()


def _configuration(record: Record, open_segments: int) -> StreamConfiguration:
    """Return the configuration of the promoted replica."""
    configuration = Configuration.model_validate_json(json.dumps(record.configuration)).value()
    tags = (*users_tags(configuration), REPLICA_OF + replica_tag(record.source))
    return fitting_configuration(replace(configuration, tags=tags), open_segments)


def _check_whole(store: StreamStore, described: StreamDescription, record: Record) -> None:
    """Check that the replica holds nothing but whole events.

    Every tail of the source is an event boundary, so only what was appended after the recorded one is read.

    Raises:
        Failed: a segment ends inside an event, as a round that was appending a large one was killed; or it may have
            filler that is still to be truncated.
    """
    if record.tail is None or record.skipping:
        raise Failed(
            "the replica begins with filler, as no round has ended since it began, or since its source was truncated",
            where=str(described.name),
            todo="Replicate once more when the source can be reached.",
        )
    infos = store.segment_info(described.name, list(described.tail.offsets))
    for info in infos:
        start = max(info.start_offset, record.ends.get(str(info.segment), 0))
        splitter = EventSplitter(start, info.segment.in_stream(described.name), largest=ANY_EVENT_BYTES)
        try:
            for block in store.read(described.name, info.segment, start, info.write_offset):
                for _ in splitter.feed(block):
                    pass
        except NotAnEvent:
            continue  # a byte stream
        try:
            splitter.finish()
        except NotAnEvent as error:
            raise Failed(
                "the replica ends inside an event, of which the rest is at the source",
                where=f"{info.segment.in_stream(described.name)} offset {error.offset}",
                todo="Replicate once more when the source can be reached.",
            ) from None
