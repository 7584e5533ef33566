"""Lists the streams of a scope or a store."""

from __future__ import annotations

from collections.abc import Iterator

from streamvault.common.errors import Problem
from streamvault.common.servers import each_of
from streamvault.manager.reports import StreamRole, StreamSummary
from streamvault.replication.replica import REPLICA
from streamvault.streamstore.cuts import live_between
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream
from streamvault.streamstore.model import StreamDescription, StreamName
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
from streamvault.streamstore.queue import MARK
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_scope

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


LOOKS = 5
"""How often a stream is looked at if it is truncated meanwhile."""


def list_streams(uri: str) -> Iterator[StreamSummary]:
    """List the streams of a scope, or of all scopes of a store, with what there is to archive.

    Streams that are deleted meanwhile are left out.

    Args:
        uri: a scope, ``pravega://HOST:PORT/SCOPE/`` or ``local:///FOLDER/SCOPE/``; or a store, ``pravega://HOST:PORT``
            or ``local:///FOLDER``.

    Yields:
        The streams, by scope and name, Streamvault's internal ones among them.

    Raises:
        InvalidName: the URI is invalid; before the first stream is asked for.
        NoSuchScope: the scope does not exist.
    """
    address, scope = parse_scope(uri)

    def summaries() -> Iterator[StreamSummary]:
        with address.open() as store:
            scopes = [scope] if scope else store.list_scopes()
            names = (name for each in scopes for name in store.list_streams(each, own=True))
            for found in each_of(lambda name: _summary(store, name), names):
                if found is not None:
                    yield found

    return summaries()


def _summary(store: StreamStore, name: StreamName) -> StreamSummary | None:
    """Describe a stream; None if it is gone."""
    uri = f"{store.uri}/{name}"
    for look in range(LOOKS):
        try:
            described = store.describe(name)
            return StreamSummary(
                stream=uri,
                role=role_of(described),
                segments=len(described.tail.offsets),
                epochs=len(described.epochs),
                bytes=_bytes(store, described),
                sealed=described.sealed,
            )
        except (NoSuchStream, NoSuchScope):
            return None
        except NoSuchSegment as error:  # it was truncated meanwhile
            if look == LOOKS - 1:
                return StreamSummary(stream=uri, role="stream", problem=str(error))
        except Problem as error:
            return StreamSummary(stream=uri, role="stream", problem=str(error))
    raise AssertionError


def _bytes(store: StreamStore, described: StreamDescription) -> int:
    between = live_between(store, described, described.head, described.tail)
    return sum(end - start for start, end in between.values())
