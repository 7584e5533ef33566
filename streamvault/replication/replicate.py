"""The *replicate* command: keep a stream up to date with another one, or with an archive."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from streamvault.common.errors import Problem, Usage
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.units import now_utc
from streamvault.common.waiting import Retrier, Round, pause, repeat_rounds
from streamvault.importer.plan import fitting_configuration, scaling_warnings
from streamvault.importer.reader_groups import recorded_groups
from streamvault.importer.reports import renumbered
from streamvault.importer.run import RESTORE_TASKS
from streamvault.importer.target import TargetTaken, check_other_stream
from streamvault.replication.content import CarryingGroups
from streamvault.replication.replica import Replica, ReplicaPromoted, replica_tag
from streamvault.replication.replication import Replication
from streamvault.replication.reports import REPLICATE_EVERY, ReplicateOptions, ReplicateReport
from streamvault.runner.opening import Tasks
from streamvault.sources.sources import ArchiveSource, StreamSource, open_source
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream
from streamvault.streamstore.own import REPLICA_OF, OwnStream, tag_of
from streamvault.streamstore.uri import open_stream

LONG_REST_SECONDS = 10.0
"""Between rounds that are so far apart the lease is released, so that a cut-over does not wait for the next one.

The ledger, which shows that a cut-over wants the lease, is written to as often as this even if nothing is new.
"""

GIVE_WAY_SECONDS = 5.0
"""How long a replication leaves the lease to a cut-over before it wants it back."""

WAIT_SECONDS = 60.0
"""How long it then waits for the cut-over to end, before it retries as if a server did not answer."""

RENUMBERED = "segments may get other numbers than the source's; 'streamvault translate' translates cuts and pointers"


@verb(ReplicateOptions)
def replicate_stream(source: str, stream: str, options: ReplicateOptions, progress: Progress) -> ReplicateReport:
    """Bring a replica of a stream or an archive up to date, once or again and again.

    Each round takes the source's tail, appends what the replica does not have yet, repeats the scales, and truncates
    the replica as the source was truncated. The replica can be read at any time, and nobody else may write to it until
    `promote_replica` makes it a stream like any other. The call can be interrupted or killed at any time and repeated.
    With `follow`, it gives way to `promote_replica` with `seal_source` and to `move_stream`.

    Args:
        source: URI of the stream or the archive.
        stream: URI of the replica; created if missing. The login of its cluster is as for `copy_stream`.
        follow: repeat until the stream is sealed, or `idle` or `lasting` is over.
        every: seconds from one round to the next; None for 1.
        idle: as for `follow_stream`.
        lasting: as for `follow_stream`.
        retry_for: as for `follow_stream`.
        keep_head: keep what is truncated at the source.
        offsets: as for `import_stream`.
        filler_limit: likewise (bytes).
        reader_groups: record with the rounds, every 10 seconds, where the reader groups of the source's scope that read
            the source are; `promote_replica` creates them. The source must be a stream.
        numbers: likewise; with ``"keep"`` replication fails at a scale whose numbers the store cannot repeat.
        window: maximum data a task buffers in memory (bytes).
        master: a Spark master, or ``"inline"`` for no Spark; rounds of less than 64 MiB do not use Spark.
        dry_run: only report how far the replica is behind.
        progress: receives the progress.

    Raises:
        Problem: it failed; the exception has the command's exit code.
        TargetTaken: the stream exists and is not this replica (exit code 4).
        TargetBusy: another process brings it up to date (exit code 4).
        ReplicaPromoted: it was promoted, or its promotion has begun (exit code 6).
    """
    began = time.monotonic()
    with ExitStack() as stack:
        origin = open_source(source, stack)
        replica = Replica(stack.enter_context(open_stream(stream, target=True)))
        if isinstance(origin, StreamSource):
            check_other_stream(origin.stream, replica.stream)
        tasks = Tasks(options.master, stack, RESTORE_TASKS)
        retrier = Retrier(options.retry_for, progress, until=began + (options.lasting or math.inf))
        replication = Replication(
            origin, replica, options, keep_head=options.keep_head, progress=retrier.watched, tasks=tasks
        )
        if options.reader_groups:
            replication.groups = _groups(origin, replica, options)
        if options.dry_run:
            with _reporting_promotion(replication):
                return _lag(replication, replica, source, stream)
        try:
            with _reporting_promotion(replication):
                described = replication.look_first().look.described
                replication.hold()
            given = described.configuration
            warnings = scaling_warnings(given, fitting_configuration(given, len(described.tail.offsets)))
            if replication.target.is_new and options.numbers == "map":
                warnings = (RENUMBERED, *warnings)
            progress.warn_all(warnings)
            ended = None
            with _reporting_promotion(replication):
                behind = replication.target.behind()
                if options.follow:
                    rest = options.every or REPLICATE_EVERY
                    ended = repeat_rounds(
                        lambda: retrier(lambda: _round(replication, every=rest, progress=progress)),
                        retrier,
                        every=rest,
                        idle=options.idle,
                        began=began,
                    )
                else:
                    retrier(replication.round)
        finally:
            replication.release()
        progress.end()
        record = replica.record
        noted = record.reader_groups if record and options.reader_groups else None
        return ReplicateReport(
            source=source,
            stream=stream,
            ended=ended or "caught up",
            rounds=replication.rounds,
            retries=retrier.retries,
            moved_bytes=replication.moved_bytes,
            behind_bytes=behind,
            lag_seconds=round(replication.lag, 3),
            most_lag_seconds=round(replication.most_lag, 3),
            tail=record.tail if record else None,
            tail_time=record.taken_text if record else "",
            offsets=options.offsets,
            numbers=options.numbers,
            renumbered=renumbered(replication.segments),
            reader_groups=recorded_groups(noted, replica.stream.name),
            warnings=(*warnings, *replication.warnings),
            seconds=tasks.seconds,
        )


def _groups(origin: StreamSource | ArchiveSource, replica: Replica, options: ReplicateOptions) -> CarryingGroups:
    if not isinstance(origin, StreamSource):
        raise Usage(
            "--reader-groups requires a stream as the source",
            where=origin.uri,
            todo="Omit it, or restore the archive with 'streamvault import --reader-groups'.",
        )
    return CarryingGroups(origin.stream, replica.stream, options.offsets)


@contextmanager
def _reporting_promotion(replication: Replication) -> Iterator[None]:
    """Report that the replica was promoted instead of a consequence: a service manager need not start this again.

    Raises:
        ReplicaPromoted: it was.
    """
    try:
        yield
    except Problem as error:  # such as that the source is lost, or was moved
        if not replication.replica.is_promoted(replication.source.uri):
            raise
        what, todo = "the replica was promoted, or its promotion has begun", "To replicate again, choose another name."
        if isinstance(error, TargetTaken):
            what, todo = error.what, error.todo
        raise ReplicaPromoted(what, where=replication.replica.uri, todo=todo) from None


def _lag(replication: Replication, replica: Replica, source: str, stream: str) -> ReplicateReport:
    """Return how far the replica is behind its source."""
    replication.look_first()
    record = None if replication.target.is_new else replica.read()
    behind = replication.target.behind()
    taken = None if record is None else record.taken_at
    age = None if taken is None else round(max(0.0, (now_utc() - taken).total_seconds()), 3)
    return ReplicateReport(
        source=source,
        stream=stream,
        behind_bytes=behind,
        behind_seconds=age if age is None or behind else 0.0,
        tail=record.tail if record else None,
        tail_time=record.taken_text if record else "",
        dry_run=True,
    )


def _round(replication: Replication, *, every: float, progress: Progress) -> Round:
    """Run one round of a replication that goes on, and give way to a cut-over.

    Args:
        replication: the replication.
        every: seconds from the beginning of a round to that of the next.
        progress: is told of a cut-over.

    Raises:
        Problem: as `Replication.round`.
    """
    try:
        done = replication.round()
        if replication.is_claimed and not done.sealed:
            replication.release(remove=True)
            progress.note("a promotion or a move of the replica has begun; this replication yields to it")
            pause(GIVE_WAY_SECONDS)
            replication.hold(WAIT_SECONDS)
    except TargetTaken:
        if _was_cut_over(replication):
            return Round(changed=False, sealed=True)
        raise
    if every >= LONG_REST_SECONDS:
        replication.release(remove=True)
    return done


def _was_cut_over(replication: Replication) -> bool:
    """Return whether the replica is a promoted one now, and its source is sealed."""
    replica, source = replication.replica, replication.source
    with suppress(NoSuchStream, NoSuchScope, OwnStream):
        promoted = tag_of(replica.stream.describe().configuration, REPLICA_OF)
        return (
            isinstance(source, StreamSource) and promoted == replica_tag(source.uri) and source.look().described.sealed
        )
    return False
