"""Streamvault's internal streams, and how they are distinguished from users' streams.

Leases, ledgers, queues and the targets of unfinished imports carry the tag `OWN`. Only the tag counts, never the name:
a stream that merely has a similar name belongs to its user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import Conflict

if TYPE_CHECKING:
    from streamstore.model import StreamConfiguration, StreamDescription, StreamName
    from streamstore.store import StreamStore

__all__ = ["OWN", "OwnStream", "describe_source", "is_own", "own_stream"]

OWN = "streamvault-own"
"""The tag on every internal stream, from its creation on."""


class OwnStream(Conflict):
    """The stream is one of Streamvault's internal streams, so commands do not archive, change or write to it."""


def is_own(configuration: StreamConfiguration) -> bool:
    """Return whether a stream with this configuration is an internal one."""
    return OWN in configuration.tags


def describe_source(store: StreamStore, stream: StreamName) -> StreamDescription:
    """Describe a stream that a command reads or truncates.

    Raises:
        OwnStream: the stream is an internal one.
        NoSuchScope: the scope does not exist.
        NoSuchStream: the stream does not exist.
    """
    described = store.describe(stream)
    if is_own(described.configuration):
        raise own_stream(store, stream)
    return described


def own_stream(store: StreamStore, stream: StreamName) -> OwnStream:
    """Build the error for an internal stream."""
    return OwnStream(
        "this is an internal stream of Streamvault (a queue, a lease, a ledger, or an unfinished import)",
        where=f"{store.uri}/{stream}",
        todo="Choose another stream, or let the import finish first.",
    )
