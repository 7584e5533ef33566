"""Lists the streams of a scope or a store."""

from __future__ import annotations

from collections.abc import Iterator

from streamvault.common.at_once import each_of
from streamvault.common.errors import Problem
from streamvault.manager.reports import StreamSummary
from streamvault.manager.roles import role_of
from streamvault.streamstore.arithmetic.cuts import live_between
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream
from streamvault.streamstore.model import StreamDescription, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_scope

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
            names = (name for each in ([scope] if scope else store.list_scopes()) for name in _streams(store, each))
            for found in each_of(lambda name: _summary(store, name), names):
                if found is not None:
                    yield found

    return summaries()


def _streams(store: StreamStore, scope: str) -> Iterator[StreamName]:
    yield from store.list_streams(scope, own=True)


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
