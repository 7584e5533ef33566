"""Ownership of a target: a stream tag names the unfinished import, a lease beside it shows whether it still runs.

The name of an import, an *import id*, is the same for the same source and options; so is that of a copy or a replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from streamvault.common.errors import Conflict
from streamvault.streamstore.errors import InvalidCut, NoSuchSegment, NoSuchStream, ScaleRefused, StreamSealed
from streamvault.streamstore.model import StreamDescription, StreamName
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import TARGET_LEASE, TARGET_LEDGER, UNFINISHED, stream_beside, tag_of
from streamvault.streamstore.services.lease import Heartbeat, Lease, LeaseHeld, last_heartbeat
from streamvault.streamstore.services.ledger import Ledger, LedgerNameTaken
from streamvault.streamstore.store import StreamStore


class TargetBusy(LeaseHeld):
    """Another import is restoring into this target."""


def lease_stream(target: StreamName) -> StreamName:
    """Return the name of the stream that holds the target's lease, in the same scope."""
    return stream_beside(target, TARGET_LEASE)


def take_lease(target: OpenStream, import_id: str, *, wait_seconds: float = 0.0) -> Lease:
    """Acquire the lease on a target; wait up to ``wait_seconds`` for a live import to end.

    Raises:
        TargetBusy: a live import holds it.
    """
    held = TargetBusy(
        "another import, copy or replication is writing to this stream",
        where=target.uri,
        todo="Wait for it, or choose another name.",
    )
    return Lease.take(target.store, lease_stream(target.name), import_id, held=held, wait_seconds=wait_seconds)


@contextmanager
def finishing_under_lease(target: OpenStream, import_id: str) -> Iterator[Lease]:
    """Hold the lease on a target until it is finished; then the lease is deleted.

    Raises:
        TargetBusy: a live import holds it.
    """
    lease = take_lease(target, import_id)
    try:
        yield lease
    except BaseException:
        # Once policies are set, the mark is gone and only the lease shows which import the target belongs to.
        lease.release(remove=not lease.is_finishing)
        raise
    lease.release(remove=True)


@contextmanager
def reporting_lost_lease(lease: Lease) -> Iterator[None]:
    """Report a lost lease instead of its consequences: the store rejects a late run's requests in many ways.

    Raises:
        LeaseHeld: the lease was lost.
    """
    try:
        yield
    except (Conflict, InvalidCut, NoSuchSegment, NoSuchStream, ScaleRefused, StreamSealed):
        lease.confirm()
        raise


def remove_leftovers(target: OpenStream) -> None:
    """Delete the lease and the ledger that late or killed runs have left beside a finished target.

    Nothing is deleted while another process holds the lease.
    """
    ledger = Ledger(target.store, stream_beside(target.name, TARGET_LEDGER), target.name)
    if not target.store.exists(lease_stream(target.name)) and not target.store.exists(ledger.name):
        return
    with suppress(TargetBusy):
        lease = take_lease(target, "")
        try:
            if unfinished_import(target) == "":
                with suppress(LedgerNameTaken):
                    ledger.newest(create=False)
                ledger.delete()
        finally:
            lease.release(remove=True)


def marked_import(described: StreamDescription) -> str:
    """Return the import id in a stream's mark; empty if the stream has no mark."""
    return tag_of(described.configuration, UNFINISHED)


def unfinished_import(target: OpenStream) -> str | None:
    """Return the id of the unfinished import that a target belongs to, whether or not that import still runs.

    Returns:
        The id; empty if the target belongs to no unfinished import; None if the target does not exist.
    """
    if not target.exists() or (described := target.find()) is None:
        return None
    if marked := marked_import(described):
        return marked
    # The last steps of an import remove the tag; it is unfinished until the lease is gone.
    record = finishing_record(target.store, described)
    return record.work if record is not None else ""


def first_segment_id(described: StreamDescription) -> str:
    """Tell a stream from others of the same name: after a deletion, a new stream has higher segment numbers."""
    return str(min(described.epochs[0].segments))


def finishing_record(store: StreamStore, described: StreamDescription) -> Heartbeat | None:
    """Return the last record of a target's lease if its holder, alive or dead, was finishing this very stream."""
    record = last_heartbeat(store, lease_stream(described.name))
    if record is None or not record.finishing or record.about != first_segment_id(described):
        return None
    return record
