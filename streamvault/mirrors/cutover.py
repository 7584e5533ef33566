"""The cut-over: seal a replica's source, bring the replica up to its end, and finish it.

Writers have no stream from the seal to the end, and a sealed stream cannot be opened again. So all that takes long or
may fail comes before the seal: the replica is taken over from a running replication, has caught up, and the store has
accepted the policies and tags that it will get.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from streamvault.common.errors import Conflict
from streamvault.importer.options import KeptRetention
from streamvault.importer.ownership import TargetBusy, first_segment_id
from streamvault.importer.plan import scaling_warnings
from streamvault.joining.room import give_back
from streamvault.mirrors.record import Record
from streamvault.mirrors.replica import Replica, promoted_configuration
from streamvault.mirrors.replication import Replication
from streamvault.mirrors.sealing import is_sealed_by_user, seal_source
from streamvault.reading.stream_source import StreamSource
from streamvault.streamstore.errors import AccessDenied, NoSuchScope, NoSuchStream, StreamChanged, StreamExists
from streamvault.streamstore.model import RetentionKind, Scaling, StreamConfiguration
from streamvault.streamstore.own import MOST_TAGS, OWN, TARGET_PROBE, is_own, stream_beside, users_tags
from streamvault.streamstore.services.lease import Lease

WAIT_SECONDS = 120.0
"""How long to wait for a running replication to give way."""

SHORT_SECONDS = 1.0
"""A round this short is followed by the cut-over."""

SHRINKING = 0.9
"""If a round takes more than this share of the one before, further rounds would not become shorter."""


@contextmanager
def taking_over(replication: Replication) -> Iterator[None]:
    """As `Replication.begin`; a running replication gives way once its round has ended.

    The lease is deleted in the end.

    Raises:
        Problem: as `Replication.begin`.
    """
    replication.look_first()
    try:
        _take_over(replication)
        yield
    except BaseException:
        replication.release()
        raise
    replication.release(remove=True)


def _take_over(replication: Replication) -> None:
    try:
        replication.hold()
    except TargetBusy:
        if replication.replica.record is None:  # the first round has not begun
            raise
        replication.replica.note(claim=replication.claim)
        replication.hold(WAIT_SECONDS)


def cut_over(replication: Replication, source: StreamSource, *, retention: KeptRetention = "keep") -> Lease:
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
    described = replication.look_first()
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
    replication.reach.check_complete()
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
        "the stream has kept what its source truncated (--keep-head), and gets the source's retention policy, by which "
        "the store will truncate it; --retention off promotes it without that policy"
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
            f"the stream has {tags} tags and gets one more, but no more than {MOST_TAGS} are possible",
            where=record.source,
            todo="Remove a tag. The stream was not sealed.",
        )
    promoted = promoted_configuration(record, len(replica.stream.describe().tail.offsets))
    with suppress(StreamExists):  # of a run that was killed
        store.create_stream(probe, StreamConfiguration(Scaling(min_segments=1), tags=(OWN,)))
    described = store.describe(probe)
    if not is_own(described.configuration):
        raise Conflict(
            "the name of a stream on which policies are tried is taken by another stream",
            where=f"{store.uri}/{probe}",
            todo="Move it to another name.",
        )
    try:
        own = replace(promoted, tags=(OWN, *promoted.tags)[:MOST_TAGS])
        store.update_stream(probe, own, was=described.configuration)
    finally:
        with suppress(NoSuchStream, NoSuchScope, StreamChanged):
            store.delete(probe, first=described.epochs[0])
