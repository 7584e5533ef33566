"""Whose unfinished import a target is, and who restores into it right now.

A stream tag says whose it is, but not whether that import still runs; a lease beside it does.
"""

from __future__ import annotations

from streamstore.errors import NoSuchScope, NoSuchStream
from streamstore.lease import Lease, LeaseHeld, last_record, stream_beside
from streamstore.model import StreamDescription, StreamName
from streamstore.store import StreamStore

__all__ = ["MARK", "TargetBusy", "lease_stream", "marked_work", "take_lease", "unfinished_work"]

MARK = "streamvault-import:"
"""What the tag on an unfinished target begins with; the import's name follows."""


class TargetBusy(LeaseHeld):
    """Another import restores into this target."""


def lease_stream(target: StreamName) -> StreamName:
    """The stream that holds the target's lease: in its scope, with a name of its own."""
    return stream_beside(target, "streamvault-import-")


def take_lease(store: StreamStore, target: StreamName, work: str) -> Lease:
    """Take the lease on a target.

    Raises:
        TargetBusy: a living import holds it.
    """
    held = TargetBusy(
        "another import is restoring into this stream", where=str(target), todo="Wait for it, or choose another name."
    )
    return Lease.take(store, lease_stream(target), work, held=held)


def marked_work(described: StreamDescription) -> str:
    """The name of the import whose mark a stream carries; empty if it carries none."""
    return next((tag.removeprefix(MARK) for tag in described.configuration.tags if tag.startswith(MARK)), "")


def unfinished_work(store: StreamStore, target: StreamName) -> str | None:
    """The name of the import (`RestorePlan.work`) that a target was begun with and that has not ended.

    Returns:
        The name, whether or not that import still runs; empty if the target is nobody's unfinished one, None if there
        is none.
    """
    if not store.exists(target):
        return None
    try:
        described = store.describe(target)
    except (NoSuchScope, NoSuchStream):
        return None
    if work := marked_work(described):
        return work
    # The last steps of an import take the tag away; until the lease is gone it is not through.
    record = last_record(store, lease_stream(target))
    return record.work if record is not None and record.finishing else ""
