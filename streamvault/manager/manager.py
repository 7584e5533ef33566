"""The stream manager: every verb as a method, on one store and one runner; and the streams of a scope or a store."""

from __future__ import annotations

import atexit
import inspect
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from types import TracebackType
from typing import Any, Self

import streamvault
from streamvault.common.at_once import each_of
from streamvault.common.errors import Problem, Usage
from streamvault.manager.ephemeral import ephemeral_stream
from streamvault.manager.reports import StreamRole, StreamSummary
from streamvault.replication.replica import REPLICA
from streamvault.runner.opening import KeptRunner
from streamvault.runner.runner import Master
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
from streamvault.streamstore.uri import parse_scope, sharing_stores

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


RELATIVE = frozenset({"stream", "source", "sources", "into", "queue", "scope", "uri"})
"""The arguments of verbs that name streams or scopes, which may be relative to the manager's URI."""

NOT_METHODS = frozenset({"StreamManager", "ephemeral_stream"})
"""Public names that are no verbs, or have a method of their own here."""


class StreamManager:
    """Every verb of the package as a method, on one connection to each cluster and one runner; a context manager.

    A method takes the arguments of the function of its name. A stream, queue or scope may be named relative to the
    manager's URI, such as ``"shop/orders"`` or ``"shop/"``. Verbs that run tasks do so on the manager's master unless
    they are given another one; Spark is started when it is first needed, and stays. Several threads may use a manager.

    Args:
        uri: a store, ``pravega://HOST:PORT`` or ``local:///FOLDER``, or, followed by ``/SCOPE/``, a scope.
        master: a Spark master, or ``"inline"`` for no Spark.

    Attributes:
        uri: the manager's URI; that of a scope ends in a slash.
        master: the master.

    Raises:
        InvalidName: the URI is invalid.
        InvalidMaster: the master is.
    """

    def __init__(self, uri: str, *, master: str = "auto") -> None:
        address, scope = parse_scope(uri)
        Master.parse(master)
        self.uri = f"{address.uri}/{scope}/" if scope else address.uri
        self.master = master
        self._stack = ExitStack()
        self._runner = KeptRunner(master, self._stack)
        self._blocks: set[ExitStack] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self._process = os.getpid()
        self._stack.enter_context(sharing_stores())
        atexit.register(self.close)

    def __getattr__(self, name: str) -> Any:
        """Return a public function of the package as a method; the stub of `streamvault` tells type checkers."""
        if name.startswith("_") or name in NOT_METHODS or name not in dir(streamvault):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._method(getattr(streamvault, name))

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name in dir(streamvault) if not name.startswith("_"))]

    def _method(self, function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(function).parameters

        @wraps(function)
        def method(*args: Any, **kwargs: Any) -> Any:
            self._check_open()
            named = zip(parameters, args, strict=False)
            positional = [self._resolved(name, value) for name, value in named] + list(args[len(parameters) :])
            keywords = {name: self._resolved(name, value) for name, value in kwargs.items()}
            if "master" in parameters:
                keywords.setdefault("master", self.master)
            with self._runner.used():
                return function(*positional, **keywords)

        return method

    def _resolved(self, name: str, value: Any) -> Any:
        """Return an argument, with the manager's URI before names that are relative to it."""
        if name not in RELATIVE or value is None:
            return value
        if isinstance(value, list | tuple):
            return [self._resolved(name, one) for one in value]
        text = str(value)
        if not text or "://" in text:
            return text or self.uri
        return f"{self.uri.removesuffix('/')}/{text}"

    @contextmanager
    def ephemeral_stream(self, stream: str, *, segments: int = 1, expires_after: float = 60.0) -> Iterator[str]:
        """Make a stream for a block of code, as `streamvault.ephemeral_stream` does; `close` ends it, too."""
        self._check_open()
        with ExitStack() as block:
            made = ephemeral_stream(self._resolved("stream", stream), segments=segments, expires_after=expires_after)
            uri = block.enter_context(made)
            with self._lock:
                self._blocks.add(block)
            try:
                yield uri
            finally:
                with self._lock:
                    self._blocks.discard(block)

    def close(self) -> None:
        """Delete the manager's ephemeral streams, which releases their leases, and close its runner and its stores.

        Closing it again does nothing, and so does closing it in a process that was forked meanwhile. At the end of the
        process, a manager that is still open is closed.

        Raises:
            Problem: an ephemeral stream could not be deleted; the others are, and the rest is closed.
        """
        if os.getpid() != self._process:
            return
        with self._lock:
            blocks, self._blocks = self._blocks, set()
            was_closed, self._is_closed = self._is_closed, True
        if was_closed:
            return
        atexit.unregister(self.close)
        with self._stack:
            failed: Problem | None = None
            for block in blocks:
                try:
                    block.close()
                except Problem as problem:
                    failed = failed or problem
            if failed is not None:
                raise failed

    def _check_open(self) -> None:
        if self._is_closed:
            raise Usage("the stream manager is closed", where=self.uri)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        with suppress(Problem):  # what was raised says more
            self.close()
