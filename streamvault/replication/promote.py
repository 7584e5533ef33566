"""The *promote* command: makes a replica a stream like any other, after its source is lost or by a cut-over.

A cut-over seals the source, brings the replica up to its end, and finishes it. Writers have no stream from the seal to
the end, and a sealed stream cannot be opened again. So all that takes long or may fail comes before the seal: the
replica is taken over from a running replication, has caught up, and the store has accepted the policies and tags that
it will get. The last steps, the fence and the policies, are those of `replication.replica.Replica.finish`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from streamvault.common.errors import Conflict, Usage
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.report import CarriedGroup
from streamvault.concat.room import give_back
from streamvault.importer.plan import scaling_warnings
from streamvault.importer.reader_groups import NotedGroup, create_groups, group_warnings, recorded_groups
from streamvault.importer.reports import KeptRetention, TargetOptions, renumbered
from streamvault.importer.run import RESTORE_TASKS
from streamvault.importer.target import (
    TargetBusy,
    finishing_under_lease,
    first_segment_id,
    remove_leftovers,
    take_lease,
    unfinished_import,
)
from streamvault.replication.content import CarryingGroups
from streamvault.replication.replica import (
    REPLICA,
    NotAReplica,
    Record,
    Replica,
    is_sealed_by_user,
    promoted_configuration,
    seal_source,
)
from streamvault.replication.replication import Replication
from streamvault.replication.reports import PromoteOptions, PromoteReport
from streamvault.runner.opening import Tasks
from streamvault.sources.sources import StreamSource, open_source
from streamvault.streamstore.errors import AccessDenied, NoSuchScope, NoSuchStream, StreamChanged, StreamExists
from streamvault.streamstore.lease import Lease
from streamvault.streamstore.model import RetentionKind, Scaling, StreamConfiguration
from streamvault.streamstore.own import (
    MOST_TAGS,
    OWN,
    REPLICA_OF,
    TARGET_PROBE,
    OwnStream,
    is_own,
    stream_beside,
    tag_of,
    users_tags,
)
from streamvault.streamstore.uri import is_stream, open_stream

WAIT_SECONDS = 120.0
"""How long to wait for a running replication to give way."""

SHORT_SECONDS = 1.0
"""A round this short is followed by the cut-over."""

SHRINKING = 0.9
"""If a round takes more than this share of the one before, further rounds would not become shorter."""


@contextmanager
def taking_over(replication: Replication) -> Iterator[None]:
    """Look at source and replica, and hold the lease; a running replication gives way once its round has ended.

    The lease is deleted in the end.

    Raises:
        Problem: as `Replication.look_first` and `Replication.hold`.
    """
    replication.look_first()
    try:
        try:
            replication.hold()
        except TargetBusy:
            if replication.replica.record is None:  # the first round has not begun
                raise
            replication.replica.note(claim=replication.claim)
            replication.hold(WAIT_SECONDS)
        yield
    except BaseException:
        replication.release()
        raise
    replication.release(remove=True)


def cut_over(replication: Replication, source: StreamSource, *, retention: KeptRetention) -> Lease:
    """Seal a replica's source, bring the replica up to its end, compare, and finish it.

    The replica's ledger stays, and the lease, which is returned; the caller deletes them.

    Args:
        replication: brings the replica up to date, and has the lease (`taking_over`).
        source: its source.
        retention: the promoted stream's retention policy: the source's, or none.

    Raises:
        Conflict: the source is not the stream that was replicated, or the replica cannot get its tags.
        LeaseHeld: the source is scaled for an append that goes on. It is open then.
        Failed: the replica differs from the source.
        StreamStoreError: the store refuses the source's policies or tags, or the seal. The source is open then.
    """
    catch_up(replication)
    give_back(source.stream)  # what it does not get back exactly is warned of by `promotion_warnings`
    described = replication.look_first().look.described
    check_exists(replication)
    replica = replication.replica
    record = replica.newest
    record = replace(record, retention="off" if retention == "off" else record.retention)
    if not described.sealed:
        _check_policies(replica, record)
    # Says what a run that goes on after this one was killed has to do; the source's own ledger says who sealed it.
    replica.note(
        of_sealed=described.sealed,
        sealing=True,
        sealed=is_sealed_by_user(source, described),
        retention=record.retention,
        claim=replication.claim,
        source_first=first_segment_id(described),
    )
    replication.hold().confirm()
    try:
        seal_source(source.stream, described)
    except AccessDenied:
        replica.note(sealing=False, claim=replication.claim)  # who seals it later is its user
        raise
    sealed = time.monotonic()
    lease = replication.hold(WAIT_SECONDS)  # it may have been lost in an outage
    check_exists(replication)
    replication.round()
    replication.target.check_complete()
    replica.finish(lease, complete=True)
    replication.cutover_seconds = time.monotonic() - sealed
    return lease


def catch_up(replication: Replication) -> None:
    """Replicate until a round is short, or rounds do not become shorter."""
    before = math.inf
    while True:
        began = time.monotonic()
        done = replication.round()
        took = time.monotonic() - began
        if done.sealed or took < SHORT_SECONDS or took > SHRINKING * before:
            return
        before = took


def check_exists(replication: Replication) -> None:
    """Check that there is a replica.

    Raises:
        Conflict: there is none.
    """
    if replication.target.is_new:
        raise Conflict("the replica was deleted meanwhile", where=replication.replica.uri)


def promotion_warnings(record: Record) -> tuple[str, ...]:
    """Return warnings if a promoted replica has other policies than its source, or ones by which it loses something.

    Those are a retention policy by which it will not keep what it has kept of what its source truncated, and a number
    of segments that is not the source's.
    """
    promoted = promoted_configuration(record, len(record.tail or ()))
    warnings = scaling_warnings(record.source_configuration, promoted) if record.tail else ()
    if not record.keep_head or promoted.retention.kind is RetentionKind.NONE:
        return warnings
    warning = (
        "the stream has kept what its source truncated (--keep-head), and gets the source's retention policy, under "
        "which the store will truncate it; --retention off promotes it without that policy"
    )
    return (*warnings, warning)


def _check_policies(replica: Replica, record: Record) -> None:
    """Check that the target's store accepts the policies and tags that the promoted stream will have.

    They are tried on an empty stream, which is deleted again: the replica would be scaled and truncated by them.

    Raises:
        Conflict: there are too many tags, or a user's stream has the name that is needed for this.
        StreamStoreError: the store refuses them.
    """
    store, probe = replica.stream.store, stream_beside(replica.stream.name, TARGET_PROBE)
    if (tags := len(users_tags(record.source_configuration))) >= MOST_TAGS:
        raise Conflict(
            f"the stream has {tags} tags and needs one more, but at most {MOST_TAGS} are possible",
            where=record.source,
            todo="Remove a tag. The stream was not sealed.",
        )
    promoted = promoted_configuration(record, len(replica.stream.describe().tail.offsets))
    with suppress(StreamExists):  # of a run that was killed
        store.create_stream(probe, StreamConfiguration(Scaling(min_segments=1), tags=(OWN,)))
    described = store.describe(probe)
    if not is_own(described.configuration):
        raise Conflict(
            "the name of the stream for trying out policies is taken by another stream",
            where=f"{store.uri}/{probe}",
            todo="Move it to another name.",
        )
    try:
        own = replace(promoted, tags=(OWN, *promoted.tags)[:MOST_TAGS])
        store.update_stream(probe, own, was=described.configuration)
    finally:
        with suppress(NoSuchStream, NoSuchScope, StreamChanged):
            store.delete(probe, first=described.epochs[0])


UNRECORDED = "no reader groups were created: none were recorded, as the replication ran without --reader-groups"


@verb(PromoteOptions)
def promote_replica(stream: str, options: PromoteOptions, progress: Progress) -> PromoteReport:
    """Turn a replica into an ordinary stream, with its source's policies and tags.

    Without `seal_source`, the replica is taken as it is and the source is not asked, so it may be gone. With it, the
    source is sealed first and the replica gets everything that was written to it: a migration.

    Args:
        stream: URI of the replica.
        seal_source: seal the source, replicate the rest, and compare. A running replication gives way.
        retention: ``"keep"`` sets the source's retention policy, by which the store may truncate what the replica has
            kept with ``keep_head``. ``"off"`` sets none, and also holds for a later call if this one is killed.
        reader_groups: also create the source's reader groups, as `copy_stream` does: with `seal_source` each where it
            is once the stream can be written to, without it where `replicate_stream` has recorded it.
        window: maximum data a task buffers in memory (bytes).
        master: as for `replicate_stream`.
        dry_run: only report what would be promoted.
        progress: receives the progress.

    Raises:
        Problem: it failed; the exception has the command's exit code.
        NotAReplica: the stream is not a replica (exit code 4).
        TargetBusy: the replica is being brought up to date, or did not give way (exit code 4).
        Usage: `seal_source` is given, and the source is an archive.
    """
    with ExitStack() as stack:
        replica = Replica(stack.enter_context(open_stream(stream, target=True)))
        record = _read(replica, dry_run=options.dry_run)
        if record is None:
            if not options.dry_run:
                remove_leftovers(replica.stream)
            described = replica.stream.describe()
            source = tag_of(described.configuration, REPLICA_OF)
            if options.seal_source:
                _check_is_stream(source)
                _check_sealed(source, stack)
            return PromoteReport(stream=stream, source=source, unchanged=True, sealed=described.sealed)
        report = PromoteReport(
            stream=stream,
            source=record.source,
            sealed=record.sealed,
            source_sealed=options.seal_source,
            tail=record.tail,
            tail_time=record.taken_text,
            dry_run=options.dry_run,
        )
        if options.seal_source:
            _check_can_seal(record, replica.uri)
        replication = None
        if options.seal_source and not record.promoted:
            origin = StreamSource(stack.enter_context(open_stream(record.source)))
            target_options = TargetOptions(**record.target_options, window=options.window)
            tasks = Tasks(options.master, stack, RESTORE_TASKS)
            replication = Replication(origin, replica, target_options, progress=progress, tasks=tasks)
            _look(replication)
        elif options.dry_run and not record.promoted:
            replica.check(record)
        if options.dry_run:
            noted = record.reader_groups if options.reader_groups else None
            return replace(report, reader_groups=recorded_groups(noted, replica.stream.name))
        if replication is not None:
            with taking_over(replication):
                check_exists(replication)
                carrying = _carrying(origin, replica, record) if options.reader_groups else None
                cut_over(replication, origin, retention=options.retention)
                if carrying is not None:
                    carrying.refresh()
                    report = replace(report, reader_groups=carrying.carry(origin.stream.describe()))
                replica.forget()
            report = replace(
                report,
                moved_bytes=replication.moved_bytes,
                cutover_seconds=round(replication.cutover_seconds, 3),
                renumbered=renumbered(replication.segments),
            )
        else:
            with finishing_under_lease(replica.stream, record.work) as lease:
                replica.choose_retention(options.retention)
                replica.finish(lease, complete=False)
                # before the ledger is deleted, so that it is repeated if this is killed
                report = replace(report, reader_groups=_late_groups(replica, options, stack))
                replica.forget()
        progress.end()
        record = replica.record or record
        unrecorded = options.reader_groups and replication is None and record.reader_groups is None
        warnings = (
            *promotion_warnings(record),
            *group_warnings(report.reader_groups),
            *((UNRECORDED,) if unrecorded and not report.reader_groups else ()),
        )
        progress.warn_all(warnings)
        return replace(
            report,
            sealed=record.sealed,
            tail=record.tail,
            tail_time=record.taken_text,
            warnings=warnings,
        )


def _check_can_seal(record: Record, where: str) -> None:
    """Check that the source can be sealed.

    Raises:
        Conflict: a promotion that leaves it open has not ended.
        Usage: it is an archive.
    """
    if record.is_promoting and not record.sealing:
        raise Conflict(
            "a promotion of the replica without sealing its source has not finished",
            where=where,
            todo="Promote without --seal-source.",
        )
    _check_is_stream(record.source)


def _look(replication: Replication) -> None:
    """Check source and replica, and change nothing."""
    try:
        replication.look_first()
    except (NoSuchStream, NoSuchScope) as error:
        todo = "Promote without --seal-source to take the replica as it is."
        raise type(error)(error.what, where=error.where, todo=todo) from None


def _check_is_stream(source: str) -> None:
    """Check that a replica's source can be sealed.

    Raises:
        Usage: it is an archive.
    """
    if not is_stream(source):
        raise Usage(
            "--seal-source requires a replica of a stream; this one is of an archive",
            where=source,
            todo="Promote without --seal-source.",
        )


def _carrying(origin: StreamSource, replica: Replica, record: Record) -> CarryingGroups:
    """Return the source's reader groups, before it is sealed."""
    return CarryingGroups(origin.stream, replica.stream, record.offsets, strict=True)


