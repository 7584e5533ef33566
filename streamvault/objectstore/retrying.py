"""Retries of requests to object stores; wrappers of these: one retries, one counts requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Any, TypeVar, cast

from tenacity import stop_before_delay

from streamvault.common.errors import Problem
from streamvault.common.progress import S3
from streamvault.common.waiting import attempts, is_transient
from streamvault.objectstore.bulk import holds
from streamvault.objectstore.store import (
    PAGE,
    SMALL,
    AlreadyExists,
    ByteStream,
    KeptChecksums,
    NoSuchHost,
    NoSuchObject,
    ObjectInfo,
    ObjectStore,
    ObjectStoreError,
    ObjectStoreUnavailable,
    ServerBusy,
)

T = TypeVar("T")

_NOT_ASKED = nullcontext()

RETRY_SECONDS = 60.0
"""How long a request is retried while the server is busy or unreachable."""

FIRST_WAIT = 0.2
LONGEST_WAIT = 5.0
FIRST_CONTACT = 10.0
"""Seconds of retries for a server that has never answered; it is probably the wrong address."""


class Retries:
    """Retries requests that fail with `ObjectStoreUnavailable` (throttling, 5xx, lost connections), with full jitter.

    Whatever asks an object store does so through one, so that all requests wait alike.

    Args:
        total_seconds: total retry time; the last attempt may run past it. A server that has never answered gets at most
            10 seconds.
        reach: called after the first failure of a server that has never answered; may raise a better error. None for
            nothing.
        answered: whether the server has answered already, to another part of the process or of the run.
    """

    def __init__(
        self, total_seconds: float = RETRY_SECONDS, reach: Callable[[], None] | None = None, *, answered: bool = False
    ) -> None:
        self.answered = answered
        self._total = total_seconds
        self._reach = reach

    def __call__(self, attempt: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Return what a request returns. ``again`` are its further attempts; None for the same as the first.

        The first one is made without the machinery, which few requests need.
        """
        with S3:
            try:
                result = attempt()
            except ObjectStoreUnavailable as error:
                result = self.again(error, again or attempt)
            except Problem as error:
                self.check_reach(error)
                self.answered = True
                raise
            self.answered = True
            return result

    def check_reach(self, error: Problem) -> None:
        """Raise a better error than one that may come from a server of another protocol."""
        if self._reach and not self.answered and type(error) in {ObjectStoreError, ObjectStoreUnavailable}:
            self._reach()

    def again(self, first: ObjectStoreUnavailable, attempt: Callable[[], T]) -> T:
        """Retry until success or timeout. The failure that led here counts as the first attempt."""
        began = time.monotonic()
        if isinstance(first, NoSuchHost) and not self.answered:
            raise first
        self.check_reach(first)
        known = self.answered or isinstance(first, ServerBusy)
        failed: list[ObjectStoreUnavailable] = [first]

        def tried() -> T:
            S3.failed()
            if failed:
                raise failed.pop()
            return attempt()

        stop = stop_before_delay(self._total if known else min(self._total, FIRST_CONTACT))
        try:
            return attempts(is_transient, stop, first=FIRST_WAIT, longest=LONGEST_WAIT)(tried)
        except ObjectStoreUnavailable as error:
            took = time.monotonic() - began
            raise type(error)(f"{error.what}, gave up after {took:.0f} s", where=error.where, todo=error.todo) from None


class RetryingStore(ObjectStore):
    """Makes all requests to the wrapped store with `Retries`, whose arguments are ``total_seconds`` and ``reach``."""

    def __init__(
        self, store: ObjectStore, *, total_seconds: float = RETRY_SECONDS, reach: Callable[[], None] | None = None
    ) -> None:
        self.uri = store.uri
        self._store = store
        self._call = Retries(total_seconds, reach)

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See `ObjectStore.put`. An attempt whose answer was lost may have succeeded, so an identical object counts."""
        self._call(partial(self._store.put, key, data), partial(self._put_again, key, data))

    def put_blocks(self, key: str, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
        """See `ObjectStore.put_blocks`.

        Not retried, as blocks can be read only once; the wrapped store retries its parts.
        """
        self._store.put_blocks(key, blocks)

    def get(self, key: str, at_most: int = SMALL) -> bytes:
        """See `ObjectStore.get`."""
        return self._call(partial(self._store.get, key, at_most))

    def get_range(self, key: str, start: int, end: int) -> memoryview:
        """See `ObjectStore.get_range`."""
        return self._call(partial(self._store.get_range, key, start, end))

    def stream(self, key: str, start: int, end: int) -> ByteStream:
        """See `ObjectStore.stream`. A broken one goes on behind the last received byte."""
        blocks = self._store.stream(key, start, end)
        return ByteStream(partial(self._call, blocks.take), blocks.close)

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        return self._call(partial(self._store.size, key))

    def checksums(self, key: str) -> KeptChecksums:
        """See `ObjectStore.checksums`."""
        return self._call(partial(self._store.checksums, key))

    def modified(self, key: str) -> datetime | None:
        """See `ObjectStore.modified`."""
        return self._call(partial(self._store.modified, key))

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`. A broken listing is resumed after the last received key."""
        entries = self._store.list(prefix, after)
        last = after
        asked: AbstractContextManager[None] = S3  # for the first only: a page has a thousand
        while True:
            try:
                with asked:
                    entry = next(entries, None)
            except ObjectStoreUnavailable as error:
                with S3:
                    entries, entry = self._call.again(error, partial(self._resume, prefix, last))
            except Problem as error:
                self._call.check_reach(error)
                raise
            asked = _NOT_ASKED
            self._call.answered = True
            if entry is None:
                return
            yield entry
            last = entry.key

    def folders(self, prefix: str) -> Sequence[str]:
        """See `ObjectStore.folders`."""
        return self._call(partial(self._store.folders, prefix))

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore.delete`."""
        self._call(partial(self._store.delete, keys))

    def _put_again(self, key: str, data: bytes | memoryview) -> None:
        try:
            self._put_if_absent(key, data)
        except AlreadyExists:
            with suppress(NoSuchObject):  # deleted in the meantime
                if holds(self._store, key, data):
                    return
            raise

    def _put_if_absent(self, key: str, data: bytes | memoryview) -> None:
        """Check first: some servers reject a taken key by closing the connection during a large upload."""
        try:
            self._store.size(key)
        except NoSuchObject:
            self._store.put(key, data)
        else:
            raise AlreadyExists("the object exists", where=f"{self.uri}/{key}")

    def _resume(self, prefix: str, last: str) -> tuple[Iterator[ObjectInfo], ObjectInfo | None]:
        entries = self._store.list(prefix, last)
        return entries, next(entries, None)


class CountedStore:
    """Counts the requests to a store, also those that fail: of listings and deletions, one for each 1,000 keys.

    Attributes:
        requests: how many were made.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.requests = 0
        self._store = store
        self._lock = Lock()

    @property
    def store(self) -> ObjectStore:
        """The store whose requests are counted."""
        return cast("ObjectStore", self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)

        def call(*args: Any, **options: Any) -> Any:
            self._add(-(-len(args[0]) // PAGE) if name == "delete" else 1)
            result = found(*args, **options)
            return self._pages(result) if name == "list" else result

        return call if callable(found) else found

    def _pages(self, entries: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        for seen, entry in enumerate(entries):
            if seen and seen % PAGE == 0:
                self._add(1)
            yield entry

    def _add(self, requests: int) -> None:
        with self._lock:
            self.requests += requests
