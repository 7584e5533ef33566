"""The two streams of a queue: waiting requests, and beside them failed ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamvault.common.errors import Usage
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.own import FAILED_SUFFIX
from streamvault.streamstore.services.fifo.segment import QueueSegment
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress, parse_stream


class RequestQueue:
    """A queue of requests in an open store. Open it with `open_queue`."""

    def __init__(self, store: StreamStore, name: StreamName) -> None:
        self._store = store
        self._name = name
        self._failed = StreamName(name.scope, name.stream + FAILED_SUFFIX)

    def waiting(self, *, create: bool) -> QueueSegment:
        """Return the queue of waiting requests.

        Args:
            create: create it if missing.

        Raises:
            NoSuchScope, NoSuchStream: it does not exist.
            NotAQueue: another stream has the name.
        """
        return QueueSegment.create(self._store, self._name) if create else QueueSegment.open(self._store, self._name)

    def failed(self) -> QueueSegment | None:
        """Return the queue of failed requests; None if no request has ever failed."""
        try:
            return QueueSegment.open(self._store, self._failed)
        except (NoSuchScope, NoSuchStream):
            return None

    def create_failed(self) -> QueueSegment:
        """Return the queue of failed requests; create it if missing."""
        return QueueSegment.create(self._store, self._failed)


def check_queue(queue: str, *, create: bool) -> None:
    """Check that a URI names a queue, or nothing yet.

    Args:
        queue: the URI.
        create: create the queue if missing; without it, only the URI is checked.

    Raises:
        InvalidName: the URI is invalid.
        NotAQueue: another stream has the name.
        Usage: as `open_queue`.
    """
    _parsed(queue)
    if create:
        with open_queue(queue) as place:
            place.waiting(create=True)


@contextmanager
def open_queue(queue: str) -> Iterator[RequestQueue]:
    """Open the queue at a stream's URI.

    Raises:
        InvalidName: the URI is invalid.
        Usage: it names a queue of failed requests.
    """
    address, name = _parsed(queue)
    with address.open() as store:
        yield RequestQueue(store, name)


def _parsed(queue: str) -> tuple[StoreAddress, StreamName]:
    address, name = parse_stream(queue)
    if name.stream.endswith(FAILED_SUFFIX):
        raise Usage(
            "this is the queue of failed requests",
            where=f"{address}/{name}",
            todo=f"Name the queue itself, without {FAILED_SUFFIX}.",
        )
    return address, name