def _late_groups(replica: Replica, options: PromoteOptions, stack: ExitStack) -> tuple[CarriedGroup, ...]:
    """Create the reader groups of a replica that was finished without its source, or whose cut-over was killed.

    Those that are recorded and not asked for are reported, because the record goes.
    """
    record = replica.newest
    noted = [NotedGroup.from_json(one) for one in record.reader_groups or ()]
    if not options.reader_groups:
        why = "the replica was promoted without --reader-groups"
        return tuple(one.left_out(one.problem or why, replica.stream.name) for one in noted)
    if options.seal_source and is_stream(record.source):
        origin = StreamSource(stack.enter_context(open_stream(record.source)))
        described = origin.stream.find()
        if described is not None and first_segment_id(described) == record.source_first:
            return _carrying(origin, replica, record).carry(described)
    return create_groups(noted, replica.stream)


def _read(replica: Replica, *, dry_run: bool) -> Record | None:
    """Return a replica's record; None if it was promoted before.

    Raises:
        NotAReplica: it is none.
    """
    where = replica.uri
    begun = unfinished_import(replica.stream)
    described = replica.stream.describe()
    if begun and begun.startswith(REPLICA):
        record = replica.read()
        if record is not None and record.work == begun:
            return record
        if is_own(described.configuration):
            raise NotAReplica("the replica's ledger is gone", where=where, todo="Replicate once more, then promote.")
        if not dry_run:  # an earlier run ended right before this
            take_lease(replica.stream, begun).release(remove=True)
        begun = ""
    if begun or not tag_of(described.configuration, REPLICA_OF):
        raise NotAReplica("the stream is not a replica", where=where, todo="'streamvault replicate' makes one.")
    return None


def _check_sealed(source: str, stack: ExitStack) -> None:
    """Check that the source of a replica that was promoted before is not left unsealed.

    Raises:
        Conflict: it is.
    """
    origin = open_source(source, stack)
    with suppress(NoSuchStream, NoSuchScope, OwnStream):
        if isinstance(origin, StreamSource) and not origin.look().described.sealed:
            raise Conflict(
                "the replica was promoted before, without sealing its source",
                where=source,
                todo="Copy what was written to it since with 'streamvault copy --from', or seal it yourself.",
            )
