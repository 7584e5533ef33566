"""Tells what a stream is from its tags; a name alone says nothing."""

from __future__ import annotations

from streamvault.manager.reports import StreamRole
from streamvault.mirrors.replica import REPLICA
from streamvault.streamstore.model import StreamDescription
from streamvault.streamstore.own import (
    APPEND_LEASE,
    APPEND_LEDGER,
    CONSUMER_LEASE,
    EPHEMERAL,
    EPHEMERAL_LEASE,
    MOVED_TO,
    SOURCE_SEAL,
    SPARK_LEDGER,
    SWEEP_NOTES,
    SWEPT,
    TARGET_LEASE,
    TARGET_LEDGER,
    UNFINISHED,
    is_own,
    tag_of,
)
from streamvault.streamstore.services.fifo.segment import MARK

LEASES = (TARGET_LEASE, CONSUMER_LEASE, EPHEMERAL_LEASE, APPEND_LEASE)
LEDGERS = (TARGET_LEDGER, SOURCE_SEAL, SPARK_LEDGER, APPEND_LEDGER, SWEEP_NOTES)


def role_of(described: StreamDescription) -> StreamRole:
    """Return what a stream is. Of internal streams without a tag of their kind, the name's prefix decides."""
    configuration, name = described.configuration, described.name.stream
    if not is_own(configuration):
        return "ephemeral" if tag_of(configuration, EPHEMERAL) else "stream"
    roles: dict[StreamRole, bool] = {
        "swept": SWEPT in configuration.tags,
        "tombstone": bool(tag_of(configuration, MOVED_TO)),
        "replica": tag_of(configuration, UNFINISHED).startswith(REPLICA),
        "unfinished": bool(tag_of(configuration, UNFINISHED)),
        "queue": MARK in configuration.tags,
        "lease": name.startswith(LEASES),
        "ledger": name.startswith(LEDGERS),
    }
    return next((role for role, is_one in roles.items() if is_one), "internal")
