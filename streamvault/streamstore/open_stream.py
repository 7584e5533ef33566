"""A stream in an open store: the one value that verbs hand to their engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streamvault.streamstore.errors import NoSuchScope, NoSuchStream
from streamvault.streamstore.model import StreamDescription, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress, parse_stream


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A stream, which need not exist, in an open store.

    Attributes:
        store: the store.
        address: opens the same store in a task.
        name: the stream.
    """

    store: StreamStore
    address: StoreAddress
    name: StreamName

    @property
    def uri(self) -> str:
        """The stream's URI."""
        return f"{self.address.uri}/{self.name}"

    def exists(self) -> bool:
        """Return whether the stream exists."""
        return self.store.exists(self.name)

    def describe(self) -> StreamDescription:
        """Describe the stream.

        Raises:
            NoSuchScope, NoSuchStream: it does not exist.
        """
        return self.store.describe(self.name)

    def find(self) -> StreamDescription | None:
        """Describe the stream; None if it does not exist."""
        try:
            return self.store.describe(self.name)
        except (NoSuchScope, NoSuchStream):
            return None


@contextmanager
def open_stream(uri: str, *, target: bool = False) -> Iterator[OpenStream]:
    """Open the store of a stream's URI; arguments and errors are those of `parse_stream`."""
    address, name = parse_stream(uri, target=target)
    with address.open() as store:
        yield OpenStream(store, address, name)
