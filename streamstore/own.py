"""The streams that Streamvault keeps for itself, and how they are told from users' streams.

Leases, ledgers, queues and the targets of unfinished imports are made with the tag `OWN`. The tag decides, never the
name: a stream that is merely called like one of ours is its user's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import Conflict

if TYPE_CHECKING:
    from streamstore.model import StreamConfiguration, StreamDescription, StreamName
    from streamstore.store import StreamStore

__all__ = ["OWN", "OwnStream", "describe_source", "is_own", "own_stream"]

OWN = "streamvault-own"
"""The tag on every stream that Streamvault makes for itself, from its creation on."""


class OwnStream(Conflict):
    """The stream is one of Streamvault's own, so no command archives, changes or writes to it."""


def is_own(configuration: StreamConfiguration) -> bool:
    """Whether a stream with this configuration is one of Streamvault's own."""
    return OWN in configuration.tags


def describe_source(store: StreamStore, stream: StreamName) -> StreamDescription:
    """Describe the stream that a command reads or truncates.

    Raises:
        OwnStream: it is not a user's stream.
        NoSuchScope, NoSuchStream: as `StreamStore.describe`.
    """
    described = store.describe(stream)
    if is_own(described.configuration):
        raise own_stream(store, stream)
    return described


def own_stream(store: StreamStore, stream: StreamName) -> OwnStream:
    """What to say of a stream that is not a user's."""
    return OwnStream(
        "this stream belongs to Streamvault itself (a queue, a lease, a ledger, or an unfinished import)",
        where=f"{store.uri}/{stream}",
        todo="Choose another stream, or let the import finish first.",
    )
