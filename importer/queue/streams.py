"""The two streams of a queue of requests: those that wait, and beside it those that have failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from common.errors import Usage
from streamstore.errors import NoSuchScope, NoSuchStream
from streamstore.fifo import QueueSegment
from streamstore.model import StreamName
from streamstore.store import StreamStore
from streamstore.uri import StoreAddress, parse_stream

__all__ = ["RequestQueue", "check_queue", "open_queue"]

FAILED_SUFFIX = "-failed"


class RequestQueue:
    """A queue of requests in an open store. Use `open_queue`."""

    def __init__(self, store: StreamStore, name: StreamName) -> None:
        self._store = store
        self._name = name
        self._failed = StreamName(name.scope, name.stream + FAILED_SUFFIX)

    def waiting(self, *, make: bool) -> QueueSegment:
        """What waits.

        Args:
            make: make it if need be.

        Raises:
            NoSuchScope, NoSuchStream: it is not there. NotAQueue: it is something else.
        """
        return QueueSegment.make(self._store, self._name) if make else QueueSegment.open(self._store, self._name)

    def failed(self) -> QueueSegment | None:
        """What has failed; None if nothing ever has."""
        try:
            return QueueSegment.open(self._store, self._failed)
        except (NoSuchScope, NoSuchStream):
            return None

    def make_failed(self) -> QueueSegment:
        """The queue of what has failed, made if need be."""
        return QueueSegment.make(self._store, self._failed)


def check_queue(queue: str, *, make: bool) -> None:
    """See that a URI names a queue, or nothing yet.

    Args:
        queue: the URI.
        make: make it if need be; else only the URI is looked at.

    Raises:
        InvalidName: it is no such URI. NotAQueue: it names something else. Usage: as `open_queue`.
    """
    _parsed(queue)
    if make:
        with open_queue(queue) as place:
            place.waiting(make=True)


@contextmanager
def open_queue(queue: str) -> Iterator[RequestQueue]:
    """The queue that a stream's URI names.

    Raises:
        InvalidName: it is no such URI. Usage: it is a queue of failed requests.
    """
    address, name = _parsed(queue)
    with address.open() as store:
        yield RequestQueue(store, name)


def _parsed(queue: str) -> tuple[StoreAddress, StreamName]:
    address, name = parse_stream(queue)
    if name.stream.endswith(FAILED_SUFFIX):
        raise Usage(
            "this is where failed requests are put aside",
            where=f"{address}/{name}",
            todo=f"Name the queue itself, without {FAILED_SUFFIX}.",
        )
    return address, name
