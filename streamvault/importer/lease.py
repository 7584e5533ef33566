"""Ownership of a target: a stream tag names the unfinished import, a lease beside it shows whether it still runs."""

from __future__ import annotations

from contextlib import suppress

from streamvault.streamstore.errors import NoSuchScope, NoSuchStream
from streamvault.streamstore.model import StreamDescription, StreamName
from streamvault.streamstore.own import TARGET_LEASE, TARGET_LEDGER, UNFINISHED, stream_beside, tag_of
from streamvault.streamstore.services.lease import Lease, LeaseHeld, Record, last_record
from streamvault.streamstore.services.ledger import Ledger
from streamvault.streamstore.store import StreamStore


class TargetBusy(LeaseHeld):
    """Another import is restoring into this target."""


def lease_stream(target: StreamName) -> StreamName:
    """Return the name of the stream that holds the target's lease, in the same scope."""
    return stream_beside(target, TARGET_LEASE)


def take_lease(store: StreamStore, target: StreamName, work: str, *, wait_seconds: float = 0.0) -> Lease:
    """Acquire the lease on a target; wait up to ``wait_seconds`` for a live import to end.

    Raises:
        TargetBusy: a live import holds it.
    """
    held = TargetBusy(
        "another import, copy or replication is writing to this stream",
        where=f"{store.uri}/{target}",
        todo="Wait for it, or choose another name.",
    )
    return Lease.take(store, lease_stream(target), work, held=held, wait_seconds=wait_seconds)


def remove_leftovers(store: StreamStore, target: StreamName) -> None:
    """Delete the lease and the ledger that late or killed runs have left beside a finished target.

    Nothing is deleted while another process holds the lease.
    """
    ledger = Ledger(store, stream_beside(target, TARGET_LEDGER), target)
    if not store.exists(lease_stream(target)) and not store.exists(ledger.name):
        return
    with suppress(TargetBusy):
        lease = take_lease(store, target, "")
        try:
            if unfinished_work(store, target) == "":
                ledger.newest(create=False)
                ledger.delete()
        finally:
            lease.release(remove=True)


def marked_work(described: StreamDescription) -> str:
    """Return the name of the import in a stream's mark; empty if the stream has no mark."""
    return tag_of(described.configuration, UNFINISHED)


def unfinished_work(store: StreamStore, target: StreamName) -> str | None:
    """Return the name (`RestorePlan.work`) of the unfinished import that a target belongs to.

    Returns:
        The name, whether or not that import still runs; empty if the target belongs to no unfinished import; None if
        the target does not exist.
    """
    if not store.exists(target):
        return None
    try:
        described = store.describe(target)
    except (NoSuchScope, NoSuchStream):
        return None
    if work := marked_work(described):
        return work
    # The last steps of an import remove the tag; it is unfinished until the lease is gone.
    record = finishing_record(store, described)
    return record.work if record is not None else ""


def incarnation(described: StreamDescription) -> str:
    """Identify a stream among those of the same name: after a deletion, a new stream has higher segment numbers."""
    return str(min(described.epochs[0].segments))


def finishing_record(store: StreamStore, described: StreamDescription) -> Record | None:
    """Return the last record of a target's lease if its holder, alive or dead, was finishing this very stream.

    A record of an earlier release does not say which stream of this name it was.
    """
    record = last_record(store, lease_stream(described.name))
    if record is None or not record.finishing or record.about not in ("", incarnation(described)):
        return None
    return record
