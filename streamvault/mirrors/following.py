"""Rounds of a replication that goes on and on, beside cut-overs that must not wait for it."""

from __future__ import annotations

import time
from contextlib import suppress

from streamvault.common.progress import Progress
from streamvault.common.rounds import Round
from streamvault.importer.target import TargetTaken
from streamvault.mirrors.replica import replica_tag
from streamvault.mirrors.replication import Replication
from streamvault.mirrors.source import StreamSource
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream
from streamvault.streamstore.own import REPLICA_OF, OwnStream, tag_of

LONG_REST_SECONDS = 10.0
"""Between rounds that are so far apart the lease is released, so that a cut-over does not wait for the next one.

The ledger, which shows that a cut-over wants the lease, is written to as often as this even if nothing is new.
"""

GIVE_WAY_SECONDS = 5.0
"""How long a replication leaves the lease to a cut-over before it wants it back."""

WAIT_SECONDS = 60.0
"""How long it then waits for the cut-over to end, before it retries as if a server did not answer."""


def following(replication: Replication, *, every: float, progress: Progress) -> Round:
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
            progress.note("a promotion or a move of the replica has begun; this replication gives way to it")
            time.sleep(GIVE_WAY_SECONDS)
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
