"""Who restores into a target right now.

A stream tag says whose unfinished import a target is, but not whether that import still runs; a lease beside it does.
"""

from __future__ import annotations

from streamstore.lease import Lease, LeaseHeld, stream_beside
from streamstore.model import StreamName
from streamstore.store import StreamStore

__all__ = ["TargetBusy", "lease_stream", "take_lease"]


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
